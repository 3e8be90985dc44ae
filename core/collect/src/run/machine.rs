//! The machine that is sampled, as the epoch records it.

use dwell_profile::{Cpu, Host};

use crate::{host::procfs, sys::clock};

/// Node name and kernel.
pub fn host() -> Host {
    let uname = rustix::system::uname();
    Host {
        name: uname.nodename().to_string_lossy().into_owned(),
        kernel_release: uname.release().to_string_lossy().into_owned(),
    }
}

/// The processor, its clock not measured yet.
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

/// So many measurements tell the median; later ones take the place of old ones.
const RUNS_MAX: usize = 4096;

impl MeasuredClock {
    /// Measures once, 25 µs.
    pub fn measure(&mut self) {
        let Some(hz) = clock::measure_hz() else { return };
        if self.runs_hz.len() < RUNS_MAX {
            self.runs_hz.push(hz);
        } else {
            // A stride that is prime to the length spreads over all of them.
            self.runs_hz[self.taken.wrapping_mul(1663) % RUNS_MAX] = hz;
        }
        self.taken += 1;
    }

    /// The median, in Hz.
    pub fn median_hz(&self) -> Option<f64> {
        let mut sorted = self.runs_hz.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied()
    }

    /// Enters median and range.
    pub fn write_to(&self, cpu: &mut Cpu) {
        cpu.clock_hz = self.median_hz();
        let extreme = |f: fn(f64, f64) -> f64| self.runs_hz.iter().copied().reduce(f);
        cpu.clock_hz_range = extreme(f64::min).zip(extreme(f64::max));
    }
}
