//! [`Host`] over this machine's /proc and file system.
//!
//! Files are opened once, when their first sample is seen, through the path that leads to the very inode that was
//! mapped: the process's own root (containers), its executable, or `/proc/PID/map_files` (deleted files; needs
//! privilege). Nothing is mapped into memory: a truncated file must not kill the collector.

use std::{
    collections::VecDeque,
    fs::{self, File},
    io::BufReader,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use dwell_profile::{BuildId, ImageId, ImageSymbol};
use rustc_hash::FxHashMap;

use crate::{
    host::{Host, KernelPlace, Place, ProcessSnapshot},
    images::{Identity, OwnedTag, Target},
    kernel::{KernelLayout, KernelSymbols, read_kernel},
    procfs,
    program_headers::{self, CodeLayout, ProgramHeaders},
};

/// Files kept open for reading code; the oldest closes first.
const OPEN_FILES_MAX: usize = 256;
/// A kernel address that nothing explains may be a new module's; but do not look more often than that.
const LAYOUT_AGE_MIN: Duration = Duration::from_secs(10);
/// A perf map larger than that is not read.
const PERF_MAP_BYTES_MAX: u64 = 256 << 20;

/// This machine.
pub struct LinuxHost {
    layout: KernelLayout,
    layout_read: Instant,
    /// 5 MB, so there only while names are asked for; but then for all images.
    symbols: Option<KernelSymbols>,
    vdso: Option<ImageId>,
    files: FxHashMap<ImageId, File>,
    opened: VecDeque<ImageId>,
}

impl LinuxHost {
    /// Reads where the kernel lies.
    pub fn new() -> Self {
        let (layout, _) = read_this_kernel();
        LinuxHost {
            layout,
            layout_read: Instant::now(),
            symbols: None,
            vdso: None,
            files: FxHashMap::default(),
            opened: VecDeque::new(),
        }
    }

    fn read_kernel(&mut self) {
        let (layout, symbols) = read_this_kernel();
        (self.layout, self.symbols, self.layout_read) = (layout, Some(symbols), Instant::now());
    }

    /// Whether the kernel shows us its addresses.
    pub fn sees_kernel_addresses(&self) -> bool {
        self.layout.text != 0
    }

    fn keep_open(&mut self, id: &ImageId, file: File) {
        if self.files.insert(id.clone(), file).is_none() {
            self.opened.push_back(id.clone());
        }
        while self.opened.len() > OPEN_FILES_MAX {
            self.opened.pop_front().and_then(|oldest| self.files.remove(&oldest));
        }
    }
}

impl Host for LinuxHost {
    fn process(&mut self, pid: u32) -> Option<ProcessSnapshot> {
        let stat = String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/stat")).ok()?).into_owned();
        let stat = procfs::parse_stat(&stat)?;
        let mappings =
            fs::read(format!("/proc/{pid}/maps")).map_or_else(|_| Vec::new(), |m| procfs::parse_maps(&m));
        let executable = Executable::of(pid);
        let is_program =
            |mapping: &(u64, u64, u64, Target)| executable.as_ref().is_some_and(|e| e.is(&mapping.3));
        let program = mappings.iter().position(is_program);
        let name = executable.map_or_else(|| stat.comm.to_owned(), |e| e.name);
        Some(ProcessSnapshot { name, kernel_thread: stat.kernel_thread, program, mappings })
    }

    fn is_alive(&self, pid: u32) -> bool {
        Path::new(&format!("/proc/{pid}")).exists()
    }

    fn identify(&mut self, target: &Target, place: Place) -> Identity {
        let Target::File { path, deleted, tag } = target else {
            return Identity::without_file(ImageId::unknown());
        };
        let Some(found) = open_mapped(path, *deleted, tag, place) else {
            return Identity::without_file(id_without_file(path, tag));
        };
        let id = found.image_id(tag);
        let (size_bytes, mtime_ns) = (Some(found.size_bytes), Some(found.mtime_ns));
        self.keep_open(&id, found.file);
        Identity { id, deleted: *deleted || found.elsewhere, size_bytes, mtime_ns, code: found.code }
    }

    fn vdso_id(&mut self) -> ImageId {
        self.vdso.get_or_insert_with(read_vdso_id).clone()
    }

    fn code(&mut self, image: &ImageId, offset: u64, bytes: &mut [u8]) -> usize {
        self.files.get(image).and_then(|f| f.read_at(bytes, offset).ok()).unwrap_or(0)
    }

    fn kernel_place(&mut self, address: u64) -> Option<KernelPlace> {
        let place = self.layout.place(address);
        if place.is_some() || self.layout_read.elapsed() < LAYOUT_AGE_MIN {
            return place;
        }
        self.read_kernel();
        self.layout.place(address)
    }

    fn kernel_symbols(&mut self, image: &ImageId, offsets: &[u64]) -> Vec<ImageSymbol> {
        if self.symbols.is_none() && !offsets.is_empty() {
            self.read_kernel();
        }
        let module = image.as_str().strip_prefix("module:");
        let Some(symbols) = &self.symbols else { return Vec::new() };
        let Some(base) = self.layout.base(module).filter(|_| self.sees_kernel_addresses()) else {
            return Vec::new();
        };
        offsets.iter().filter_map(|offset| symbols.find(base.wrapping_add(*offset), base)).collect()
    }

    fn file(&self, image: &ImageId) -> Option<File> {
        self.files.get(image)?.try_clone().ok()
    }

    fn handed_out(&mut self) {
        self.symbols = None;
    }

    fn jit_symbols(&mut self, pid: u32, addresses: &[u64]) -> Vec<ImageSymbol> {
        read_perf_map(pid).map_or_else(Vec::new, |map| procfs::find_in_perf_map(&map, addresses))
    }
}

/// An open file and what it is.
struct Found {
    file: File,
    device: u64,
    inode: u64,
    size_bytes: u64,
    mtime_ns: i64,
    build_id: Option<BuildId>,
    code: CodeLayout,
    /// The path as mapped leads to another file by now.
    elsewhere: bool,
}

impl Found {
    fn open(path: &Path) -> Option<Self> {
        let kind = fs::metadata(path).ok()?.file_type();
        if !kind.is_file() {
            return None; // Opening a device or a pipe may do things.
        }
        let file = File::open(path).ok()?;
        let metadata = file.metadata().ok()?;
        let headers = program_headers::read(|offset, bytes| file.read_at(bytes, offset).unwrap_or(0));
        let ProgramHeaders { build_id, code } = headers.unwrap_or_default();
        Some(Found {
            build_id,
            code,
            device: metadata.dev(),
            inode: metadata.ino(),
            size_bytes: metadata.size(),
            mtime_ns: metadata.mtime().saturating_mul(1_000_000_000).saturating_add(metadata.mtime_nsec()),
            elsewhere: false,
            file,
        })
    }

    /// Whether it is what was mapped. Devices are compared loosely: some file systems tell another in `stat`.
    fn is(&self, tag: &OwnedTag) -> bool {
        match tag {
            OwnedTag::BuildId(id) => self.build_id.as_ref() == Some(id),
            OwnedTag::Inode { inode, .. } => self.inode == *inode,
        }
    }

    fn image_id(&self, tag: &OwnedTag) -> ImageId {
        match (tag, &self.build_id) {
            (OwnedTag::BuildId(id), _) | (OwnedTag::Inode { .. }, Some(id)) => ImageId::of_build(id),
            _ => ImageId::named(&format!(
                "file:{}:{}:{}:{}",
                self.device, self.inode, self.size_bytes, self.mtime_ns
            )),
        }
    }
}

/// The id of a mapped file that cannot be looked at any more.
fn id_without_file(path: &Path, tag: &OwnedTag) -> ImageId {
    match tag {
        OwnedTag::BuildId(id) => ImageId::of_build(id),
        OwnedTag::Inode { device: 0, inode: 0 } => ImageId::named(&format!("file:{}", path.display())),
        OwnedTag::Inode { device, inode } => ImageId::named(&format!("file:{device}:{inode}:0:0")),
    }
}

/// Opens the mapped file itself, by whatever leads to it.
fn open_mapped(path: &Path, deleted: bool, tag: &OwnedTag, place: Place) -> Option<Found> {
    let Place { pid, start, end } = place;
    let by_path = || {
        let in_its_root = PathBuf::from(format!("/proc/{pid}/root{}", path.display()));
        [in_its_root, path.to_owned()]
    };
    let named =
        if deleted { None } else { by_path().iter().find_map(|p| Found::open(p).filter(|f| f.is(tag))) };
    named.or_else(|| {
        let hidden = [format!("/proc/{pid}/map_files/{start:x}-{end:x}"), format!("/proc/{pid}/exe")];
        let found = hidden.iter().find_map(|p| Found::open(Path::new(p)).filter(|f| f.is(tag)))?;
        Some(Found { elsewhere: true, ..found })
    })
}

/// What /proc/PID/exe leads to.
struct Executable {
    name: String,
    path: PathBuf,
    inode: Option<u64>,
}

impl Executable {
    fn of(pid: u32) -> Option<Self> {
        use std::os::unix::ffi::OsStringExt;
        let link = format!("/proc/{pid}/exe");
        let mut path = fs::read_link(&link).ok()?.into_os_string().into_vec();
        if path.ends_with(b" (deleted)") {
            path.truncate(path.len() - b" (deleted)".len());
        }
        let path = PathBuf::from(std::ffi::OsString::from_vec(path));
        let name = path.file_name()?.to_string_lossy().into_owned();
        let inode = fs::metadata(&link).ok().map(|m| m.ino());
        Some(Executable { name, path, inode })
    }

    /// Whether a mapping is of it. The same path may have led to other files, the same inode have other names.
    fn is(&self, target: &Target) -> bool {
        let Target::File { path, tag, .. } = target else { return false };
        match (tag, self.inode) {
            (OwnedTag::Inode { inode, .. }, Some(own)) => *path == self.path && *inode == own,
            _ => *path == self.path,
        }
    }
}

/// Every process there is now.
pub fn all_pids() -> Vec<u32> {
    numbers_in(Path::new("/proc"))
}

/// Whether the process is gone, or waits for its parent to read its status.
pub fn has_ended(pid: u32) -> bool {
    let Ok(stat) = fs::read(format!("/proc/{pid}/stat")) else { return true };
    procfs::parse_stat(&String::from_utf8_lossy(&stat)).is_none_or(|s| s.ended)
}

/// The threads of a process.
pub fn threads_of(pid: u32) -> Vec<u32> {
    numbers_in(Path::new(&format!("/proc/{pid}/task")))
}

/// The process and all its descendants.
pub fn tree_of(pid: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> = all_pids().into_iter().filter_map(|p| Some((p, parent_of(p)?))).collect();
    let mut tree = vec![pid];
    let mut at = 0;
    while let Some(parent) = tree.get(at).copied() {
        let children =
            parents.iter().filter(|(child, p)| *p == parent && !tree.contains(child)).map(|(c, _)| *c);
        let children: Vec<u32> = children.collect();
        tree.extend(children);
        at += 1;
    }
    tree
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    procfs::parse_stat(&String::from_utf8_lossy(&stat)).map(|s| s.parent_pid)
}

fn numbers_in(folder: &Path) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|e| e.file_name().to_str()?.parse().ok()).collect()
}

