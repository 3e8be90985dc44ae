//! The files in which processes name the code they generate. They are found while the process lives, and read until they are
//! forgotten.
//!
//! Enters: address spaces that may generate code. Leaves: names of addresses. A process may have a root, a mount namespace
//! and a pid namespace of its own, which end with it; so descriptors that lead to its files are opened early and kept open.
//! Never here: a file that an earlier process with the same pid left behind; more open files than a limit; a whole file in
//! memory.

use std::{
    fs::{self, File},
    io::{BufReader, Seek},
    os::{
        fd::OwnedFd,
        unix::fs::{FileExt, MetadataExt},
    },
    path::Path,
};

use dwell_attribution::CodeId;
use dwell_profile::{Pid, VirtualAddress};
use rustc_hash::FxHashMap;
use rustix::fs::{CWD, Mode, OFlags, openat};

use crate::{
    host::{
        code_names::{CodeName, Finder, NamesWindow, find_in_perf_map},
        jitdump::find_in_jitdump,
        live_processes::has_ended,
        procfs,
    },
    sys::clocks::real_time_ns,
};

/// Most address spaces whose files are kept open. Beyond it the one noted first is closed.
const OPEN_MAX: usize = 1 << 7;
/// Largest jitdump in bytes that is read.
const JITDUMP_BYTES_MAX: u64 = 1 << 30;
/// Largest perf map in bytes that is read.
const PERF_MAP_BYTES_MAX: u64 = 256 << 20;
/// Tolerance in ns when the start of a process is compared with the time of a file; both clocks are that coarse.
const SLACK_NS: i64 = 100_000_000;

/// Files with names of generated code, by the code.
#[derive(Default)]
pub struct CodeFiles {
    by_code: FxHashMap<CodeId, Files>,
}

/// The files that may name the code of an address space.
struct Files {
    pid: Pid,
    /// Pid in the process's own pid namespace; `None` if the process had ended before we looked.
    inner_pid: Option<Pid>,
    /// Start of the process in ns since 1970. Older files belong to an earlier process.
    since_ns: Option<i64>,
    /// The process's `/tmp`, if it is not ours.
    tmp: Option<OwnedFd>,
    map: Option<File>,
    dump: Option<File>,
}

impl CodeFiles {
    /// Finds the files that will name the code of a process. `parent` is the code that it inherited, if known.
    pub fn note(&mut self, code: CodeId, pid: Pid, parent: Option<CodeId>, since_ns: Option<u64>) {
        let since_ns = began_ns(pid).or_else(|| since_ns.map(real_time_ns));
        let files = match fs::read_to_string(format!("/proc/{pid}/status")) {
            Ok(status) => {
                let inner_pid = Some(procfs::parse_inner_pid(&status).unwrap_or(pid));
                Files { pid, inner_pid, since_ns, tmp: own_tmp(pid), map: None, dump: None }
            }
            Err(_) => self.of_ended_child(pid, parent, since_ns),
        };
        self.by_code.insert(code, files);
        if self.by_code.len() > OPEN_MAX {
            let oldest = self.by_code.keys().min().copied();
            oldest.and_then(|oldest| self.by_code.remove(&oldest));
        }
    }

    /// Returns the files of a child that ended before we looked. It had the root of its parent. Its pid in the parent's pid
    /// namespace is known only if that namespace is ours.
    fn of_ended_child(&self, pid: Pid, parent: Option<CodeId>, since_ns: Option<i64>) -> Files {
        let parent = parent.and_then(|parent| self.by_code.get(&parent));
        let is_in_ours = parent.is_none_or(|parent| parent.inner_pid == Some(parent.pid));
        let tmp = parent.and_then(|parent| parent.tmp.as_ref()?.try_clone().ok());
        Files { pid, inner_pid: is_in_ours.then_some(pid), since_ns, tmp, map: None, dump: None }
    }

    /// Notes that a process mapped a jitdump; `paths` may lead to it.
    pub fn note_jitdump(&mut self, code: CodeId, paths: &[impl AsRef<Path>]) {
        let Some(files) = self.by_code.get_mut(&code) else { return };
        if let Some(dump) = paths.iter().find_map(|path| open_regular(None, path.as_ref())) {
            files.dump = Some(dump);
        }
    }

    /// Returns the length in bytes of the text that names this code.
    pub fn bytes(&mut self, code: CodeId) -> u64 {
        let text = self.by_code.get_mut(&code).and_then(Files::text);
        text.and_then(|(file, _)| file.metadata().ok()).map_or(0, |m| m.len())
    }

    /// Returns the names of addresses, and how many bytes of text were read.
    pub fn names(
        &mut self,
        code: CodeId,
        addresses: &[VirtualAddress],
        window: NamesWindow,
    ) -> (Vec<CodeName>, u64) {
        let mut finder = Finder::new(addresses, window);
        let end = self.by_code.get_mut(&code).and_then(|files| files.find(&mut finder)).unwrap_or(0);
        (finder.finish(), end)
    }

    /// Closes the files of code that is not needed.
    pub fn retain(&mut self, is_needed: &dyn Fn(CodeId) -> bool) {
        self.by_code.retain(|code, _| is_needed(*code));
    }
}

