//! The sampled machine, as the epoch records it.

use dwell_profile::{Cpu, Host};

use crate::{host::procfs, sys::clock};

/// Returns the machine's name and the release of its kernel.
pub fn host() -> Host {
    let uname = rustix::system::uname();
    Host {
        name: uname.nodename().to_string_lossy().into_owned(),
        kernel_release: uname.release().to_string_lossy().into_owned(),
    }
}

/// Returns the processor. Its clock is not measured yet.
pub fn cpu() -> Cpu {
    let arch = rustix::system::uname().machine().to_string_lossy().into_owned();
    let count = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    procfs::parse_cpuinfo(&std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default(), &arch, count)
}

/// Measurements of the core clock over an epoch.
#[derive(Clone, Debug, Default)]
pub struct MeasuredClock {
    runs_hz: Vec<f64>,
    taken: usize,
}

/// Maximum number of measurements that are kept for the median. Later ones replace old ones.
const RUNS_MAX: usize = 4096;

impl MeasuredClock {
    /// Adds a measurement, which takes 25 µs.
    pub fn measure(&mut self) {
        let Some(hz) = clock::measure_hz() else { return };
        if self.runs_hz.len() < RUNS_MAX {
            self.runs_hz.push(hz);
        } else {
            // The stride and the length have no common divisor, so all elements are replaced in turn.
            self.runs_hz[self.taken.wrapping_mul(1663) % RUNS_MAX] = hz;
        }
        self.taken += 1;
    }

    /// Returns the median in Hz; `None` without a measurement.
    pub fn median_hz(&self) -> Option<f64> {
        let mut sorted = self.runs_hz.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied()
    }

    /// Writes the median and the range of the clock to the record of the processor.
    pub fn write_to(&self, cpu: &mut Cpu) {
        cpu.clock_hz = self.median_hz();
        let extreme = |f: fn(f64, f64) -> f64| self.runs_hz.iter().copied().reduce(f);
        cpu.clock_hz_range = extreme(f64::min).zip(extreme(f64::max));
    }
}
