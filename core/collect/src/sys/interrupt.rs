//! What one sample's interrupt takes of the code that it interrupts, measured on this machine.
//!
//! Enters: an event. Leaves: the time that is missing around a sample. It is what no accounting shows: the kernel
//! charges an interrupt to whoever was running. A thread reads the clock in a tight loop while it is sampled every
//! 100 µs; the gaps that stand out are the interrupts (recipes/collector: 2.5 µs on a 2-core VM).

use std::time::{Duration, Instant};

use rustix::thread::{gettid, sched_getcpu};

use super::event::{Attributes, Counter, PerfEvent};

/// How long is measured.
const SPIN: Duration = Duration::from_millis(20);
/// Samples expected in that time.
const SAMPLES: usize = 200;
/// Of the longest gaps, that many may be anything else: preemptions, the kernel's own timer.
const OUTLIERS: usize = SAMPLES / 10;

/// Measures the interrupt of an event of this period (about 100 µs); `None` where it cannot be opened.
pub fn measure(counter: Counter, period: u64) -> Option<Duration> {
    let attributes = Attributes {
        counter,
        period,
        exclude_kernel: false,
        exclude_idle: false,
        inherit: false,
        enable_on_exec: false,
        side_band: false,
        build_ids: false,
        registers: true,
        watermark_bytes: 1 << 20,
    };
    let event =
        PerfEvent::open(&attributes, Some(gettid().as_raw_nonzero().get() as u32), sched_getcpu() as u32)
            .ok()?;
    event.enable().ok()?;
    let mut gaps = spin();
    let _ = event.disable(); // It goes with this function anyway.
    typical_excess(&mut gaps)
}

/// The gaps between readings of the clock.
fn spin() -> Vec<Duration> {
    let mut gaps = Vec::with_capacity(1 << 20);
    let start = Instant::now();
    let mut last = start;
    while last - start < SPIN && gaps.len() < gaps.capacity() {
        let now = Instant::now();
        gaps.push(now - last);
        last = now;
    }
    gaps
}

/// By how much the gaps with an interrupt exceed those without: the median of both.
fn typical_excess(gaps: &mut [Duration]) -> Option<Duration> {
    gaps.sort_unstable_by(|a, b| b.cmp(a));
    let interrupted = gaps.get(OUTLIERS + (SAMPLES - OUTLIERS) / 2)?;
    let plain = gaps.get(gaps.len() / 2)?;
    Some(interrupted.saturating_sub(*plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_are_told_from_preemptions_and_plain_readings() {
        let mut gaps = vec![Duration::from_nanos(30); 100_000];
        gaps[..SAMPLES].fill(Duration::from_nanos(2530));
        gaps[500..515].fill(Duration::from_millis(4));
        assert_eq!(typical_excess(&mut gaps), Some(Duration::from_nanos(2500)));
        assert_eq!(typical_excess(&mut [Duration::ZERO; 9]), None, "too few readings to tell");
    }
}
