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
/// Readings that tell what a plain gap is.
const PLAIN: usize = 4096;
/// Gaps that are kept beside; few stand out.
const GAPS_MAX: usize = 4096;
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

/// The gaps between readings of the clock: all of the first, then those that stand out.
fn spin() -> Vec<Duration> {
    let mut gaps = Vec::with_capacity(PLAIN + GAPS_MAX);
    let start = Instant::now();
    let (mut last, mut outstanding) = (start, Duration::ZERO);
    while last - start < SPIN && gaps.len() < gaps.capacity() {
        let now = Instant::now();
        let gap = now - last;
        if gaps.len() < PLAIN || gap > outstanding {
            gaps.push(gap);
        }
        if gaps.len() == PLAIN {
            outstanding = 4 * median(&mut gaps.clone());
        }
        last = now;
    }
    gaps
}

/// By how much the gaps with an interrupt exceed those without: the median of both.
fn typical_excess(gaps: &mut [Duration]) -> Option<Duration> {
    gaps.sort_unstable_by(|a, b| b.cmp(a));
    let interrupted = *gaps.get(OUTLIERS + (SAMPLES - OUTLIERS) / 2)?;
    let plain = *gaps.get(gaps.len().saturating_sub(PLAIN / 2))?;
    Some(interrupted.saturating_sub(plain))
}

fn median(gaps: &mut [Duration]) -> Duration {
    let middle = gaps.len() / 2;
    *gaps.select_nth_unstable(middle).1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_are_told_from_preemptions_and_plain_readings() {
        let mut gaps = vec![Duration::from_nanos(30); PLAIN + 500];
        gaps[..SAMPLES].fill(Duration::from_nanos(2530));
        gaps[500..515].fill(Duration::from_millis(4));
        assert_eq!(typical_excess(&mut gaps), Some(Duration::from_nanos(2500)));
        assert_eq!(typical_excess(&mut [Duration::ZERO; 9]), None, "too few readings to tell");
    }
}
