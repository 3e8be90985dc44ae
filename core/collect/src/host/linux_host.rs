//! [`Host`] for this machine, by /proc and the file system.
//!
//! A file is opened once, at its first sample, through a path that leads to the inode that was mapped: in the process's own
//! root (containers), by its executable, or by `/proc/PID/map_files` (for deleted files; needs privilege). Files are never
//! mapped into our memory, because a file that is truncated meanwhile would kill the collector.

use std::{
    fs::{self, File},
    io::BufReader,
    mem,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use dwell_attribution::ImageFiles;
use dwell_attribution::{
    CodeId, FileVersion, Identity, Interval, KernelLayout, KernelPlace, MappedRange, Modules, OwnedTag,
    Target,
    program_headers::{self, CodeLayout, ProgramHeaders},
    read_kernel,
};
use dwell_image::UnwindRules;
use dwell_profile::{BuildId, ImageId, ImageKind, ImageRecord, ImageSymbol, Pid, Tid, VirtualAddress};
use rustc_hash::FxHashMap;
use rustix::{io::Errno, process::test_kill_process};

use crate::{
    host::{
        Host, ProcessSnapshot, Region,
        code_files::CodeFiles,
        code_names::{CodeName, NamesWindow},
        kernel_names::KernelNames,
        paths::path_from_here,
        procfs::{self, MapsLine},
    },
    sys::{clock::now_ns, clocks::real_time_ns},
};

/// Most files that are kept open for reading code. Beyond it the least recently read one is closed.
const OPEN_FILES_MAX: usize = 256;
/// Time after which an unread file is closed: an open file keeps its disk space in use and its mount busy.
const OPEN_FILE_AGE_MAX: Duration = Duration::from_secs(60);
/// How long the version of a file stays valid during a scan of many processes.
const SCAN_AGE_MAX: Duration = Duration::from_secs(1);
/// Most file versions that are remembered during a scan.
const SCANNED_MAX: usize = 1 << 12;
/// Shortest time between two counts of the kernel's modules.
const MODULES_GLANCE: Duration = Duration::from_secs(1);
/// Longest time between two readings of the list of modules. It is also read when their number changes; the number alone is
/// not enough, since one module may be loaded while another is unloaded. The kernel takes 0.1 ms to list them.
const MODULES_AGE_MAX: Duration = Duration::from_secs(10);
/// Shortest time until the kernel's layout is read again for an unknown address, which may be in a new module. It doubles up
/// to `LAYOUT_AGE_MAX` whenever reading did not help, as for code that existed for a moment only.
const LAYOUT_AGE_MIN: Duration = Duration::from_secs(10);
const LAYOUT_AGE_MAX: Duration = Duration::from_secs(1280);

/// Access to this machine.
pub struct LinuxHost {
    layout: KernelLayout,
    layout_read: Instant,
    /// Age at which the layout is read again for an address that it does not contain.
    layout_age_min: Duration,
    /// When the modules were last listed, when they were last counted, and their number then.
    modules_read: Instant,
    modules_counted: Instant,
    modules_count: u64,
    /// Build IDs of loaded modules by name, read since the modules were last listed.
    module_builds: FxHashMap<String, Option<String>>,
    /// Symbols of `layout`.
    symbols: Option<KernelNames>,
    vdso: Option<ImageId>,
    files: FxHashMap<ImageId, OpenFile>,
    scanned: FxHashMap<(u64, u64), (Instant, Option<FileVersion>)>,
    code_files: CodeFiles,
}

struct OpenFile {
    file: File,
    used: Instant,
}

impl LinuxHost {
    /// Reads the kernel's layout and symbols.
    pub fn new() -> Self {
        let (modules_count, mut modules) = (count_modules(), Modules::default());
        look_at(&mut modules);
        let (layout, symbols) = read_this_kernel(modules);
        LinuxHost {
            layout,
            layout_read: Instant::now(),
            layout_age_min: LAYOUT_AGE_MIN,
            modules_read: Instant::now(),
            modules_counted: Instant::now(),
            modules_count,
            module_builds: FxHashMap::default(),
            symbols: Some(symbols),
            vdso: None,
            files: FxHashMap::default(),
            scanned: FxHashMap::default(),
            code_files: CodeFiles::default(),
        }
    }

    /// Returns whether the kernel shows us its addresses.
    pub fn sees_kernel_addresses(&self) -> bool {
        self.layout.text.is_some()
    }

    /// Reads the list of modules again if it may have changed and was not checked just now.
    fn look_at_modules(&mut self) {
        if self.modules_counted.elapsed() < MODULES_GLANCE {
            return;
        }
        let count = count_modules();
        self.modules_counted = Instant::now();
        if count == self.modules_count && self.modules_read.elapsed() < MODULES_AGE_MAX {
            return;
        }
        self.modules_count = count;
        self.modules_read = Instant::now();
        self.module_builds.clear();
        if look_at(&mut self.layout.modules) {
            self.symbols = None; // They lack the symbols of new modules.
        }
    }

    fn read_kernel_again(&mut self) {
        let mut modules = mem::take(&mut self.layout.modules);
        look_at(&mut modules);
        self.modules_read = Instant::now();
        self.module_builds.clear();
        let (layout, symbols) = read_this_kernel(modules);
        self.layout_read = Instant::now();
        if layout.text.is_none() && self.layout.text.is_some() {
            // The addresses cannot be read, or are hidden by now; the old layout is still true.
            self.layout.modules = layout.modules;
            self.symbols.get_or_insert(symbols);
            return;
        }
        (self.layout, self.symbols) = (layout, Some(symbols));
    }

    fn keep_open(&mut self, id: &ImageId, file: File) {
        self.files.insert(id.clone(), OpenFile { file, used: Instant::now() });
        if self.files.len() > OPEN_FILES_MAX {
            let oldest = self.files.iter().min_by_key(|(_, open)| open.used).map(|(id, _)| id.clone());
            oldest.and_then(|id| self.files.remove(&id));
        }
    }
}

impl ImageFiles for LinuxHost {
    fn identify(&mut self, target: &Target, place: MappedRange) -> Identity {
        let Target::File { path, deleted, tag } = target else {
            return Identity::without_file(ImageId::unknown());
        };
        let Some(found) = open_mapped(path, *deleted, tag, place) else {
            return Identity::without_file(id_without_file(path, tag));
        };
        let id = found.image_id(tag);
        // This is the path as the process sees it, perhaps in a root of its own.
        let is_there = fs::metadata(path).is_ok_and(|m| (m.dev(), m.ino()) == (found.device, found.inode));
        let path = if is_there { None } else { path_from_here(&found.file, place.pid) };
        let elsewhere = *deleted || found.elsewhere;
        let (size_bytes, mtime_ns) = (Some(found.size_bytes), Some(found.mtime_ns));
        self.keep_open(&id, found.file);
        let deleted = elsewhere && path.is_none();
        Identity { id, path, deleted, size_bytes, mtime_ns, code: found.code }
    }

    fn vdso_id(&mut self) -> ImageId {
        self.vdso.get_or_insert_with(read_vdso_id).clone()
    }
}

impl Host for LinuxHost {
    fn process(&mut self, pid: Pid) -> Option<ProcessSnapshot> {
        let stat = String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/stat")).ok()?).into_owned();
        let stat = procfs::parse_stat(&stat)?;
        let executable = Executable::open(pid);
        let inode = executable.as_ref().and_then(|e| e.inode);
        let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
        let mappings = procfs::parse_maps(&maps, inode);
        let is_program = |mapping: &MapsLine| executable.as_ref().is_some_and(|e| e.is(&mapping.3));
        let program = mappings.iter().position(is_program);
        let name = executable.map_or_else(|| stat.comm.to_owned(), |e| e.name);
        Some(ProcessSnapshot { name, kernel_thread: stat.kernel_thread, program, mappings })
    }

    fn thread_name(&mut self, pid: Pid, tid: Tid) -> Option<String> {
        let comm = fs::read(format!("/proc/{pid}/task/{tid}/comm")).ok()?;
        Some(String::from_utf8_lossy(&comm).trim_end_matches('\n').to_owned())
    }

    fn cgroup(&mut self, pid: Pid) -> Option<String> {
        let text = fs::read(format!("/proc/{pid}/cgroup")).ok()?;
        procfs::parse_cgroup(&String::from_utf8_lossy(&text)).map(str::to_owned)
    }

    fn memory(&mut self, pid: Pid) -> Vec<Region> {
        procfs::parse_regions(&fs::read(format!("/proc/{pid}/maps")).unwrap_or_default())
    }

    fn kernel_build(&mut self) -> Option<String> {
        let notes = fs::read("/sys/kernel/notes").ok()?;
        program_headers::find_in_notes(&notes).map(|id| id.to_string())
    }

    fn module_build(&mut self, name: &str) -> Option<String> {
        if self.layout.modules.was_unloaded(name) {
            return None;
        }
        if let Some(known) = self.module_builds.get(name) {
            return known.clone();
        }
        let notes = fs::read(format!("/sys/module/{name}/notes/.note.gnu.build-id"));
        let build = notes.ok().and_then(|notes| program_headers::find_in_notes(&notes));
        let build = build.map(|id| id.to_string());
        self.module_builds.insert(name.to_owned(), build.clone());
        build
    }

    fn is_alive(&self, pid: Pid) -> bool {
        let pid = i32::try_from(pid.0).ok().and_then(rustix::process::Pid::from_raw);
        pid.is_some_and(|pid| !matches!(test_kill_process(pid), Err(Errno::SRCH)))
    }

    fn version(
        &mut self,
        target: &Target,
        place: MappedRange,
        mapped_ns: Option<u64>,
    ) -> Option<FileVersion> {
        let Target::File { path, deleted, tag: OwnedTag::Inode { device, inode, .. } } = target else {
            return None;
        };
        if mapped_ns.is_none()
            && let Some((looked, version)) = self.scanned.get(&(*device, *inode))
            && looked.elapsed() < SCAN_AGE_MAX
        {
            return *version;
        }
        let seen = look_at_version(path, *deleted, *inode, place);
        if mapped_ns.is_none() {
            if self.scanned.len() >= SCANNED_MAX {
                self.scanned.clear();
            }
            self.scanned.insert((*device, *inode), (Instant::now(), seen));
            return seen;
        }
        // The kernel stamps files with the time of its last tick, which is never later than the write.
        seen.filter(|version| version.mtime_ns <= mapped_ns.map_or(i64::MAX, real_time_ns))
    }

    fn has_in_memory(
        &mut self,
        pid: Pid,
        address: VirtualAddress,
        image: &ImageId,
        file_offset: u64,
    ) -> Option<bool> {
        const BYTES: usize = 64;
        let back = address.0 % BYTES as u64;
        let (mut memory, mut file) = ([0; BYTES], [0; BYTES]);
        let length = self.code(image, file_offset.checked_sub(back)?, &mut file);
        let process = File::open(format!("/proc/{pid}/mem")).ok()?;
        process.read_exact_at(&mut memory, address.back(back).0).ok()?;
        Some(length == BYTES && memory == file)
    }

    fn note_code(&mut self, code: CodeId, pid: Pid, parent: Option<CodeId>, since_ns: Option<u64>) {
        self.code_files.note(code, pid, parent, since_ns);
    }

    fn note_jitdump(&mut self, code: CodeId, pid: Pid, path: &Path) {
        self.code_files.note_jitdump(code, &by_name(path, pid));
    }

    fn code_names_bytes(&mut self, code: CodeId) -> u64 {
        self.code_files.bytes(code)
    }

    fn code_names(
        &mut self,
        code: CodeId,
        addresses: &[VirtualAddress],
        window: NamesWindow,
    ) -> (Vec<CodeName>, u64) {
        self.code_files.names(code, addresses, window)
    }

    fn forget_code(&mut self, is_needed: &dyn Fn(CodeId) -> bool) {
        self.code_files.retain(is_needed);
    }

    fn handed_out(&mut self) {
        self.symbols.take_if(|names| matches!(names, KernelNames::InMemory(_)));
        self.files.retain(|_, open| open.used.elapsed() < OPEN_FILE_AGE_MAX);
        self.scanned.clear();
    }

    fn code(&mut self, image: &ImageId, offset: u64, bytes: &mut [u8]) -> usize {
        let Some(open) = self.files.get_mut(image) else { return 0 };
        open.used = Instant::now();
        // We decode 64-bit code only, and 32-bit code would be decoded as other instructions.
        if program_headers::is_32_bit(&open.file) {
            return 0;
        }
        open.file.read_at(bytes, offset).unwrap_or(0)
    }

    fn unwind_rules(&mut self, image: &ImageRecord) -> Option<UnwindRules> {
        if image.kind == ImageKind::Vdso {
            return UnwindRules::parse(read_vdso()?).ok();
        }
        let open = self.files.get(&image.id).and_then(|open| open.file.try_clone().ok());
        let again = || {
            Found::open(&image.path)
                .filter(|found| found.build_id.as_ref().map(ImageId::of_build) == Some(image.id.clone()))
        };
        let file = open.or_else(|| again().map(|found| found.file))?;
        UnwindRules::read(file).ok()
    }

    fn kernel_place(&mut self, address: VirtualAddress, interval: Interval) -> Option<KernelPlace> {
        if !self.sees_kernel_addresses() {
            return Some(KernelPlace { module: None, offset: address.as_offset() }); // All of the kernel is one image.
        }
        if !self.layout.is_own_text(address) {
            self.look_at_modules();
        }
        let place = self.layout.place(address, interval);
        if place.is_some() || self.layout_read.elapsed() < self.layout_age_min {
            return place;
        }
        self.read_kernel_again();
        let found = self.layout.place(address, interval);
        let in_vain = (self.layout_age_min * 2).min(LAYOUT_AGE_MAX);
        self.layout_age_min = if found.is_some() { LAYOUT_AGE_MIN } else { in_vain };
        found
    }

    fn has_gone_modules(&mut self) -> bool {
        self.look_at_modules();
        self.layout.modules.has_gone()
    }

    fn forget_modules(&mut self, until_ns: u64) {
        self.layout.modules.forget(until_ns);
    }

    fn kernel_symbols(&mut self, image: &ImageId, offsets: &[u64]) -> Vec<ImageSymbol> {
        if self.symbols.is_none() && !offsets.is_empty() {
            self.read_kernel_again();
        }
        let module = image.as_str().strip_prefix("module:");
        let Some(symbols) = &self.symbols else { return Vec::new() };
        let Some(base) = self.layout.base(module).filter(|_| self.sees_kernel_addresses()) else {
            return Vec::new();
        };
        let mut found: Vec<ImageSymbol> = Vec::new();
        for offset in offsets {
            // Offsets are sorted and many are in one function, so each function is searched once.
            let is_in = |s: &ImageSymbol| offset.wrapping_sub(s.offset.0) < s.size_bytes;
            if !found.last().is_some_and(is_in) {
                found.extend(symbols.find(base.offset(*offset), base));
            }
        }
        found
    }

    fn file(&self, image: &ImageId) -> Option<File> {
        self.files.get(image)?.file.try_clone().ok()
    }
}

/// An open file and its identity.
struct Found {
    file: File,
    device: u64,
    inode: u64,
    size_bytes: u64,
    mtime_ns: i64,
    build_id: Option<BuildId>,
    code: CodeLayout,
    /// Whether the path, as mapped, leads to another file by now.
    elsewhere: bool,
}

impl Found {
    fn open(path: &Path) -> Option<Self> {
        let kind = fs::metadata(path).ok()?.file_type();
        if !kind.is_file() {
            return None; // Opening a device or a pipe may have side effects.
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
            mtime_ns: mtime_ns(&metadata),
            elsewhere: false,
            file,
        })
    }

    /// Returns whether it is the mapped file. The device is ignored, because some file systems report another one in `stat`.
    fn is(&self, tag: &OwnedTag) -> bool {
        match tag {
            OwnedTag::BuildId(id) => self.build_id.as_ref() == Some(id),
            OwnedTag::Inode { inode, version, .. } => {
                let now = FileVersion { size_bytes: self.size_bytes, mtime_ns: self.mtime_ns };
                self.inode == *inode && *version == Some(now)
            }
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

/// Returns the image ID of a mapped file that can no longer be opened.
fn id_without_file(path: &Path, tag: &OwnedTag) -> ImageId {
    match tag {
        OwnedTag::BuildId(id) => ImageId::of_build(id),
        OwnedTag::Inode { device: 0, inode: 0, .. } => ImageId::named(&format!("file:{}", path.display())),
        OwnedTag::Inode { device, inode, version } => {
            let FileVersion { size_bytes, mtime_ns } =
                version.unwrap_or(FileVersion { size_bytes: 0, mtime_ns: 0 });
            ImageId::named(&format!("file:{device}:{inode}:{size_bytes}:{mtime_ns}"))
        }
    }
}

/// Returns our path for a path that a process sees in its own root.
fn in_root(pid: Pid, path: &Path) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/root{}", path.display()))
}

/// Returns paths by which a mapped file may be found: in the process's root, which may be a container's, and in ours.
fn by_name(path: &Path, pid: Pid) -> [PathBuf; 2] {
    [in_root(pid, path), path.to_owned()]
}

/// Returns paths to a mapped file that has no name any more.
fn by_mapping(place: MappedRange) -> [PathBuf; 2] {
    let MappedRange { pid, start, end } = place;
    [format!("/proc/{pid}/map_files/{start}-{end}"), format!("/proc/{pid}/exe")].map(PathBuf::from)
}

/// Opens exactly the mapped file, by name or by mapping.
fn open_mapped(path: &Path, deleted: bool, tag: &OwnedTag, place: MappedRange) -> Option<Found> {
    let open = |path: &PathBuf| Found::open(path).filter(|found| found.is(tag));
    let named = if deleted { None } else { by_name(path, place.pid).iter().find_map(open) };
    named.or_else(|| by_mapping(place).iter().find_map(open).map(|found| Found { elsewhere: true, ..found }))
}

/// Returns size and modification time of the mapped inode, found by name or by mapping.
fn look_at_version(path: &Path, deleted: bool, inode: u64, place: MappedRange) -> Option<FileVersion> {
    let look = |path: &PathBuf| {
        let metadata = fs::metadata(path).ok().filter(|m| m.ino() == inode)?;
        Some(FileVersion { size_bytes: metadata.size(), mtime_ns: mtime_ns(&metadata) })
    };
    let named = if deleted { None } else { by_name(path, place.pid).iter().find_map(look) };
    named.or_else(|| by_mapping(place).iter().find_map(look))
}

/// Returns the modification time of a file in ns since 1970.
pub fn mtime_ns(metadata: &fs::Metadata) -> i64 {
    metadata.mtime().saturating_mul(1_000_000_000).saturating_add(metadata.mtime_nsec())
}

/// The executable to which /proc/PID/exe leads.
struct Executable {
    name: String,
    path: PathBuf,
    inode: Option<u64>,
}

impl Executable {
    fn open(pid: Pid) -> Option<Self> {
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

    /// Returns whether a mapping is of this executable. One path may have led to several files, and one inode may have
    /// several names, so both are compared.
    fn is(&self, target: &Target) -> bool {
        let Target::File { path, tag, .. } = target else { return false };
        match (tag, self.inode) {
            (OwnedTag::Inode { inode, .. }, Some(own)) => *path == self.path && *inode == own,
            _ => *path == self.path,
        }
    }
}

/// Returns a number that changes with the number of modules. Built-in modules count too, but their number is fixed. Each
/// module is a folder in /sys/module, and each subfolder adds a link to its parent.
fn count_modules() -> u64 {
    fs::metadata("/sys/module").map_or(0, |m| m.nlink())
}

/// Reads the list of modules. Returns whether any came or went.
fn look_at(modules: &mut Modules) -> bool {
    let since_ns = now_ns();
    let Ok(text) = fs::read_to_string("/proc/modules") else { return false };
    modules.look(&text, Interval { since_ns, until_ns: now_ns() })
}

fn read_this_kernel(modules: Modules) -> (KernelLayout, KernelNames) {
    let (layout, symbols) = match File::open("/proc/kallsyms") {
        Ok(kallsyms) => read_kernel(BufReader::with_capacity(1 << 16, kallsyms), modules),
        Err(_) => read_kernel(std::io::empty(), modules),
    };
    (layout, KernelNames::new(symbols))
}

fn read_vdso_id() -> ImageId {
    let build_id = read_vdso().and_then(|bytes| dwell_image::Image::parse(bytes).ok()?.build_id().cloned());
    ImageId::named(&build_id.map_or("vdso".to_owned(), |id| format!("vdso:{id}")))
}

/// Reads our own vdso. Its code is the same in every process of our word size.
fn read_vdso() -> Option<Vec<u8>> {
    let maps = fs::read("/proc/self/maps").ok()?;
    let (start, end, ..) = procfs::parse_maps(&maps, None).into_iter().find(|(.., t)| *t == Target::Vdso)?;
    let mut bytes = vec![0; usize::try_from(end.checked_bytes_since(start)?).ok()?];
    File::open("/proc/self/mem").ok()?.read_exact_at(&mut bytes, start.0).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_a_kernel_that_hides_its_addresses_is_one_image() {
        let mut host = LinuxHost::new();
        host.layout = KernelLayout::default();
        let address = VirtualAddress(0xffff_ffff_8100_0104);
        let now = Interval { since_ns: 1, until_ns: 1 };
        let place = host.kernel_place(address, now);
        assert_eq!(place, Some(KernelPlace { module: None, offset: address.as_offset() }));
        assert!(!host.sees_kernel_addresses());
    }
}
