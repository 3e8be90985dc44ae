//! Samples where a thread is for a few milliseconds, with all its general registers.
//!
//! Enters: a thread, and when it is released. Leaves: its moments, with its CPU time and page faults since then. Never here: what they
//! mean ([`crate::emulate::moments`]).

use std::{hint::black_box, io, ptr};

use dwell_profile::{CpuId, Tid};
use rustix::{
    mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap},
    param::page_size,
    thread::gettid,
};

use super::time_ns;
use crate::{
    emulate::moments::Moment,
    registers::{REGISTER_COUNT, Registers},
    sys::{
        event::{Attributes, Counter, PerfEvent},
        ring::Ring,
    },
};

/// CPU time between two samples. Each makes the thread slower for a while: by 16 µs on a virtual machine (docs/measured.md).
pub const PERIOD_NS: u64 = 600_000;
/// Rounds of work, some three milliseconds, and how often its time with and without samples is compared.
const WORK: usize = 1_500_000;
const COMPARISONS: usize = 5;
/// More than any sample or page fault takes.
const COST_NS_MAX: u64 = 50_000;
/// Number of pages whose first use is timed.
const FAULTS: usize = 256;
/// Pages of the ring, which has room for 60 samples.
const PAGES: usize = 4;
/// The event counts on whichever CPU its thread runs.
const ANY_CPU: CpuId = CpuId(u32::MAX);
/// Type of a sample's record, and of its registers if they are those of 64-bit code.
const RECORD_SAMPLE: u32 = 9;
const REGISTERS_64: u64 = 2;
/// Positions in a sample, in words: its header, id, address, thread and time are before.
const RUNNING_NS: usize = 7;
const PAGE_FAULTS: usize = 9;
const REGISTERS_KIND: usize = 10;
const REGISTERS: usize = 11;

/// A clock of one thread that samples it.
pub struct Sampler {
    event: PerfEvent,
    /// The thread's page faults.
    _faults: PerfEvent,
    ring: Ring,
}

impl Sampler {
    /// Opens the event, which does not sample yet.
    pub fn open(tid: Tid) -> io::Result<Sampler> {
        let attributes = Attributes {
            exclude_kernel: true,
            registers: true,
            times: true,
            group: true,
            ..Attributes::of(Counter::CPU_CLOCK, PERIOD_NS)
        };
        let event = PerfEvent::open(&attributes, Some(tid), ANY_CPU)?;
        let of_faults = Attributes {
            exclude_kernel: true,
            group: true,
            ..Attributes::of(Counter::PAGE_FAULTS, u64::MAX >> 1)
        };
        let faults = PerfEvent::open_in(&of_faults, Some(tid), ANY_CPU, Some(&event))?;
        faults.enable()?;
        let ring = Ring::map(&event, PAGES * page_size())?;
        Ok(Sampler { event, _faults: faults, ring })
    }

    /// Starts to sample the thread, which is stopped, from its next instruction on.
    pub fn start(&self) -> io::Result<()> {
        self.event.enable()
    }

    /// Returns the CPU time that samples and page faults take, found out with this thread.
    pub fn costs() -> io::Result<Costs> {
        Ok(Costs { sample_ns: Sampler::sample_ns()?, fault_ns: fault_ns()? })
    }

    fn sample_ns() -> io::Result<u64> {
        let mut sampler = Sampler::open(Tid(gettid().as_raw_nonzero().get() as u32))?;
        let mut costs = Vec::new();
        for _ in 0..COMPARISONS {
            let alone_ns = work_ns();
            sampler.start()?;
            let sampled_ns = work_ns();
            sampler.event.disable()?;
            let mut moments = Vec::new();
            sampler.take(&mut moments);
            if !moments.is_empty() {
                costs.push(sampled_ns.saturating_sub(alone_ns) / moments.len() as u64);
            }
        }
        costs.sort_unstable();
        Ok(costs.get(costs.len() / 2).copied().unwrap_or(0).min(COST_NS_MAX))
    }

    /// Adds the moments since the last call.
    pub fn take(&mut self, moments: &mut Vec<Moment>) {
        self.ring.each_record(&mut Vec::new(), |record| moments.extend(moment(record)));
    }
}

