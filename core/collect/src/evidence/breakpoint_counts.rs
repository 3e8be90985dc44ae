//! Breakpoint counts: which places to watch and when, so that it costs no more than the budget.
//!
//! Enters: samples of the target, its CPU time so far, and a thread that ran just now. Leaves: the counts of windows, as
//! items among the records. Never here: the meaning of addresses, perf ([`crate::sys::breakpoint`]).
//!
//! A window begins at a random moment of a thread's running time, like a path burst, and lasts some milliseconds. During it
//! hardware breakpoints count the executions of up to four places. These are drawn at random from the blocks with the most
//! samples, so that over time each block is compared with many others. They are drawn as pairs of neighbours, which run
//! together. The thread is not stopped, but each execution costs it microseconds. So the cost is mostly proportional to the
//! counts, and is bounded by the length of the window. The delays between windows are drawn such that the cost stays within
//! the budget.

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    os::unix::fs::FileExt,
    thread::sleep,
    time::{Duration, Instant},
};

use dwell_attribution::program_headers::is_32_bit;
use dwell_image::{Arch, Flow, ImageAddress};
use dwell_profile::{BreakpointRecord, Pid, Tid, VirtualAddress};
use rustc_hash::FxHashMap;

use crate::{
    evidence::bursts::count,
    random::Random,
    source::owned_record::RawBreakpointCounts,
    sys::{
        breakpoint::{self, Breakpoints, PLACES_MAX},
        clock::now_ns,
        guard::{Guard, Protection, Refusal},
    },
};

/// Length of a window if the thread runs. If all places are hot it counts some 300 to 1,000 executions.
const WINDOW: Duration = Duration::from_millis(3);
/// Running time in ns that a thread must reach in a window that began while it waited for a processor.
const RUNNING_NS_MIN: u64 = 1_000_000;
/// The longest time to wait until the thread has run for [`RUNNING_NS_MIN`].
const WAIT: Duration = Duration::from_millis(30);
/// Approximate cost in ns of setting breakpoints: the thread is interrupted to load its debug registers.
const SETTING_NS: f64 = 20_000.0;
/// Assumed cost of a window in ns, before the first was measured.
const COST_NS_FIRST: f64 = 1.5e6;
/// Longest time that the windows of one call take, including delays. Samples wait in their rings meanwhile.
const BATCH: Duration = Duration::from_millis(40);
/// CPU time in ns after which another thread is tried if one was refused because it was gone or waited.
const RETRY_CPU_NS: f64 = 5e6;
/// Number of successive refusals after which we give up.
const REFUSALS_MAX: u32 = 100;
/// Number of samples of a process before its first window.
const SAMPLES_MIN: u32 = 40;
/// Most blocks of a process that are watched.
const BLOCKS_MAX: usize = 32;
/// Number of program counters, those with the most samples, whose blocks are found.
const PCS_MAX: usize = 256;
/// Most processes that are remembered.
const PROCESSES_MAX: usize = 64;
/// Most program counters that are remembered for each process.
const PCS_KEPT_MAX: usize = 1 << 16;
/// Largest distance in bytes between neighbouring blocks.
const NEAR_BYTES: u64 = 512;
/// Number of bytes of code in which the end of a block is searched.
const CODE_BYTES: usize = 96;
/// The architecture of the code that is decoded.
const ARCH: Arch = if cfg!(target_arch = "aarch64") { Arch::Aarch64 } else { Arch::X86_64 };

/// Counts executions in windows of threads' time, one window at a time.
pub struct BreakpointCounter {
    /// Allowed share of the target's CPU time.
    budget: f64,
    /// Cost of one counted execution in ns.
    execution_ns: f64,
    /// Average cost of a window in ns.
    cost_ns: f64,
    next_cpu_ns: f64,
    refusals: u32,
    /// Sampled blocks by process.
    blocks: FxHashMap<Pid, Blocks>,
    protection: Protection,
    record: BreakpointRecord,
    random: Random,
}

