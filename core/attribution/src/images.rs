//! Targets of mappings, and the images that they are.
//!
//! Enters: mapped files as the kernel names them (path with build ID or inode). Leaves: an [`ImageRecord`] for each image
//! that has samples. A *target* is what a mapping names. Several targets can be one image: an event names the file by build
//! ID, for example, and /proc names it by inode. A file is opened once, at the first sample of its target. Never here: I/O,
//! which an [`ImageFiles`] does.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use dwell_profile::{BuildId, ImageId, ImageKind, ImageRecord, ImageSymbol, name_to_text};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::{MappedRange, TargetIndex, program_headers::CodeLayout};

/// Index of an image in [`Images`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ImageIndex(pub u32);

/// The tag by which the kernel identifies a mapped file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileTag<'a> {
    /// The build ID.
    BuildId(&'a [u8]),
    /// The device and the inode.
    Inode {
        /// Major number of the device.
        major: u32,
        /// Minor number of the device.
        minor: u32,
        /// Number of the inode.
        inode: u64,
    },
}

/// Access to the files of mapped targets.
pub trait ImageFiles {
    /// Identifies the file of a target that is mapped in the given range.
    fn identify(&mut self, target: &Target, range: MappedRange) -> Identity;

    /// Returns the image ID of the vdso.
    fn vdso_id(&mut self) -> ImageId;
}

/// The thing that a mapping names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// A file on disk.
    File {
        /// Path as the process sees it, without the suffix ` (deleted)`.
        path: PathBuf,
        /// Whether the name had the suffix ` (deleted)`.
        deleted: bool,
        /// Build ID or inode, which distinguishes files with the same path.
        tag: OwnedTag,
    },
    /// The vdso, which the kernel maps into each process.
    Vdso,
    /// A file in memory (memfd) that an event named. It is a program if the process executes it, and anonymous memory
    /// otherwise. Stored mappings never have this target: [`Target::mapped_as`] replaces it.
    InMemory(Box<Target>),
    /// Anonymous memory, including memory that is mapped through a file without a name.
    Anonymous,
}

/// Owned form of [`FileTag`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum OwnedTag {
    /// The build ID.
    BuildId(BuildId),
    /// The device (numbered like `st_dev`) and the inode.
    Inode {
        /// Number of the device.
        device: u64,
        /// Number of the inode.
        inode: u64,
        /// Version of the contents when the file was mapped, if it could be read. A file may be overwritten in place.
        version: Option<FileVersion>,
    },
}

/// Size and time that distinguish successive contents of one inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileVersion {
    /// File size in bytes.
    pub size_bytes: u64,
    /// Modification time in ns since 1970.
    pub mtime_ns: i64,
}

impl Target {
    /// Returns the target for a name that the kernel reports in a record or in /proc/PID/maps.
    pub fn named(name: &[u8], tag: FileTag<'_>) -> Target {
        use std::os::unix::ffi::OsStrExt;
        if name.starts_with(b"[vdso") {
            return Target::Vdso;
        }
        let (path, deleted) = name.strip_suffix(b" (deleted)").map_or((name, false), |path| (path, true));
        let nameless: [&[u8]; 5] = [b"/memfd:", b"/dev/zero", b"/anon_hugepage", b"/SYSV", b"//anon"];
        let owned = OwnedTag::from_tag(tag);
        let has_build_id = matches!(owned, OwnedTag::BuildId(_));
        let anonymous = !path.starts_with(b"/") || nameless.iter().any(|n| path.starts_with(n));
        if anonymous && !has_build_id {
            let in_memory = || Target::InMemory(Box::new(Target::program_named(name, tag)));
            return if path.starts_with(b"/memfd:") { in_memory() } else { Target::Anonymous };
        }
        Target::File { path: PathBuf::from(std::ffi::OsStr::from_bytes(path)), deleted, tag: owned }
    }