fn read_this_kernel() -> (KernelLayout, KernelSymbols) {
    let modules = fs::read_to_string("/proc/modules").unwrap_or_default();
    match File::open("/proc/kallsyms") {
        Ok(kallsyms) => read_kernel(BufReader::with_capacity(1 << 16, kallsyms), &modules),
        Err(_) => read_kernel(std::io::empty(), &modules),
    }
}

fn read_vdso_id() -> ImageId {
    let build_id = read_vdso().and_then(|bytes| dwell_image::Image::parse(bytes).ok()?.build_id().cloned());
    ImageId::named(&build_id.map_or("vdso".to_owned(), |id| format!("vdso:{id}")))
}

/// Our own vdso: the same code in every process of our word size.
fn read_vdso() -> Option<Vec<u8>> {
    let maps = fs::read("/proc/self/maps").ok()?;
    let (start, end, ..) = procfs::parse_maps(&maps).into_iter().find(|(.., t)| *t == Target::Vdso)?;
    let mut bytes = vec![0; usize::try_from(end.checked_sub(start)?).ok()?];
    File::open("/proc/self/mem").ok()?.read_exact_at(&mut bytes, start).ok()?;
    Some(bytes)
}

/// `/tmp/perf-PID.map` in the process's own root and by its own number, as runtimes write it.
fn read_perf_map(pid: u32) -> Option<Vec<u8>> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let inner = procfs::parse_inner_pid(&status).unwrap_or(pid);
    let paths = [format!("/proc/{pid}/root/tmp/perf-{inner}.map"), format!("/tmp/perf-{pid}.map")];
    let usable = |p: &&String| fs::metadata(p).is_ok_and(|m| m.is_file() && m.len() <= PERF_MAP_BYTES_MAX);
    fs::read(paths.iter().find(usable)?).ok()
}
