//! Detects that the events no longer fire. An event that was revoked, or whose backend went away, reports no error.
//!
//! Enters: the samples of a window, and how busy the machine was in it. Leaves: whether samples are missing. Never here:
//! opening anything.

use std::time::{Duration, Instant};

/// Number of expected samples whose absence is significant.
const EXPECTED_MIN: f64 = 200.0;

/// Shortest window that is judged: entries that the kernel aggregates come every few seconds, so shorter silences mean
/// nothing.
const JUDGED_AFTER: Duration = Duration::from_secs(10);

/// Watches for silence of the events.
#[derive(Debug, Default)]
pub struct Silence {
    since: Option<Instant>,
    samples: u64,
    busy_s: Option<f64>,
    silent: bool,
}

impl Silence {
    /// Adds the samples of a window. `rate_hz` is the rate of the events on a busy CPU.
    pub fn look(&mut self, samples: u64, rate_hz: f64) {
        self.samples += samples;
        if self.since.get_or_insert_with(Instant::now).elapsed() < JUDGED_AFTER {
            return;
        }
        let samples = std::mem::take(&mut self.samples);
        self.since = None;
        let busy_s = std::fs::read_to_string("/proc/stat").ok().and_then(|text| parse_busy_s(&text));
        if let Some(busy_s) = busy_s {
            self.judge(samples, rate_hz, busy_s);
        }
    }

    /// Judges the samples of a window. `busy_s` is the CPU time of all CPUs since boot, in s.
    fn judge(&mut self, samples: u64, rate_hz: f64, busy_s: f64) {
        let before = self.busy_s.replace(busy_s);
        let expected = before.map_or(0.0, |before| (busy_s - before) * rate_hz);
        self.silent = samples == 0 && expected >= EXPECTED_MIN;
    }

    /// Creates a watch that has found the events silent.
    #[cfg(test)]
    pub fn fallen() -> Self {
        Silence { silent: true, ..Silence::default() }
    }

    /// Returns whether samples are missing that should have come.
    pub fn is_silent(&self) -> bool {
        self.silent
    }
}

/// Returns the CPU time of all CPUs since boot in s, without idle, waiting and stolen time, from the first line of
/// `/proc/stat` (in 1/100 s).
fn parse_busy_s(stat: &str) -> Option<f64> {
    let mut fields = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace().map(str::parse::<u64>);
    let [user, nice, system, _idle, _iowait, irq, softirq] =
        std::array::from_fn(|_| fields.next().and_then(Result::ok).unwrap_or(0));
    Some((user + nice + system + irq + softirq) as f64 / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_samples_on_a_busy_machine_are_detected() {
        let mut silence = Silence::default();
        let mut is_silent_after = |samples, busy_s| {
            silence.judge(samples, 1000.0, busy_s);
            silence.is_silent()
        };
        assert!(!is_silent_after(0, 100.0), "nothing is known of the time before");
        assert!(!is_silent_after(0, 100.1), "an idle machine");
        assert!(!is_silent_after(1, 110.0));
        assert!(is_silent_after(0, 120.0));
        assert!(!is_silent_after(900, 121.0), "it came back");
    }

    #[test]
    fn busy_time_excludes_idle_time() {
        assert_eq!(parse_busy_s("cpu  100 20 30 4000 500 6 7 800 0 0\ncpu0 1"), Some(1.63));
        assert_eq!(parse_busy_s("cpu  100"), Some(1.0));
        assert_eq!(parse_busy_s("intr 1"), None);
    }
}