    /// Returns the target for a program's own file. Unlike [`Target::named`] it accepts a file without a name, because
    /// container runtimes execute themselves from a sealed memfd.
    pub fn program_named(name: &[u8], tag: FileTag<'_>) -> Target {
        use std::os::unix::ffi::OsStrExt;
        let path = name.strip_suffix(b" (deleted)").unwrap_or(name);
        let deleted = path.len() < name.len();
        Target::File {
            path: PathBuf::from(std::ffi::OsStr::from_bytes(path)),
            deleted,
            tag: OwnedTag::from_tag(tag),
        }
    }

    /// Returns the target as a process maps it. A file in memory becomes a file if it is the process's program, and
    /// anonymous memory otherwise.
    pub fn mapped_as(self, is_program: bool) -> Target {
        match self {
            Target::InMemory(program) if is_program => *program,
            Target::InMemory(_) => Target::Anonymous,
            other => other,
        }
    }

    /// Returns whether only the inode identifies the file, and its version is still missing.
    pub fn needs_version(&self) -> bool {
        matches!(self, Target::File { tag: OwnedTag::Inode { version: None, .. }, .. })
    }

    /// Stores the version of the inode's contents.
    pub fn set_version(&mut self, seen: Option<FileVersion>) {
        if let Target::File { tag: OwnedTag::Inode { version, .. }, .. } = self {
            *version = seen;
        }
    }

    /// Returns the file name, which is the program's name if a process executes the target.
    pub fn program(&self) -> Option<String> {
        match self {
            Target::File { path, .. } => Some(name_to_text(path.file_name()?).into_owned()),
            _ => None,
        }
    }
}

impl OwnedTag {
    fn from_tag(tag: FileTag<'_>) -> Self {
        let none = OwnedTag::Inode { device: 0, inode: 0, version: None };
        match tag {
            FileTag::BuildId(bytes) => BuildId::new(bytes).map_or(none, OwnedTag::BuildId),
            FileTag::Inode { major, minor, inode } => {
                OwnedTag::Inode { device: rustix::fs::makedev(major, minor), inode, version: None }
            }
        }
    }
}

/// The result of looking at a target's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// ID of the image that the file is.
    pub id: ImageId,
    /// A path that leads to the file from our mount namespace, if it differs from the path that the process sees.
    pub path: Option<PathBuf>,
    /// Whether the path no longer leads to this file.
    pub deleted: bool,
    /// Size of the file in bytes.
    pub size_bytes: Option<u64>,
    /// Modification time of the file in ns since 1970.
    pub mtime_ns: Option<i64>,
    /// Executable segments of the file.
    pub code: CodeLayout,
}

impl Identity {
    /// Returns the identity of a file that cannot be opened, or can no longer be opened.
    pub fn without_file(id: ImageId) -> Self {
        Identity {
            id,
            path: None,
            deleted: true,
            size_bytes: None,
            mtime_ns: None,
            code: CodeLayout::default(),
        }
    }
}

/// All known targets and images.
#[derive(Debug, Default)]
pub struct Images {
    targets: Vec<KnownTarget>,
    by_target: FxHashMap<Arc<Target>, TargetIndex>,
    first_of: FxHashMap<(ImageIndex, String), TargetIndex>,
    records: Vec<ImageRecord>,
    by_id: FxHashMap<ImageId, ImageIndex>,
    jit: FxHashMap<Arc<str>, ImageIndex>,
    /// Symbols that [`Images::take_record`] has not returned yet.
    new_symbols: FxHashMap<ImageIndex, Vec<ImageSymbol>>,
}

/// A target, and what was found out about its file.
#[derive(Clone, Debug)]
struct KnownTarget {
    target: Arc<Target>,
    image: Option<ImageIndex>,
    /// The first known target of the same program; see [`Images::canonical`].
    first: Option<TargetIndex>,
    code: CodeLayout,
}

impl Images {
    /// Returns the index of a target, and adds the target if it is new.
    pub fn intern(&mut self, target: Target) -> TargetIndex {
        if let Some(index) = self.by_target.get(&target) {
            return *index;
        }
        let (index, target) = (TargetIndex(self.targets.len() as u32), Arc::new(target));
        let (image, first, code) = (None, None, CodeLayout::default());
        self.targets.push(KnownTarget { target: target.clone(), image, first, code });
        self.by_target.insert(target, index);
        index
    }