impl Files {
    fn find(&mut self, finder: &mut Finder<'_>) -> Option<u64> {
        let has_ended = has_ended(self.pid);
        let (mut file, is_jitdump) = self.text()?;
        let bytes_max = if is_jitdump { JITDUMP_BYTES_MAX } else { PERF_MAP_BYTES_MAX };
        file.metadata().ok().filter(|m| m.len() <= bytes_max)?;
        file.rewind().ok()?;
        let text = BufReader::with_capacity(1 << 16, file);
        Some(if is_jitdump {
            find_in_jitdump(text, finder)
        } else {
            find_in_perf_map(text, finder, has_ended)
        })
    }

    /// Returns the jitdump, or else the perf map, and whether it is the jitdump.
    fn text(&mut self) -> Option<(&File, bool)> {
        if let Some(dump) = &self.dump {
            return Some((dump, true));
        }
        // Compilers may replace the file by a new one.
        if self.map.as_ref().is_none_or(|map| map.metadata().is_ok_and(|m| m.nlink() == 0))
            && let Some(map) = self.open_map()
        {
            self.map = Some(map);
        }
        Some((self.map.as_ref()?, false))
    }

    /// Opens `/tmp/perf-PID.map` in the process's own root, with the pid in its own namespace, as runtimes write it. If
    /// there is none, tries the pid in our namespace, as a tool outside of the container may have written it.
    fn open_map(&self) -> Option<File> {
        let name = |pid: Pid| format!("perf-{pid}.map");
        let in_tmp = |name: String| open_regular(None, &Path::new("/tmp").join(name));
        let own = self.inner_pid.map(name).and_then(|inner| match &self.tmp {
            Some(tmp) => open_regular(Some(tmp), Path::new(&inner)),
            None => in_tmp(inner),
        });
        [own, in_tmp(name(self.pid))].into_iter().flatten().find(|map| self.is_own(map))
    }

    /// Returns whether the file was written after the process began. An older one is of an earlier process with its pid.
    fn is_own(&self, map: &File) -> bool {
        let Some(since_ns) = self.since_ns else { return true };
        map.metadata().is_ok_and(|m| {
            let written_ns = m.mtime().saturating_mul(1_000_000_000).saturating_add(m.mtime_nsec());
            written_ns.saturating_add(SLACK_NS) >= since_ns
        })
    }
}

/// Opens the `/tmp` of a process if it differs from ours. It stays open, because no path leads there after the process
/// ended.
fn own_tmp(pid: Pid) -> Option<OwnedFd> {
    let path = format!("/proc/{pid}/root/tmp");
    let place = |path: &str| fs::metadata(path).ok().map(|m| (m.dev(), m.ino()));
    let theirs = place(&path)?;
    if place("/tmp") == Some(theirs) {
        return None;
    }
    openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// Opens a file if it is a regular file, since opening other files may have side effects. In a folder of another root it
/// follows no link, because links would be resolved in our root.
fn open_regular(folder: Option<&OwnedFd>, path: &Path) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let opened = match folder {
        Some(folder) => openat(folder, path, flags | OFlags::NOFOLLOW, Mode::empty()),
        None => openat(CWD, path, flags, Mode::empty()),
    };
    let file = File::from(opened.ok()?);
    file.metadata().ok().filter(|m| m.is_file())?;
    file.read_at(&mut [0], 0).ok()?; // Some files can be opened but not read.
    Some(file)
}

/// Returns when a process began, in ns since 1970.
fn began_ns(pid: Pid) -> Option<i64> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let ticks = procfs::parse_stat(&String::from_utf8_lossy(&stat))?.began_ticks?;
    let boot_ns = i64::try_from(ticks).ok()?.checked_mul(1_000_000_000)?
        / i64::try_from(rustix::param::clock_ticks_per_second()).ok()?.max(1);
    let now = |id| {
        let time = rustix::time::clock_gettime(id);
        time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)
    };
    let age_ns = now(rustix::time::ClockId::Boottime).saturating_sub(boot_ns);
    Some(now(rustix::time::ClockId::Realtime).saturating_sub(age_ns))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn named(files: &mut CodeFiles, code: CodeId) -> CodeName {
        files.names(code, &[VirtualAddress(0x1004)], NamesWindow::default()).0.remove(0)
    }

    #[test]
    fn a_map_that_an_earlier_process_left_names_nothing() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let path = format!("/tmp/perf-{}.map", child.id());
        fs::write(&path, "1000 40 stale\n").unwrap();
        let yesterday = std::time::SystemTime::now() - std::time::Duration::from_secs(86_400);
        File::options().write(true).open(&path).unwrap().set_modified(yesterday).unwrap();
        let mut files = CodeFiles::default();
        files.note(CodeId(1), Pid(child.id()), None, None);
        let before = named(&mut files, CodeId(1));
        fs::write(&path, "1000 40 own\n").unwrap();
        let after = named(&mut files, CodeId(1));
        fs::remove_file(&path).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(before, CodeName::Unknown);
        assert!(matches!(&after, CodeName::Named(s) if s.name == "own"), "{after:?}");
        assert_eq!(named(&mut files, CodeId(1)), after, "it is gone, and stays readable");
    }

    #[test]
    fn files_beyond_the_bound_are_closed() {
        let mut files = CodeFiles::default();
        (0..OPEN_MAX as u32 + 9)
            .for_each(|code| files.note(CodeId(code), Pid(std::process::id()), None, None));
        assert_eq!(files.by_code.len(), OPEN_MAX);
        files.retain(&|code| code == CodeId(20));
        assert_eq!(files.by_code.len(), 1);
    }
}
