//! Names of generated code, from the perf maps that programs write for perf.
//!
//! Enters: which addresses of which process were sampled, and when. Leaves: the names of those addresses. Never here:
//! more memory than the sampled addresses need, whatever a map contains. As perf does, we trust a map only if its file
//! belongs to us or to root. Its times must also fit the profile's, because an earlier process with the same number may
//! have left it.

use std::{
    collections::BTreeSet,
    fs::{File, Metadata},
    io::{BufRead, BufReader, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use dwell_profile::Pid;

use super::{
    ImportFile,
    imported::{ImportedProfile, Target},
    jit_layout::JitTargets,
    names::{FunctionText, Names},
    slot::UsedPlaces,
};

/// Where maps are searched, and when the profile was taken.
pub struct PerfMaps<'a> {
    request: &'a ImportFile,
    /// Times of the first and the last sample, if they are known.
    taken: (Option<SystemTime>, Option<SystemTime>),
}

/// How far the times of files may be behind.
const SLACK: Duration = Duration::from_secs(2);
/// Limit of a line in bytes. A longer line is not part of a perf map.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// Limit of the names that are given to addresses. An address may get several names one after the other, because maps
/// grow and code is generated anew at the same address.
const NAMED_MAX: u64 = 1 << 24;

impl<'a> PerfMaps<'a> {
    /// Returns the maps for a profile that was written at this time and took this long.
    pub fn new(request: &'a ImportFile, written: Option<SystemTime>, took: Option<Duration>) -> Self {
        let first = written.zip(took).and_then(|(written, took)| written.checked_sub(took));
        PerfMaps { request, taken: (first, written) }
    }

    /// Returns the map of a process: beside the profile, or where programs write maps. `is_born` says that the process
    /// began while it was sampled.
    pub fn find(&self, pid: Pid, is_born: bool) -> Option<PathBuf> {
        let name = format!("perf-{pid}.map");
        let beside = self.request.path.parent().map(|folder| folder.join(&name));
        if let Some(beside) =
            beside.filter(|path| self.request.path.as_os_str() != "-" && is_ours(path).is_some())
        {
            return Some(beside);
        }
        let root = self.request.symfs.as_ref().map(|root| root.join("tmp").join(&name));
        let there = root.into_iter().chain([Path::new("/tmp").join(&name)]);
        there.into_iter().find(|path| is_ours(path).is_some_and(|meta| self.is_of_then(&meta, is_born)))
    }

    /// Returns whether a map was begun before the profile was written and, if its process began within the profile, was
    /// not left by an earlier process.
    fn is_of_then(&self, meta: &Metadata, is_born: bool) -> bool {
        let (first, written) = self.taken;
        let later = |time: std::io::Result<SystemTime>, than: Option<SystemTime>| {
            time.ok().zip(than).is_some_and(|(time, than)| time > than + SLACK)
        };
        let earlier = |time: std::io::Result<SystemTime>, than: Option<SystemTime>| {
            time.ok().zip(than).is_some_and(|(time, than)| time + SLACK < than)
        };
        let is_left_behind = is_born && earlier(meta.modified(), first);
        !is_left_behind && !later(meta.created(), written)
    }
}

/// Returns the metadata of a file that belongs to us or to root.
fn is_ours(path: &Path) -> Option<Metadata> {
    let meta = std::fs::symlink_metadata(path).ok().filter(Metadata::is_file)?;
    let own = std::fs::metadata("/proc/self").ok()?.uid();
    (meta.uid() == 0 || meta.uid() == own).then_some(meta)
}

impl ImportedProfile {
    /// Names the sampled generated code by the maps of its processes, unless the profile itself names it. Returns the
    /// targets of such code.
    pub(super) fn name_jit_code(
        &mut self,
        maps: &PerfMaps<'_>,
        used: &UsedPlaces<'_>,
        missing: &mut Vec<String>,
    ) -> JitTargets {
        let mut targets: JitTargets = used.targets().collect();
        targets.retain(|target| matches!(self.targets[*target as usize], Target::Jit { .. }));
        let mut nameless = BTreeSet::new();
        for &target in &targets {
            let Target::Jit { process, owner } = self.targets[target as usize] else { continue };
            if self.names.has(target) {
                continue;
            }
            // Code that was generated before a fork is in the parent's map.
            let found = [process, owner].into_iter().find_map(|pid| maps.find(pid, self.spaces.is_born(pid)));
            match found.map(|map| (name(&mut self.names, target, &used.offsets(target), &map), map)) {
                Some((Ok(()), _)) => {}
                Some((Err(e), map)) => missing.push(format!("{}: {e}", map.display())),
                None => {
                    nameless.insert(process);
                }
            }
        }
        if let Some(first) = nameless.first() {
            missing.push(format!(
                "generated code of {} processes has no names: no map (perf-{first}.map) is beside the profile or in /tmp",
                nameless.len()
            ));
        }
        targets
    }
}

/// Names the sampled addresses (ascending) of a target by a map. Later entries of the map replace earlier ones.
pub fn name(names: &mut Names, target: u32, addresses: &[u64], map: &Path) -> std::io::Result<()> {
    let mut found: Vec<Option<(u64, Box<str>)>> = vec![None; addresses.len()];
    let (mut map, mut line, mut left) = (BufReader::new(File::open(map)?), Vec::new(), NAMED_MAX);
    while Read::take(&mut map, LINE_BYTES_MAX).read_until(b'\n', &mut line)? > 0 && left > 0 {
        if let Some((start, size, name)) = entry(&String::from_utf8_lossy(&line)) {
            let from = addresses.partition_point(|address| *address < start);
            let within = addresses[from..].partition_point(|address| *address - start < size.max(1));
            let to = from + within;
            left = left.saturating_sub((to - from) as u64);
            found[from..to].iter_mut().for_each(|place| *place = Some((start, name.into())));
        }
        line.clear();
    }
    for (address, found) in addresses.iter().zip(found) {
        let Some((start, function)) = found else { continue };
        let frame = names.frame(FunctionText { function: &function, ..FunctionText::default() });
        names.add(target, *address, Some(start), vec![frame]);
    }
    Ok(())
}

/// Parses `START SIZE name`, with hexadecimal numbers; the name may contain spaces.
fn entry(line: &str) -> Option<(u64, u64, &str)> {
    let (start, rest) = line.trim().split_once(' ')?;
    let (size, name) = rest.trim_start().split_once(' ')?;
    let number = |text: &str| u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok();
    let name = name.trim();
    (!name.is_empty()).then_some((number(start)?, number(size)?, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_entry_of_a_map_wins() {
        let folder = tempfile::tempdir().unwrap();
        let map = folder.path().join("perf-1.map");
        std::fs::write(
            &map,
            "1000 100 old one\nbad\n1080 10 new\nffffffffffffff00 ffffffffffffffff top\n\n2000 0 tiny\n",
        )
        .unwrap();
        let mut names = Names::default();
        let addresses = [0xfff, 0x1000, 0x1084, 0x10a0, 0x1100, 0x2000, u64::MAX];
        name(&mut names, 0, &addresses, &map).unwrap();
        let places = names.of(0);
        let all: Vec<_> = places.all.iter().map(|p| (p.offset.0, &*p.frames[0].function)).collect();
        assert_eq!(
            all,
            [(0x1000, "old one"), (0x1084, "new"), (0x10a0, "old one"), (0x2000, "tiny"), (u64::MAX, "top")]
        );
    }
}