    /// Returns the image of a target; the first call looks at the file. Returns `None` for anonymous memory, which belongs
    /// to the image of the application's generated code ([`Images::jit`]).
    pub fn look(
        &mut self,
        index: TargetIndex,
        range: MappedRange,
        files: &mut dyn ImageFiles,
    ) -> Option<ImageIndex> {
        let known = &self.targets[index.0 as usize];
        if known.image.is_some() || *known.target == Target::Anonymous {
            return known.image;
        }
        let target = known.target.clone();
        let image = match &*target {
            Target::File { path, .. } => {
                let identity = files.identify(&target, range);
                self.targets[index.0 as usize].code = identity.code;
                self.insert(ImageRecord {
                    id: identity.id,
                    kind: ImageKind::File,
                    path: identity.path.unwrap_or_else(|| path.clone()),
                    deleted: identity.deleted,
                    size_bytes: identity.size_bytes,
                    mtime_ns: identity.mtime_ns,
                    symbols: Vec::new(),
                    places: Default::default(),
                    kernel_builds: Vec::new(),
                })
            }
            _ => self.named(files.vdso_id(), ImageKind::Vdso, "[vdso]"),
        };
        let first = Some(self.first_of(image, &target, index));
        let known = &mut self.targets[index.0 as usize];
        (known.image, known.first) = (Some(image), first);
        Some(image)
    }

    /// Returns the image of a target, if its file was looked at.
    pub fn image_of(&self, target: TargetIndex) -> Option<ImageIndex> {
        self.targets[target.0 as usize].image
    }

    /// Returns the path from which a target was mapped, if it is a file.
    pub fn path_of(&self, target: TargetIndex) -> Option<&Path> {
        match &*self.targets[target.0 as usize].target {
            Target::File { path, .. } => Some(path),
            _ => None,
        }
    }

    /// Returns whether a target is a file.
    pub fn is_file(&self, target: TargetIndex) -> bool {
        matches!(*self.targets[target.0 as usize].target, Target::File { .. })
    }

    /// Returns the executable segments of a target. They are empty until its file was looked at.
    pub fn code_of(&self, target: TargetIndex) -> &CodeLayout {
        &self.targets[target.0 as usize].code
    }

    /// Returns the file name of a target, if it is a file.
    pub fn program_of(&self, target: TargetIndex) -> Option<String> {
        self.targets[target.0 as usize].target.program()
    }

    /// Returns the image for an application's generated code.
    pub fn jit(&mut self, app: &Arc<str>) -> ImageIndex {
        if let Some(index) = self.jit.get(app) {
            return *index;
        }
        let index = self.named(ImageId::named(&format!("jit:{app}")), ImageKind::Jit, "//anon");
        self.jit.insert(app.clone(), index);
        index
    }

    /// Returns the image that has this ID, and adds it if it is new. `path` is a display name for things that are no files.
    pub fn named(&mut self, id: ImageId, kind: ImageKind, path: &str) -> ImageIndex {
        if let Some(index) = self.by_id.get(&id) {
            return *index;
        }
        self.insert(ImageRecord::new(id, kind, path))
    }

    /// Returns the target that represents all targets of the same program. A program may be known by build ID from an event
    /// and by inode from /proc. A copy under another name is another program, though it is the same image.
    pub fn canonical(&self, target: TargetIndex) -> TargetIndex {
        self.targets[target.0 as usize].first.unwrap_or(target)
    }

    /// Returns the first known target of this image and file name, or `index` if there is none.
    fn first_of(&mut self, image: ImageIndex, target: &Target, index: TargetIndex) -> TargetIndex {
        match target.program() {
            Some(program) => *self.first_of.entry((image, program)).or_insert(index),
            None => index,
        }
    }

