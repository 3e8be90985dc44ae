//! What mappings refer to, and the images that these are.
//!
//! Enters: mapped files as the kernel names them (path with build ID or inode). Leaves: an [`ImageRecord`] for each
//! image that has samples. A *target* is what a mapping names; several (a path by build ID from an event, the same by
//! inode from /proc) can be one image. Files are looked at with a target's first sample, once. Never here: I/O, which
//! [`Host`] does.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use dwell_profile::{BuildId, ImageId, ImageKind, ImageRecord, ImageSymbol, name_to_text};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::{MappedRange, TargetIndex, program_headers::CodeLayout};

/// An image, by its index here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ImageIndex(pub u32);

/// By what the kernel names a mapped file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileTag<'a> {
    /// Its build ID.
    BuildId(&'a [u8]),
    /// Its device and inode.
    Inode {
        /// Major number.
        major: u32,
        /// Minor number.
        minor: u32,
        /// Inode number.
        inode: u64,
    },
}

/// Looks at files that were mapped.
pub trait ImageFiles {
    /// Looks at a file that is mapped in that range.
    fn identify(&mut self, target: &Target, range: MappedRange) -> Identity;

    /// Returns the id of the vdso.
    fn vdso_id(&mut self) -> ImageId;
}

/// What a mapping names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// A file.
    File {
        /// Its path as the process sees it, without ` (deleted)`.
        path: PathBuf,
        /// Whether it was marked so.
        deleted: bool,
        /// By what it can be told apart.
        tag: OwnedTag,
    },
    /// The vdso.
    Vdso,
    /// A file in memory that an event named: a program, if a process executes it, else anonymous memory. No mapping that is known
    /// is of it.
    InMemory(Box<Target>),
    /// Anonymous memory, also by way of a nameless file.
    Anonymous,
}

/// [`FileTag`], owned.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum OwnedTag {
    /// Its build ID.
    BuildId(BuildId),
    /// Device (as `st_dev` numbers it) and inode.
    Inode {
        /// Device.
        device: u64,
        /// Inode.
        inode: u64,
        /// What it was when it was mapped, where that could be seen: an inode may be written anew.
        version: Option<FileVersion>,
    },
}

/// By what contents of one inode are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileVersion {
    /// Size in bytes.
    pub size_bytes: u64,
    /// Modification time in ns since 1970.
    pub mtime_ns: i64,
}

impl Target {
    /// The target that the kernel names so, in a record or in /proc/PID/maps.
    pub fn named(name: &[u8], tag: FileTag<'_>) -> Target {
        use std::os::unix::ffi::OsStrExt;
        if name.starts_with(b"[vdso") {
            return Target::Vdso;
        }
        let (path, deleted) = name.strip_suffix(b" (deleted)").map_or((name, false), |path| (path, true));
        let nameless: [&[u8]; 5] = [b"/memfd:", b"/dev/zero", b"/anon_hugepage", b"/SYSV", b"//anon"];
        let owned = OwnedTag::of(tag);
        let has_build_id = matches!(owned, OwnedTag::BuildId(_));
        let anonymous = !path.starts_with(b"/") || nameless.iter().any(|n| path.starts_with(n));
        if anonymous && !has_build_id {
            let in_memory = || Target::InMemory(Box::new(Target::program_named(name, tag)));
            return if path.starts_with(b"/memfd:") { in_memory() } else { Target::Anonymous };
        }
        Target::File { path: PathBuf::from(std::ffi::OsStr::from_bytes(path)), deleted, tag: owned }
    }

    /// The same of a program's own file, which may have no name: container runtimes execute themselves from a sealed
    /// memfd.
    pub fn program_named(name: &[u8], tag: FileTag<'_>) -> Target {
        use std::os::unix::ffi::OsStrExt;
        let path = name.strip_suffix(b" (deleted)").unwrap_or(name);
        let deleted = path.len() < name.len();
        Target::File {
            path: PathBuf::from(std::ffi::OsStr::from_bytes(path)),
            deleted,
            tag: OwnedTag::of(tag),
        }
    }

    /// What it is as a mapping of a process, which executes it or not.
    pub fn mapped_as(self, is_program: bool) -> Target {
        match self {
            Target::InMemory(program) if is_program => *program,
            Target::InMemory(_) => Target::Anonymous,
            other => other,
        }
    }

    /// Whether nothing but its inode tells which file it is.
    pub fn needs_version(&self) -> bool {
        matches!(self, Target::File { tag: OwnedTag::Inode { version: None, .. }, .. })
    }

    /// Says which contents the inode had.
    pub fn set_version(&mut self, seen: Option<FileVersion>) {
        if let Target::File { tag: OwnedTag::Inode { version, .. }, .. } = self {
            *version = seen;
        }
    }

    /// The name of the program, where it is one that a process executes.
    pub fn program(&self) -> Option<String> {
        match self {
            Target::File { path, .. } => Some(name_to_text(path.file_name()?).into_owned()),
            _ => None,
        }
    }
}

impl OwnedTag {
    fn of(tag: FileTag<'_>) -> Self {
        let none = OwnedTag::Inode { device: 0, inode: 0, version: None };
        match tag {
            FileTag::BuildId(bytes) => BuildId::new(bytes).map_or(none, OwnedTag::BuildId),
            FileTag::Inode { major, minor, inode } => {
                OwnedTag::Inode { device: rustix::fs::makedev(major, minor), inode, version: None }
            }
        }
    }
}

