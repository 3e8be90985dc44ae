//! Kernel modules: which module was at an address, and when.
//!
//! Enters: the text of /proc/modules, read repeatedly. Leaves: which module an address belonged to during an interval. Never
//! here: I/O, clocks, guesses.
//!
//! The kernel does not notify us when modules are loaded or unloaded, and the samples that the kernel aggregated may be
//! minutes old. So the list is read from time to time, and an unloaded module is remembered until no more samples from its
//! time can arrive. If two modules may have occupied an address one after the other, the address belongs to neither.

use std::collections::VecDeque;

use dwell_profile::VirtualAddress;

use crate::Interval;

/// Most unloaded modules that are remembered; the latest are kept.
const GONE_MAX: usize = 64;

/// The loaded modules, and those that were unloaded recently.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Modules {
    /// Modules that the last reading of the list contained.
    listed: Vec<Module>,
    gone: VecDeque<Module>,
    /// Start of the last reading (ns); 0 before the first.
    looked_ns: u64,
}

/// One stay of a module at an address, from loading to unloading.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Module {
    name: String,
    /// First address of its code.
    start: VirtualAddress,
    /// `start` plus the total size. Since Linux 6.4 code, data and initialization sections are placed separately, so code of
    /// other modules may begin before this address.
    end: VirtualAddress,
    /// Start of the last reading that did not contain the module yet (ns).
    since_ns: u64,
    /// End of the first reading that contained the module (ns).
    seen_ns: u64,
    /// End of the first reading that no longer contained the module (ns).
    until_ns: u64,
}

impl Modules {
    /// Adds a reading of /proc/modules: its text, and the interval in which it was read. Returns whether a module came or
    /// went.
    pub fn look(&mut self, text: &str, read: Interval) -> bool {
        let mut listed: Vec<Module> = text.lines().filter_map(Module::parse).collect();
        let count = listed.len();
        let mut known = 0;
        for module in &mut listed {
            let before = self.listed.iter().find(|m| m.is_at(module));
            known += usize::from(before.is_some());
            module.since_ns = before.map_or(self.looked_ns, |m| m.since_ns);
            module.seen_ns = before.map_or(read.until_ns, |m| m.seen_ns);
        }
        let is_gone = |m: &Module| !listed.iter().any(|l| l.is_at(m));
        let gone: Vec<Module> = self.listed.drain(..).filter(is_gone).collect();
        let changed = known < count || !gone.is_empty();
        self.gone.extend(gone.into_iter().map(|m| Module { until_ns: read.until_ns, ..m }));
        self.gone.drain(..self.gone.len().saturating_sub(GONE_MAX));
        (self.listed, self.looked_ns) = (listed, read.since_ns);
        changed
    }

    /// Adds a module that is always loaded, unless one begins at its address.
    pub fn add(&mut self, name: String, start: VirtualAddress, end: VirtualAddress) {
        if self.listed.iter().all(|known| known.start != start) {
            self.listed.push(Module { name, start, end, since_ns: 0, seen_ns: 0, until_ns: u64::MAX });
        }
    }

    /// Returns the name of the module that contained an address during an interval, and the offset in it. Returns `None` if
    /// several modules may have contained it at different times. O(modules).
    pub fn find(&self, address: VirtualAddress, interval: Interval) -> Option<(&str, u64)> {
        let may_be = |m: &&Module| m.has(address) && m.was_there(interval);
        let candidates: Vec<&Module> = self.listed.iter().chain(&self.gone).filter(may_be).collect();
        let found = candidates.iter().copied().max_by_key(|m| m.start)?;
        let is_certain = candidates.iter().all(|other| found.is_at(other) || found.is_beside(other));
        is_certain.then(|| (&*found.name, address.bytes_since(found.start)))
    }

    /// Returns whether a module of this name was unloaded, so that samples of the name may be of another build than the one that is loaded.
    pub fn was_unloaded(&self, name: &str) -> bool {
        self.gone.iter().any(|module| module.name == name)
    }

    /// Returns the first address of a loaded module.
    pub fn start(&self, name: &str) -> Option<VirtualAddress> {
        self.listed.iter().find(|m| m.name == name).map(|m| m.start)
    }

    /// Returns whether unloaded modules are still remembered.
    pub fn has_gone(&self) -> bool {
        !self.gone.is_empty()
    }

    /// Forgets modules that were unloaded by `until_ns`, because no earlier samples can arrive any more.
    pub fn forget(&mut self, until_ns: u64) {
        self.gone.retain(|m| m.until_ns > until_ns);
    }
}

