//! The core clock, measured: a chain of dependent multiplications of known latency against the wall clock.
//!
//! `imul r32, r32` has a latency of 3 cycles on every Intel core from Nehalem (Atom line: from Silvermont) and every
//! AMD core from Zen (uops.info; Agner Fog, "Instruction tables"). A chain of `add $imm` would not do: newer Intel
//! cores fold those at rename; and the 64-bit form has 5 cycles on the Atom line.

use std::time::Duration;

/// Latency of a link of the chain.
const LATENCY_CYCLES: u64 = 3;
const LINKS_PER_TURN: u64 = 16;
const TURNS: u64 = 500;

/// Measures the clock of the core this runs on, in Hz; `None` on an architecture without a calibrated chain. Takes
/// about 25 µs; the best of three runs counts, since interrupts and preemption only ever lengthen one.
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

#[cfg(test)]
mod tests {
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_clock_is_plausible_and_steady() {
        let mut runs: Vec<f64> = (0..20).filter_map(|_| super::measure_hz()).collect();
        runs.sort_by(f64::total_cmp);
        assert!((0.5e9..8e9).contains(&runs[10]), "median {} Hz", runs[10]);
    }
}