/// What a look at a target's file told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The image it is.
    pub id: ImageId,
    /// A path that leads to it from here, where that is another than its process's.
    pub path: Option<PathBuf>,
    /// Whether the path leads to another file, or to none.
    pub deleted: bool,
    /// The file's size.
    pub size_bytes: Option<u64>,
    /// Its modification time.
    pub mtime_ns: Option<i64>,
    /// Where its code lies.
    pub code: CodeLayout,
}

impl Identity {
    /// Of a file that cannot be looked at, or not any more.
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

/// All targets and images met.
#[derive(Debug, Default)]
pub struct Images {
    targets: Vec<KnownTarget>,
    by_target: FxHashMap<Arc<Target>, TargetIndex>,
    first_of: FxHashMap<(ImageIndex, String), TargetIndex>,
    records: Vec<ImageRecord>,
    by_id: FxHashMap<ImageId, ImageIndex>,
    jit: FxHashMap<Arc<str>, ImageIndex>,
    /// Symbols that nobody took yet.
    new_symbols: FxHashMap<ImageIndex, Vec<ImageSymbol>>,
}

/// A target, and what a look at it told.
#[derive(Clone, Debug)]
struct KnownTarget {
    target: Arc<Target>,
    image: Option<ImageIndex>,
    /// With its image: see [`Images::canonical`].
    first: Option<TargetIndex>,
    code: CodeLayout,
}

impl Images {
    /// The index of a target.
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

    /// The image that a target is, looked at now if it has not been before; `None` for anonymous memory, whose image is
    /// the application's ([`Images::jit`]).
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

    /// The image that a target was found to be.
    pub fn image_of(&self, target: TargetIndex) -> Option<ImageIndex> {
        self.targets[target.0 as usize].image
    }

    /// The path that a file was mapped from.
    pub fn path_of(&self, target: TargetIndex) -> Option<&Path> {
        match &*self.targets[target.0 as usize].target {
            Target::File { path, .. } => Some(path),
            _ => None,
        }
    }

    /// Whether a target is a file.
    pub fn is_file(&self, target: TargetIndex) -> bool {
        matches!(*self.targets[target.0 as usize].target, Target::File { .. })
    }

    /// Where a target's code lies, once it was looked at.
    pub fn code_of(&self, target: TargetIndex) -> &CodeLayout {
        &self.targets[target.0 as usize].code
    }

    /// The name of the program that a target is.
    pub fn program_of(&self, target: TargetIndex) -> Option<String> {
        self.targets[target.0 as usize].target.program()
    }

    /// The image of an application's anonymous code.
    pub fn jit(&mut self, app: &Arc<str>) -> ImageIndex {
        if let Some(index) = self.jit.get(app) {
            return *index;
        }
        let index = self.named(ImageId::named(&format!("jit:{app}")), ImageKind::Jit, "//anon");
        self.jit.insert(app.clone(), index);
        index
    }

    /// An image that is no file, by id and a name for its path.
    pub fn named(&mut self, id: ImageId, kind: ImageKind, path: &str) -> ImageIndex {
        if let Some(index) = self.by_id.get(&id) {
            return *index;
        }
        self.insert(ImageRecord::new(id, kind, path))
    }

    /// The target that stands for all that are known to be the same program: by build ID from an event, by inode from
    /// /proc. A copy under another name is another program, though the same image.
    pub fn canonical(&self, target: TargetIndex) -> TargetIndex {
        self.targets[target.0 as usize].first.unwrap_or(target)
    }

    /// The first target of this image and name; `index`, if there was none.
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

    /// What is known of an image.
    pub fn record(&self, index: ImageIndex) -> &ImageRecord {
        &self.records[index.0 as usize]
    }

    /// Says which kernel an image is.
    pub fn set_kernel_build(&mut self, index: ImageIndex, build: Option<String>) {
        self.records[index.0 as usize].kernel_builds = build.into_iter().collect();
    }

    /// Adds symbols, none of which is known.
    pub fn add_symbols(&mut self, index: ImageIndex, new: Vec<ImageSymbol>) {
        if new.is_empty() {
            return;
        }
        let symbols = &mut self.records[index.0 as usize].symbols;
        symbols.extend_from_slice(&new);
        symbols.sort();
        self.new_symbols.entry(index).or_default().extend(new);
    }

    /// Images that got symbols since these were last taken.
    pub fn with_new_symbols(&self) -> impl Iterator<Item = ImageIndex> {
        self.new_symbols.keys().copied()
    }

    /// An image's record with those symbols alone that were not taken before.
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

    /// Forgets all symbols: a new epoch begins.
    pub fn forget_symbols(&mut self) {
        self.records.iter_mut().for_each(|r| r.symbols.clear());
        self.new_symbols.clear();
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.records.len()
    }

    /// How many targets.
    pub fn targets(&self) -> usize {
        self.targets.len()
    }

    /// Forgets targets that no mapping refers to and images that none of those is and that have no symbols (each of
    /// which is handed out once, and so must be known to have been); indices
    /// change, so call it only while nothing is counted. `remap` is told the new index of each target that stays.
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