impl Module {
    /// Parses a line of /proc/modules: `name size references dependents state 0xaddress …`
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let (name, size) = (words.next()?, words.next()?.parse::<u64>().ok()?);
        let start = VirtualAddress(u64::from_str_radix(words.nth(3)?.strip_prefix("0x")?, 16).ok()?);
        let end = start.saturating_offset(size);
        let (since_ns, seen_ns, until_ns) = (0, 0, u64::MAX);
        (start != VirtualAddress(0)).then(|| Module {
            name: name.to_owned(),
            start,
            end,
            since_ns,
            seen_ns,
            until_ns,
        })
    }

    fn has(&self, address: VirtualAddress) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// Returns whether the module may have been loaded at some time of the interval.
    fn was_there(&self, interval: Interval) -> bool {
        self.since_ns <= interval.until_ns && interval.since_ns < self.until_ns
    }

    /// Returns whether both are the same module at the same address, possibly loaded at different times.
    fn is_at(&self, other: &Module) -> bool {
        self.start == other.start && self.name == other.name
    }

    /// Returns whether both modules were loaded at the same time. Then their code is disjoint, even if the ranges overlap.
    fn is_beside(&self, other: &Module) -> bool {
        self.seen_ns.max(other.seen_ns) < self.until_ns.min(other.until_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "a 8192 1 - Live 0xffffffffc0000000\n";
    const B: &str = "b 4096 0 - Live 0xffffffffc0001000 (OE)\n";

    /// Reads the texts at the times 10, 20, …; each reading takes one unit of time.
    fn looks(texts: &[&str]) -> Modules {
        let mut modules = Modules::default();
        for (at, text) in (1..).zip(texts) {
            modules.look(text, Interval { since_ns: 10 * at, until_ns: 10 * at + 1 });
        }
        modules
    }

    fn tell(modules: &Modules, address: u64, since_ns: u64, until_ns: u64) -> Option<String> {
        let found = modules.find(VirtualAddress(address), Interval { since_ns, until_ns });
        found.map(|(name, offset)| format!("{name}+{offset:x}"))
    }

    const IN_BOTH: u64 = 0xffff_ffff_c000_1008;

    #[test]
    fn the_nearer_of_two_overlapping_modules_gets_the_sample() {
        for text in [format!("{A}{B}"), format!("{B}{A}")] {
            let modules = looks(&[&text]);
            assert_eq!(tell(&modules, IN_BOTH, 0, 5).as_deref(), Some("b+8"));
            assert_eq!(tell(&modules, IN_BOTH - 0x1000, 0, 5).as_deref(), Some("a+8"));
            assert_eq!(tell(&modules, IN_BOTH + 0x1000, 0, 5), None);
        }
    }

    #[test]
    fn an_unloaded_module_keeps_the_samples_of_its_time() {
        let mut modules = looks(&[A, "", B]);
        assert!(modules.has_gone() && modules.was_unloaded("a") && !modules.was_unloaded("b"));
        assert_eq!(tell(&modules, IN_BOTH, 12, 14).as_deref(), Some("a+1008"));
        assert_eq!(tell(&modules, IN_BOTH, 12, 22), None, "either's");
        assert_eq!(tell(&modules, IN_BOTH, 22, 31).as_deref(), Some("b+8"));
        modules.forget(20);
        assert_eq!(tell(&modules, IN_BOTH, 12, 14).as_deref(), Some("a+1008"), "it may have gone later");
        modules.forget(21);
        assert!(!modules.has_gone());
        assert_eq!(tell(&modules, IN_BOTH, 12, 14), None);
    }

    #[test]
    fn samples_between_two_lists_that_differ_are_unknown() {
        let modules = looks(&[A, B]);
        assert_eq!(tell(&modules, IN_BOTH, 8, 9).as_deref(), Some("a+1008"));
        assert_eq!(tell(&modules, IN_BOTH, 15, 16), None);
        assert_eq!(tell(&modules, IN_BOTH, 22, 23).as_deref(), Some("b+8"));
    }

    #[test]
    fn a_known_module_is_not_taken_for_a_new_one() {
        let mut modules = looks(&["", A]);
        let done = A.replace("8192", "4096");
        assert!(!modules.look(&done, Interval { since_ns: 30, until_ns: 31 }));
        assert_eq!(tell(&modules, IN_BOTH - 0x1000, 5, 9), None, "before it came");
        assert_eq!(tell(&modules, IN_BOTH - 0x1000, 15, 16).as_deref(), Some("a+8"));
        assert_eq!(tell(&modules, IN_BOTH, 35, 36), None, "its initialization is over");
        assert!(modules.look("", Interval { since_ns: 40, until_ns: 41 }));
        assert!(modules.look(A, Interval { since_ns: 50, until_ns: 51 }));
        assert_eq!(tell(&modules, IN_BOTH - 0x1000, 15, 56).as_deref(), Some("a+8"), "twice at one place");
    }

    #[test]
    fn memory_is_bounded() {
        let mut modules = Modules::default();
        for at in 1..200 {
            let text = format!("m{at} 10 0 - Live 0x{:x}\n", at * 16);
            modules.look(&text, Interval { since_ns: at, until_ns: at });
        }
        assert_eq!(modules.gone.len(), GONE_MAX);
    }
}
