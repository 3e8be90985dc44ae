//! Finds the path, from our own root, of a file that a process in another root or mount namespace has mapped.
//!
//! Enters: the open file, and a process that sees it. Leaves: a path that leads to exactly this file, checked by device and
//! inode. Never here: guesses; a path that cannot be checked is not returned.

use std::{
    ffi::OsString,
    fs::{self, File},
    os::{
        fd::AsRawFd,
        unix::{ffi::OsStringExt, fs::MetadataExt},
    },
    path::{Path, PathBuf},
};

use dwell_profile::Pid;

/// Returns our path of a file that `pid` has mapped, or `None` if no path leads to it from here.
pub fn path_from_here(file: &File, pid: Pid) -> Option<PathBuf> {
    let wanted = file.metadata().ok()?;
    let leads_there = |path: &PathBuf| {
        path.is_absolute()
            && fs::metadata(path).is_ok_and(|m| (m.dev(), m.ino()) == (wanted.dev(), wanted.ino()))
    };
    let fd = file.as_raw_fd();
    // The kernel returns the path from our root, or from the root of the file's own mount namespace.
    let path = fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
    if leads_there(&path) {
        return Some(path);
    }
    let fdinfo = fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?;
    let id: u64 = fdinfo.lines().find_map(|l| l.strip_prefix("mnt_id:"))?.trim().parse().ok()?;
    let (theirs, ours) =
        (fs::read(format!("/proc/{pid}/mountinfo")).ok()?, fs::read("/proc/self/mountinfo").ok()?);
    paths_of(&path, id, &theirs, &ours).into_iter().find(leads_there)
}

/// A mount as listed in /proc/PID/mountinfo.
struct Mount {
    id: u64,
    device: Vec<u8>,
    /// The folder of the file system that is mounted; `point` is where.
    root: PathBuf,
    point: PathBuf,
}

/// Returns paths in our namespace that may lead to the file at `path` in the mount `id` of another namespace.
fn paths_of(path: &Path, id: u64, theirs: &[u8], ours: &[u8]) -> Vec<PathBuf> {
    let Some(mount) = mounts(theirs).find(|mount| mount.id == id) else { return Vec::new() };
    let Ok(below) = path.strip_prefix(&mount.point) else { return Vec::new() };
    let in_file_system = mount.root.join(below);
    let here = mounts(ours).filter(|m| m.device == mount.device);
    here.filter_map(|m| Some(m.point.join(in_file_system.strip_prefix(&m.root).ok()?))).collect()
}

/// Parses lines of the form `ID PARENT MAJOR:MINOR ROOT POINT …`
fn mounts(text: &[u8]) -> impl Iterator<Item = Mount> + '_ {
    text.split(|b| *b == b'\n').filter_map(|line| {
        let mut words = line.split(|b| *b == b' ');
        let id = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
        let device = words.nth(1)?.to_vec();
        Some(Mount { id, device, root: unescaped(words.next()?), point: unescaped(words.next()?) })
    })
}

/// Decodes octal escapes: spaces, tabs, newlines and backslashes are written as octal numbers after a backslash.
fn unescaped(word: &[u8]) -> PathBuf {
    let (mut plain, mut rest) = (Vec::new(), word);
    while let Some((first, tail)) = rest.split_first() {
        let code = tail.get(..3).filter(|_| *first == b'\\').and_then(|digits| {
            digits.iter().try_fold(0_u8, |sum, d| {
                sum.checked_mul(8)?.checked_add(d.checked_sub(b'0').filter(|d| *d < 8)?)
            })
        });
        plain.push(code.unwrap_or(*first));
        rest = if code.is_some() { &tail[3..] } else { tail };
    }
    PathBuf::from(OsString::from_vec(plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_mounted_twice_are_found_by_their_file_system() {
        let theirs = b"21 1 8:1 /containers/a\\040b / rw - ext4 /dev/sda1 rw\n\
            22 21 0:40 / /usr rw - overlay overlay rw\nbroken\n";
        let ours = b"30 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
            31 30 8:1 /containers /srv rw - ext4 /dev/sda1 rw\n\
            32 30 0:40 / /var/lib/c/1/merged rw - overlay overlay rw\n";
        let results = |path: &str, id| paths_of(Path::new(path), id, theirs, ours);
        assert_eq!(
            results("/bin/app", 21),
            [PathBuf::from("/containers/a b/bin/app"), "/srv/a b/bin/app".into()]
        );
        assert_eq!(results("/usr/bin/app", 22), [PathBuf::from("/var/lib/c/1/merged/bin/app")]);
        assert!(results("/usr/bin/app", 23).is_empty());
    }

    #[test]
    fn only_valid_escapes_are_decoded() {
        let results = |word: &[u8]| unescaped(word).into_os_string().into_vec();
        assert_eq!(results(br"/a\040b\134\011"), b"/a b\\\t");
        assert_eq!(results(br"/a\04"), br"/a\04");
        assert_eq!(results(br"/\999\777"), br"/\999\777");
    }

    #[test]
    fn our_own_files_have_their_own_paths() {
        let path = std::env::current_exe().unwrap().canonicalize().unwrap();
        let file = File::open(&path).unwrap();
        assert_eq!(path_from_here(&file, Pid(std::process::id())), Some(path));
        let nameless = tempfile::tempfile().unwrap();
        assert_eq!(path_from_here(&nameless, Pid(std::process::id())), None);
    }
}
