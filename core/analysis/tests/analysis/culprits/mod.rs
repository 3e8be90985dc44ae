//! Tests of causes, one file for each: small programs with samples as such a machine would give them, and the expected
//! culprits. Never here: recordings of real programs.

mod aliasing;
mod dcache;
mod divider;
mod dtlb;
mod events;
mod forwarding;
mod icache;
mod itlb;
mod kernel;
mod levels;
mod mispredict;
mod multiplier;
mod synchronization;
mod unexplained;
mod write_buffer;

use std::fmt::Write;

use dwell_analysis::StallKind;
use dwell_image::Arch;
use expect_test::Expect;

use crate::{
    asm::{a64, x86},
    show::{Case, listing},
};

/// In order: samples are where the time goes.
fn in_order_case(text: &str, samples: &[u64]) -> Case<'static> {
    let mut case = Case::new("generic-inorder-2", Arch::Aarch64, a64(text));
    case.samples = samples.to_vec();
    case
}

/// Out of order: samples are one instruction later than the time goes.
fn out_of_order_case(text: &str, samples: &[u64], directions: &[(usize, u64, u64)]) -> Case<'static> {
    let mut case = Case::new("amd-zen4", Arch::X86_64, x86(text));
    case.samples = samples.to_vec();
    directions.iter().for_each(|&(i, taken, not)| case.directions[i] = (taken, not));
    case
}

/// The whole listing, in order.
fn in_order(text: &str, samples: &[u64], expected: Expect) {
    expected.assert_eq(&listing(&in_order_case(text, samples)));
}

/// The whole listing, out of order.
fn out_of_order(text: &str, samples: &[u64], directions: &[(usize, u64, u64)], expected: Expect) {
    expected.assert_eq(&listing(&out_of_order_case(text, samples, directions)));
}

/// Only dynamic stalls, in order.
fn blames(text: &str, samples: &[u64], expected: Expect) {
    expected.assert_eq(&dynamic_stalls(&in_order_case(text, samples)));
}

/// Only dynamic stalls, out of order.
fn blames_out_of_order(text: &str, samples: &[u64], directions: &[(usize, u64, u64)], expected: Expect) {
    expected.assert_eq(&dynamic_stalls(&out_of_order_case(text, samples, directions)));
}

fn dynamic_stalls(case: &Case) -> String {
    let analysis = case.analyze();
    let mut text = String::new();
    for (cost, instruction) in analysis.instructions.iter().zip(&case.instructions) {
        for s in cost.stalls.iter().filter(|s| s.kind == StallKind::Dynamic) {
            let culprit = s.culprit.map_or(String::new(), |c| format!(" by {}", case.instructions[c].text));
            let (name, min, max) = (&instruction.text, s.cycles_min, s.cycles_max);
            writeln!(text, "{name}: {:?} {min:.1}..{max:.1}{culprit}", s.cause).unwrap();
        }
    }
    text
}
