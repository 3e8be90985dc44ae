//! Clocks: the offset of our time namespace from CLOCK_MONOTONIC, and the measured core clock.
//!
//! The core clock is measured by a chain of dependent multiplications of known latency against the wall clock.
//!
//! `imul r32, r32` has a latency of 3 cycles on every Intel core from Nehalem on (Atom line: from Silvermont on) and every
//! AMD core from Zen on (uops.info; Agner Fog, "Instruction tables"). A chain of `add $imm` is not suitable, because newer
//! Intel cores fold it at rename. The 64-bit form of `imul` has 5 cycles on the Atom line.

use std::{fs, sync::OnceLock, time::Duration};

use dwell_profile::Pid;
use rustix::time::{ClockId, clock_gettime};

/// Latency of a link of the chain, in core cycles.
const LATENCY_CYCLES: u64 = 3;
const LINKS_PER_TURN: u64 = 16;
const TURNS: u64 = 500;

/// Measures the clock of the current core, in Hz. Returns `None` on an architecture without a calibrated chain. Takes about
/// 25 µs. The fastest of three runs is used, since interrupts and preemption can only lengthen a run.
pub fn measure_hz() -> Option<f64> {
    let best = (0..3).filter_map(|_| time_chain()).min()?;
    let cycles = (LATENCY_CYCLES * LINKS_PER_TURN * TURNS) as f64;
    (best > Duration::ZERO).then(|| cycles / best.as_secs_f64())
}

#[cfg(target_arch = "x86_64")]
fn time_chain() -> Option<Duration> {
    let start = std::time::Instant::now();
    // SAFETY: only registers named as operands change; neither memory nor stack is touched.
    unsafe {
        std::arch::asm!(
            "2:",
            "imul {x:e}, {x:e}", "imul {x:e}, {x:e}", "imul {x:e}, {x:e}", "imul {x:e}, {x:e}",
            "imul {x:e}, {x:e}", "imul {x:e}, {x:e}", "imul {x:e}, {x:e}", "imul {x:e}, {x:e}",
            "imul {x:e}, {x:e}", "imul {x:e}, {x:e}", "imul {x:e}, {x:e}", "imul {x:e}, {x:e}",
            "imul {x:e}, {x:e}", "imul {x:e}, {x:e}", "imul {x:e}, {x:e}", "imul {x:e}, {x:e}",
            "sub {n}, 1",
            "jnz 2b",
            x = inout(reg) 3_u64 => _,
            n = inout(reg) TURNS => _,
            options(nomem, nostack),
        );
    }
    Some(start.elapsed())
}

#[cfg(not(target_arch = "x86_64"))]
fn time_chain() -> Option<Duration> {
    None
}

/// Returns the CPU time in ns that all threads of a process have used; `None` if it has ended.
pub fn process_cpu_ns(pid: Pid) -> Option<u64> {
    let (mut clock, mut time) = (0, libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: both calls write to live variables.
    let read = unsafe {
        libc::clock_getcpuclockid(pid.0 as libc::pid_t, &raw mut clock) == 0
            && libc::clock_gettime(clock, &raw mut time) == 0
    };
    read.then_some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Returns the time of CLOCK_MONOTONIC in ns as the kernel stamps records, even where our time namespace shifts it.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let ours_ns = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
    ours_ns.wrapping_sub(namespace_offset_ns() as u64)
}

/// Returns what our time namespace (time_namespaces(7)) adds to CLOCK_MONOTONIC, in ns. The kernel stamps records without
/// it. It is read only once.
pub fn namespace_offset_ns() -> i64 {
    *OFFSET_NS.get_or_init(|| {
        let namespace = |which| fs::read_link(format!("/proc/self/ns/{which}")).ok();
        // The file describes the namespace of our children. That is ours too, unless this process has just created a new
        // one.
        let is_ours = namespace("time") == namespace("time_for_children");
        let offsets = fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
        if is_ours { parse_offset_ns(&offsets).unwrap_or(0) } else { 0 }
    })
}

/// Returns the same offset where no file may be read, in a forked child: 0 if [`namespace_offset_ns`] was not called before.
pub fn known_namespace_offset_ns() -> i64 {
    OFFSET_NS.get().copied().unwrap_or(0)
}

static OFFSET_NS: OnceLock<i64> = OnceLock::new();

/// Parses the line `monotonic SECONDS NANOSECONDS`.
fn parse_offset_ns(offsets: &str) -> Option<i64> {
    let mut words = offsets.lines().find_map(|line| line.strip_prefix("monotonic"))?.split_whitespace();
    let (seconds, nanoseconds): (i64, i64) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    seconds.checked_mul(1_000_000_000)?.checked_add(nanoseconds)
}

#[cfg(test)]
mod tests {
    #[test]
    fn offsets_are_read() {
        let offset = |text| super::parse_offset_ns(text);
        assert_eq!(offset("monotonic       -1000         5\nboottime   0   0\n"), Some(-999_999_999_995));
        assert_eq!(offset("boottime 0 0\n"), None);
        assert_eq!(offset("monotonic 9223372036854775807 0\n"), None);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_clock_is_plausible_and_steady() {
        let mut runs: Vec<f64> = (0..20).filter_map(|_| super::measure_hz()).collect();
        runs.sort_by(f64::total_cmp);
        assert!((0.5e9..8e9).contains(&runs[10]), "median {} Hz", runs[10]);
    }
}