impl BreakpointCounter {
    /// Measures the cost of a breakpoint. If there are none, the record contains the reason, and nothing is counted.
    pub fn start(budget_percent: f64, protection: Protection) -> Self {
        let mut record = BreakpointRecord { budget_percent, ..BreakpointRecord::default() };
        let execution_ns = match breakpoint::cost_ns() {
            Ok(cost_ns) => cost_ns,
            Err(error) => {
                count(&mut record.refused, &cause(&error));
                f64::INFINITY
            }
        };
        record.execution_ns = if execution_ns.is_finite() { execution_ns } else { 0.0 };
        BreakpointCounter {
            budget: budget_percent / 100.0,
            execution_ns,
            cost_ns: COST_NS_FIRST,
            next_cpu_ns: 0.0,
            refusals: 0,
            blocks: FxHashMap::default(),
            protection,
            record,
            random: Random::new(now_ns()),
        }
    }

    /// Returns what was done so far.
    pub fn record(&self) -> &BreakpointRecord {
        &self.record
    }

    /// Returns whether windows can still be counted, so that samples are useful here.
    pub fn is_on(&self) -> bool {
        self.execution_ns.is_finite() && self.refusals < REFUSALS_MAX
    }

    /// Notes a sample in user mode.
    pub fn sample(&mut self, pid: Pid, pc: VirtualAddress) {
        if self.blocks.len() >= PROCESSES_MAX && !self.blocks.contains_key(&pid) {
            self.blocks.clear(); // Most of them have ended.
        }
        self.blocks.entry(pid).or_default().add(pc);
    }

    /// Counts windows of a thread if it is time, and returns them with the times when they began. `cpu_ns` is the target's
    /// CPU time so far. Takes some 40 ms at most, or a few times [`WAIT`] if processors are scarce.
    pub fn count(&mut self, pid: Pid, tid: Tid, cpu_ns: f64) -> Vec<(u64, RawBreakpointCounts)> {
        let is_due = cpu_ns >= self.next_cpu_ns && self.record.cost_ns as f64 <= self.budget * cpu_ns;
        if !self.is_on() || !is_due {
            return Vec::new();
        }
        let Some(blocks) = self.blocks.get_mut(&pid) else { return Vec::new() };
        let hottest = blocks.hottest(pid).to_vec();
        if hottest.len() < 2 {
            return Vec::new();
        }
        let guard = match self.protection.guard(pid, &[tid], false) {
            Ok(guard) => guard,
            Err(Refusal::Busy) => return Vec::new(), // It is tried again when the bursts in progress are over.
            Err(refusal) => {
                self.next_cpu_ns = cpu_ns + RETRY_CPU_NS;
                self.refusals += 1;
                count(&mut self.record.refused, &refusal.to_string());
                return Vec::new();
            }
        };
        let gap_ns = self.cost_ns / self.budget;
        let number = (BATCH.as_nanos() as f64 / gap_ns).clamp(1.0, 16.0) as usize;
        let mut windows = Vec::new();
        let start = Instant::now();
        for at in 0..number {
            if start.elapsed() > BATCH {
                break;
            }
            if at > 0 {
                sleep(Duration::from_nanos(self.random.delay(gap_ns).min(BATCH.as_nanos() as f64) as u64));
            }
            match self.one(&guard, pid, tid, &hottest) {
                Some(window) => windows.push(window),
                None => break,
            }
        }
        guard.release_later();
        let wait_ns =
            if windows.is_empty() { RETRY_CPU_NS } else { self.random.delay(self.cost_ns / self.budget) };
        self.next_cpu_ns = cpu_ns + wait_ns;
        self.record.cpu_ns = cpu_ns as u64;
        windows
    }