/// What a thread does not do itself, in ns of its CPU time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Costs {
    pub sample_ns: u64,
    pub fault_ns: u64,
}

/// Returns what the first use of a new page takes.
fn fault_ns() -> io::Result<u64> {
    let length = FAULTS * page_size();
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping, which nobody else knows and which is unmapped below.
    let pages = unsafe { mmap_anonymous(ptr::null_mut(), length, protection, MapFlags::PRIVATE)? };
    // SAFETY: the mapping is ours. Where there are no huge pages, the call fails.
    let _ = unsafe { madvise(pages, length, Advice::LinuxNoHugepage) };
    let begin_ns = time_ns(libc::CLOCK_THREAD_CPUTIME_ID);
    for at in (0..length).step_by(page_size()) {
        // SAFETY: within the mapping.
        unsafe { pages.cast::<u8>().add(at).write_volatile(1) };
    }
    let taken_ns = time_ns(libc::CLOCK_THREAD_CPUTIME_ID) - begin_ns;
    // SAFETY: nothing refers to the mapping any more.
    unsafe { munmap(pages, length)? };
    Ok((taken_ns / FAULTS as u64).min(COST_NS_MAX))
}

/// Returns the CPU time of always the same work.
fn work_ns() -> u64 {
    let begin_ns = time_ns(libc::CLOCK_THREAD_CPUTIME_ID);
    let mut number = 1_u64;
    for _ in 0..WORK {
        number = black_box(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    }
    time_ns(libc::CLOCK_THREAD_CPUTIME_ID) - begin_ns
}

/// Returns what a record says, if it is a sample of 64-bit code.
fn moment(record: &[u8]) -> Option<Moment> {
    let words = record.as_chunks::<8>().0;
    let word = |at: usize| words.get(at).map(|bytes| u64::from_ne_bytes(*bytes));
    if word(0)? as u32 != RECORD_SAMPLE || word(REGISTERS_KIND)? != REGISTERS_64 {
        return None;
    }
    let mut registers = Registers([0; REGISTER_COUNT]);
    for (at, register) in registers.0.iter_mut().enumerate() {
        *register = word(REGISTERS + at)?;
    }
    let general = std::array::from_fn(|number| registers.general(number as u8));
    let (cpu_ns, faults) = (word(RUNNING_NS)?, word(PAGE_FAULTS)?);
    Some(Moment { pc: registers.pc().0, general, cpu_ns, faults, calls: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_sample_costs_is_known() {
        let Costs { sample_ns, fault_ns } = Sampler::costs().unwrap();
        assert!(sample_ns <= COST_NS_MAX && (50..=COST_NS_MAX).contains(&fault_ns), "{fault_ns}");
    }

    #[test]
    fn a_thread_is_sampled_in_its_own_time() {
        let tid = Tid(gettid().as_raw_nonzero().get() as u32);
        let mut sampler = Sampler::open(tid).unwrap();
        let mut moments = Vec::new();
        sampler.take(&mut moments);
        assert_eq!(moments, []);
        sampler.start().unwrap();
        let mut sum = 0_u64;
        for round in 0..1_000_000_000_u64 {
            sum = black_box(sum.wrapping_add(round));
            if round % (1 << 20) == 0 {
                sampler.take(&mut moments);
                if moments.len() >= 4 {
                    break;
                }
            }
        }
        let stack = (&raw const moments).addr() as u64;
        assert!(moments.len() >= 4);
        assert!(moments.is_sorted_by_key(|moment| moment.cpu_ns));
        for (number, moment) in moments.iter().enumerate() {
            let expected_ns = PERIOD_NS * (number as u64 + 1);
            // A late timer is later by less than this, unless the machine is very busy.
            assert!((expected_ns..expected_ns + 50 * PERIOD_NS).contains(&moment.cpu_ns), "{moments:?}");
            assert!(moment.general[4].abs_diff(stack) < 1 << 20, "{moment:x?}");
            assert!(moment.pc > 0x1000);
        }
    }
}
