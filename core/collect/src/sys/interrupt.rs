//! What one sample's interrupt takes of the code that it interrupts, measured on this machine.
//!
//! Enters: an event. Leaves: the time that is missing around a sample. It is what no accounting shows: the kernel
//! charges an interrupt to whoever was running. A thread reads the clock in a tight loop while it is sampled every
//! 100 µs; the gaps that stand out are the interrupts (2.5 µs on a 2-core VM).

use std::time::{Duration, Instant};

use dwell_profile::{CpuId, Tid};
use rustix::thread::{gettid, sched_getcpu};

use super::event::{Attributes, Counter, PerfEvent};

/// How long is measured at most: on a busy machine others run in between.
const SPIN_MAX: Duration = Duration::from_millis(200);
/// So many interrupts are enough …
const ENOUGH: usize = 200;
/// … and fewer tell nothing: they may be preemptions, or the kernel's own timer.
const INTERRUPTS_MIN: usize = 50;
/// Readings that tell what a plain gap is.
const PLAIN: usize = 4096;
/// A gap of an interrupt is longer than that, and than a few plain ones.
const INTERRUPT_MIN: Duration = Duration::from_nanos(400);

/// Measures the interrupt of an event of this period (about 100 µs); `None` where it cannot be opened.
pub fn measure(counter: Counter, period: u64) -> Option<Duration> {
    let attributes = Attributes { registers: true, ..Attributes::of(counter, period) };
    let event = PerfEvent::open(
        &attributes,
        Some(Tid(gettid().as_raw_nonzero().get() as u32)),
        CpuId(sched_getcpu() as u32),
    )
    .ok()?;
    event.enable().ok()?;
    let mut gaps = spin();
    let _ = event.disable(); // It goes with this function anyway.
    typical_excess(&mut gaps)
}

/// The gaps between readings of the clock: all of the first, then those that stand out.
fn spin() -> Vec<Duration> {
    let mut gaps = Vec::with_capacity(PLAIN + ENOUGH);
    let start = Instant::now();
    let mut last = start;
    while last - start < SPIN_MAX && gaps.len() < PLAIN + ENOUGH {
        let now = Instant::now();
        if gaps.len() < PLAIN || now - last > INTERRUPT_MIN {
            gaps.push(now - last);
        }
        last = now;
    }
    gaps
}

/// By how much the gaps with an interrupt exceed those without: the median of both.
fn typical_excess(gaps: &mut [Duration]) -> Option<Duration> {
    if gaps.len() < PLAIN {
        return None;
    }
    let plain = median(&mut gaps[..PLAIN])?;
    let stands_out = |gap: &&Duration| **gap > INTERRUPT_MIN.max(4 * plain);
    let mut interrupted: Vec<Duration> = gaps.iter().filter(stands_out).copied().collect();
    let enough = interrupted.len() >= INTERRUPTS_MIN;
    median(&mut interrupted).filter(|_| enough).map(|median| median - plain)
}

fn median(gaps: &mut [Duration]) -> Option<Duration> {
    let middle = gaps.len() / 2;
    (!gaps.is_empty()).then(|| *gaps.select_nth_unstable(middle).1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_are_told_from_preemptions_and_plain_readings() {
        let mut gaps = vec![Duration::from_nanos(30); PLAIN];
        gaps.extend([Duration::from_nanos(2530); ENOUGH - 15]);
        gaps.extend([Duration::from_millis(4); 15]);
        assert_eq!(typical_excess(&mut gaps), Some(Duration::from_nanos(2500)));
        assert_eq!(typical_excess(&mut gaps[..PLAIN + 9]), None, "too few to tell");
        assert_eq!(typical_excess(&mut [Duration::ZERO; 9]), None);
    }
}