    fn one(
        &mut self,
        guard: &Guard,
        pid: Pid,
        tid: Tid,
        hottest: &[(VirtualAddress, f64)],
    ) -> Option<(u64, RawBreakpointCounts)> {
        let places = self.draw_places(hottest);
        let begin_ns = now_ns();
        let counted = Breakpoints::set(guard, tid, &places).and_then(|set| {
            set.start()?;
            let start = Instant::now();
            sleep(WINDOW);
            while start.elapsed() < WAIT && set.so_far()?.running_ns < RUNNING_NS_MIN {
                sleep(WINDOW);
            }
            Ok((set.len(), set.stop()?))
        });
        let refused = match &counted {
            Err(error) => Some(cause(error)),
            Ok((_, counts)) if counts.running_ns == 0 => Some("not running".to_owned()),
            Ok(_) => None,
        };
        let (Ok((len, counts)), None) = (counted, &refused) else {
            self.refusals += 1;
            refused.iter().for_each(|cause| count(&mut self.record.refused, cause));
            return None;
        };
        self.refusals = 0;
        let executions: u64 = counts.executions.iter().sum();
        // The cost cannot exceed the running time. If it would, an execution costs less here than in our measurement.
        let cost_ns =
            (executions as f64 * self.execution_ns + SETTING_NS).min(counts.running_ns as f64 + SETTING_NS);
        self.cost_ns += (cost_ns - self.cost_ns) / 8.0;
        self.record.windows += 1;
        self.record.executions += executions;
        self.record.cost_ns += cost_ns as u64;
        let counts = places.into_iter().take(len).zip(counts.executions).collect();
        Some((begin_ns, RawBreakpointCounts { pid, tid, until_ns: now_ns(), counts }))
    }

    /// Draws distinct blocks. Blocks with more samples are likelier, but less than in proportion, because rare ones matter
    /// too. Every second block is a neighbour of the one before, if there is any: code that is close together runs together,
    /// even if the program goes through phases (docs/measured.md).
    fn draw_places(&mut self, hottest: &[(VirtualAddress, f64)]) -> Vec<VirtualAddress> {
        let mut rest: Vec<(VirtualAddress, f64)> = hottest.to_vec();
        let mut places: Vec<VirtualAddress> = Vec::with_capacity(PLACES_MAX);
        while places.len() < PLACES_MAX && !rest.is_empty() {
            let anchor = places.last().filter(|_| places.len() % 2 == 1).copied();
            let near = |place: VirtualAddress| anchor.is_none_or(|a| a.distance(place) <= NEAR_BYTES);
            let has_near = rest.iter().any(|r| near(r.0));
            let weight = |r: &(VirtualAddress, f64)| if near(r.0) || !has_near { r.1 } else { 0.0 };
            let mut left = self.random.uniform() * rest.iter().map(weight).sum::<f64>();
            let found = rest.iter().position(|r| {
                left -= weight(r);
                left < 0.0
            });
            places.push(rest.swap_remove(found.unwrap_or(0)).0);
        }
        places
    }
}

/// The blocks of one process that have the most samples.
#[derive(Default)]
struct Blocks {
    samples: u32,
    /// Number of samples at which the hottest blocks are determined again.
    next: u32,
    by_pc: FxHashMap<VirtualAddress, u32>,
    /// End of the block that contains each program counter.
    ends: FxHashMap<VirtualAddress, Option<VirtualAddress>>,
    /// A place in each block, and the weight by which it is drawn.
    hottest: Vec<(VirtualAddress, f64)>,
}

impl Blocks {
    fn add(&mut self, pc: VirtualAddress) {
        if self.by_pc.len() < PCS_KEPT_MAX || self.by_pc.contains_key(&pc) {
            *self.by_pc.entry(pc).or_default() += 1;
            self.samples = self.samples.saturating_add(1);
        }
    }

    /// Returns the hottest blocks. They are determined again whenever there are a quarter more samples.
    fn hottest(&mut self, pid: Pid) -> &[(VirtualAddress, f64)] {
        if self.samples >= self.next.max(SAMPLES_MIN) {
            self.next = self.samples.saturating_add(self.samples / 4);
            self.find(pid);
        }
        &self.hottest
    }

