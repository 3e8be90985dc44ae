//! Measures how much time one sample's interrupt takes from the interrupted code, on this machine.
//!
//! Enters: an event. Leaves: the time that is missing around a sample. No accounting shows it, because the kernel charges an
//! interrupt to the task that was running. A thread reads the clock in a tight loop while it is sampled every 100 µs; the
//! gaps that stand out are the interrupts (2.5 µs on a 2-core VM).

use std::time::{Duration, Instant};

use dwell_profile::{CpuId, Tid};
use rustix::thread::{gettid, sched_getcpu};

use super::event::{Attributes, Counter, PerfEvent};

/// Maximum duration of a measurement: on a busy machine other tasks run in between.
const SPIN_MAX: Duration = Duration::from_millis(200);
/// Number of interrupts after which the measurement ends.
const ENOUGH: usize = 200;
/// Minimum number of interrupts. Fewer gaps mean nothing: they may be preemptions, or the kernel's own timer.
const INTERRUPTS_MIN: usize = 50;
/// Number of readings that show how long a plain gap is.
const PLAIN: usize = 4096;
/// Minimum length of a gap that counts as an interrupt. It must also be longer than a few plain gaps.
const INTERRUPT_MIN: Duration = Duration::from_nanos(400);

/// Measures the interrupt of an event with this period (about 100 µs). Returns `None` if the event cannot be opened.
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
    let _ = event.disable(); // It is closed when this function returns anyway.
    typical_excess(&mut gaps)
}

/// Returns the gaps between readings of the clock: all of the first ones, then those that stand out.
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

/// Returns by how much gaps with an interrupt exceed those without, from the medians of both.
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
    fn interrupts_are_distinguished_from_preemptions_and_plain_gaps() {
        let mut gaps = vec![Duration::from_nanos(30); PLAIN];
        gaps.extend([Duration::from_nanos(2530); ENOUGH - 15]);
        gaps.extend([Duration::from_millis(4); 15]);
        assert_eq!(typical_excess(&mut gaps), Some(Duration::from_nanos(2500)));
        assert_eq!(typical_excess(&mut gaps[..PLAIN + 9]), None, "too few to tell");
        assert_eq!(typical_excess(&mut [Duration::ZERO; 9]), None);
    }
}