    fn insert(&mut self, record: ImageRecord) -> ImageIndex {
        if let Some(index) = self.by_id.get(&record.id) {
            return *index;
        }
        let index = ImageIndex(self.records.len() as u32);
        self.by_id.insert(record.id.clone(), index);
        self.records.push(record);
        index
    }

    /// Returns what is known about an image.
    pub fn record(&self, index: ImageIndex) -> &ImageRecord {
        &self.records[index.0 as usize]
    }

    /// Sets the build of the kernel that an image stands for.
    pub fn set_kernel_build(&mut self, index: ImageIndex, build: Option<String>) {
        self.records[index.0 as usize].kernel_builds = build.into_iter().collect();
    }

    /// Adds a build of the kernel module that an image stands for; `None` if a sample's is not known.
    pub fn add_module_build(&mut self, index: ImageIndex, build: Option<String>) {
        let builds = &mut self.records[index.0 as usize].kernel_builds;
        let build = build.unwrap_or_default();
        if !builds.contains(&build) {
            builds.push(build);
            builds.sort();
        }
    }

    /// Adds symbols to an image. None of them may be known already.
    pub fn add_symbols(&mut self, index: ImageIndex, new: Vec<ImageSymbol>) {
        if new.is_empty() {
            return;
        }
        let symbols = &mut self.records[index.0 as usize].symbols;
        symbols.extend_from_slice(&new);
        symbols.sort();
        self.new_symbols.entry(index).or_default().extend(new);
    }

    /// Iterates over the images that got symbols since [`Images::take_record`].
    pub fn with_new_symbols(&self) -> impl Iterator<Item = ImageIndex> {
        self.new_symbols.keys().copied()
    }

    /// Returns an image's record with only those symbols that earlier calls did not return.
    pub fn take_record(&mut self, index: ImageIndex) -> ImageRecord {
        let mut symbols = self.new_symbols.remove(&index).unwrap_or_default();
        symbols.sort();
        let ImageRecord { id, kind, path, deleted, size_bytes, mtime_ns, kernel_builds, .. } =
            self.record(index);
        let (id, path, kernel_builds) = (id.clone(), path.clone(), kernel_builds.clone());
        ImageRecord {
            id,
            kind: *kind,
            path,
            deleted: *deleted,
            size_bytes: *size_bytes,
            mtime_ns: *mtime_ns,
            symbols,
            places: Default::default(),
            kernel_builds,
        }
    }

    /// Forgets all symbols because a new epoch begins.
    pub fn forget_symbols(&mut self) {
        self.records.iter_mut().for_each(|r| r.symbols.clear());
        self.new_symbols.clear();
    }

    /// Returns the number of images.
    pub fn count(&self) -> usize {
        self.records.len()
    }

    /// Returns the number of targets.
    pub fn targets(&self) -> usize {
        self.targets.len()
    }

    /// Forgets targets that are not in `used`, and images that have neither targets nor symbols. Images with symbols stay,
    /// because each symbol is returned once and we must remember which ones were. Returns the new index of each remaining
    /// target. Indices change, so call it only while there are no counts.
    pub fn sweep(&mut self, used: &FxHashSet<TargetIndex>) -> FxHashMap<TargetIndex, TargetIndex> {
        let old = std::mem::take(self);
        for record in old.records.iter().filter(|r| !r.symbols.is_empty()) {
            self.insert(record.clone());
        }
        for (from, symbols) in old.new_symbols {
            let to = self.insert(old.records[from.0 as usize].clone());
            self.new_symbols.insert(to, symbols);
        }
        let mut moved = FxHashMap::default();
        for (at, known) in old.targets.into_iter().enumerate() {
            let from = TargetIndex(at as u32);
            if used.contains(&from) {
                let to = TargetIndex(self.targets.len() as u32);
                let image = known.image.map(|i| self.insert(old.records[i.0 as usize].clone()));
                self.by_target.insert(known.target.clone(), to);
                let first = image.map(|image| self.first_of(image, &known.target, to));
                self.targets.push(KnownTarget { image, first, ..known });
                moved.insert(from, to);
            }
        }
        moved
    }
}
