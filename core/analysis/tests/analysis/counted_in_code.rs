//! Executions that counters in a function's own code counted: they decide its scale.

use std::collections::BTreeMap;

use dwell_analysis::{
    AbsoluteCount, MachineModel, OuterScale, ProcedureAnalysis, ProcedureInput, ScaleKind, analyze,
};
use dwell_image::Arch;

use crate::{asm::x86, evidence::DIAMOND};

/// Frequencies of the five blocks of [`DIAMOND`] by their first instructions.
const TRUTH: [(usize, f64); 5] = [(0, 10.0), (1, 40.0), (4, 30.0), (6, 10.0), (7, 40.0)];

/// Analyzes [`DIAMOND`] with counts that are `times` the truth.
fn analyzed(samples: &[u64; 10], times: f64, outer: OuterScale) -> ProcedureAnalysis {
    let count = |(at, frequency): (usize, f64)| AbsoluteCount {
        at,
        frequency: times * frequency,
        deviation: 0.05,
        in_code: true,
    };
    let input = ProcedureInput {
        arch: Arch::X86_64,
        instructions: &x86(DIAMOND),
        jump_targets: &BTreeMap::new(),
        time_samples: samples,
        period_cycles: Some(1e6),
        event_samples: &BTreeMap::new(),
        branch_directions: &[],
        transfers: &[],
        counted: &[],
        absolute: &TRUTH.map(count),
        outer,
    };
    analyze(&input, MachineModel::named("amd-zen4").expect("a model"))
}

fn frequency(analysis: &ProcedureAnalysis, at: usize) -> f64 {
    analysis.instructions[at].frequency.expect("an estimate")
}

#[test]
fn calls_do_not_move_a_counted_function() {
    let samples = [10, 40, 40, 40, 20, 20, 900, 40, 40, 900];
    for (factor, kind, deviation) in
        [(0.3, ScaleKind::Program, f64::INFINITY), (3.0, ScaleKind::Absolute, 0.01)]
    {
        let outer = OuterScale { factor, kind, deviation, evidence: Vec::new() };
        let analysis = analyzed(&samples, 1.0, outer);
        assert_eq!(analysis.scale.kind, ScaleKind::Absolute);
        for (at, truth) in TRUTH {
            assert!((frequency(&analysis, at) / truth).ln().abs() < 0.02, "{at}: {analysis:?}");
        }
        // All counts were taken in the same part of the run, so five of them are as certain as one.
        let interval = analysis.blocks[1].frequency_interval.expect("an interval");
        assert!((interval.max / interval.min).ln() > 3.2 * 0.05, "{interval:?}");
    }
}

#[test]
fn a_block_whose_samples_are_elsewhere_has_no_number() {
    // The head of the loop has no samples, although it takes ten at least.
    let samples = [10, 0, 0, 0, 0, 20, 0, 40, 40, 900];
    let analysis = analyzed(&samples, 1.0, OuterScale::default());
    assert_eq!(analysis.scale.kind, ScaleKind::Absolute);
    let interval = analysis.blocks[1].frequency_interval.expect("an interval");
    assert!(interval.min == 0.0 && !interval.is_precise(), "{interval:?}");
    assert!((frequency(&analysis, 6) / 10.0).ln().abs() < 0.02, "{analysis:?}");
}

#[test]
fn counts_that_do_not_fit_into_the_time_are_no_scale() {
    let samples = [10, 40, 40, 40, 20, 20, 900, 40, 40, 900];
    let outer =
        OuterScale { factor: 0.001, kind: ScaleKind::Absolute, deviation: 0.01, evidence: Vec::new() };
    let analysis = analyzed(&samples, 1000.0, outer);
    assert_ne!(analysis.scale.kind, ScaleKind::Absolute);
    assert!(analysis.blocks.iter().all(|block| block.frequency_interval.is_none()));
}