    fn find(&mut self, pid: Pid) {
        let Ok(memory) = File::open(format!("/proc/{pid}/mem")) else { return };
        // The decoder does not support 32-bit code, so ends of blocks are not known there.
        if File::open(format!("/proc/{pid}/exe")).is_ok_and(|exe| is_32_bit(&exe)) {
            return;
        }
        let mut pcs: Vec<(u32, VirtualAddress)> = self.by_pc.iter().map(|(pc, n)| (*n, *pc)).collect();
        pcs.sort_unstable_by_key(|&(n, pc)| (std::cmp::Reverse(n), pc));
        // The end stands for the block, so that it is the same place in every process and epoch.
        let mut blocks: BTreeMap<VirtualAddress, u32> = BTreeMap::new();
        for (n, pc) in pcs.into_iter().take(PCS_MAX) {
            let end = *self.ends.entry(pc).or_insert_with(|| block_end(&memory, pc));
            end.iter().for_each(|end| *blocks.entry(*end).or_default() += n);
        }
        let mut hottest: Vec<(VirtualAddress, f64)> =
            blocks.into_iter().map(|(end, n)| (end, f64::from(n).sqrt())).collect();
        hottest.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        hottest.truncate(BLOCKS_MAX);
        self.hottest = hottest;
    }
}

/// Returns the first transfer of control at or after `pc`. The instructions before it are executed as often as it.
fn block_end(memory: &File, pc: VirtualAddress) -> Option<VirtualAddress> {
    let mut code = [0; CODE_BYTES];
    let length = memory.read_at(&mut code, pc.0).ok()?;
    // The decoder's addresses are distances from `pc`.
    let instructions = dwell_image::instructions(ARCH, &code[..length], ImageAddress(0));
    instructions.iter().find(|i| i.flow != Flow::Next).map(|i| pc.offset(i.address.0))
}

/// Returns the cause as it is stored in the epoch and shown to the user.
fn cause(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOSPC) => "breakpoints in use".to_owned(),
        Some(libc::EACCES | libc::EPERM) => "not permitted".to_owned(),
        Some(libc::ESRCH) => "gone".to_owned(),
        Some(libc::EOPNOTSUPP | libc::ENOENT | libc::ENODEV) => "no breakpoints here".to_owned(),
        _ if error.kind() == io::ErrorKind::Unsupported => "no breakpoints here".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::guard::Turns;

    /// The code of this test consists of two blocks: `mov eax, edi; add eax, 1; jmp …` twice.
    #[test]
    fn program_counters_of_a_block_are_one_place() {
        if cfg!(not(target_arch = "x86_64")) {
            return println!("SKIPPED program_counters_of_a_block_are_one_place: x86-64 code");
        }
        let block = [0x89, 0xf8, 0x83, 0xc0, 0x01, 0xeb, 0xf9];
        let code: Vec<u8> = [block, block].concat();
        let (start, mut blocks) = (VirtualAddress(code.as_ptr() as u64), Blocks::default());
        for (offset, samples) in [(0, 10), (2, 30), (5, 20), (7, 25), (9, 4)] {
            (0..samples).for_each(|_| blocks.add(start.offset(offset)));
        }
        let hottest = blocks.hottest(Pid(std::process::id()));
        let places: Vec<u64> = hottest.iter().map(|(pc, _)| pc.bytes_since(start)).collect();
        assert_eq!(places, [5, 12]);
    }

    #[test]
    fn places_are_drawn_in_pairs_of_neighbours() {
        let mut counter = BreakpointCounter::start(1.0, Protection::start(&Turns::default()));
        let hottest = [0x1000, 0x1040, 0x9000, 0x90f0, 0x10000].map(|place| (VirtualAddress(place), 3.0));
        for _ in 0..100 {
            let places = counter.draw_places(&hottest);
            let mut different = places.clone();
            different.sort_unstable();
            different.dedup();
            assert_eq!((places.len(), different.len()), (4, 4));
            let has_neighbour = places[0] != VirtualAddress(0x10000);
            assert_eq!(places[0].distance(places[1]) <= NEAR_BYTES, has_neighbour, "{places:x?}");
        }
        assert_eq!(counter.draw_places(&hottest[..1]), [VirtualAddress(0x1000)]);
    }

    #[test]
    fn without_breakpoints_nothing_is_counted() {
        let mut counter = BreakpointCounter::start(1.0, Protection::start(&Turns::default()));
        counter.execution_ns = f64::INFINITY;
        assert!(!counter.is_on());
        assert_eq!(counter.count(Pid(1), Tid(1), 1e9), []);
    }
}
