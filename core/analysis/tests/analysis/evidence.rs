//! Evidence beside time, out of order: steps and retired instructions, sound or not.

use std::collections::BTreeMap;

use dwell_analysis::{
    AbsoluteCount, Confidence, Counted, Entered, MachineModel, OuterScale, ProcedureInput, ScaleKind,
    Transfer, analyze, analyze_verified,
    program::{self, Burst, BurstTransfer, Bursts, Member},
    verify_analysis,
};
use dwell_image::Arch;
use dwell_profile::Event;
use proptest::prelude::*;

use crate::{
    asm::x86,
    hostile::{any_instruction, build},
    show::Case,
};

/// A loop of four turns with a diamond that goes left three times of four, entered 1,000 times; three exits.
pub const DIAMOND: &str = "\
    xor eax, eax
    loop:
    add rax, 1
    cmp rdi, rax
    je right
    mov rsi, [rdx]
    jmp join
    right:
    imul rsi, rsi
    join:
    cmp rsi, rcx
    jne loop
    ret";
const EXECUTIONS: [f64; 10] = [1e3, 4e3, 4e3, 4e3, 3e3, 3e3, 1e3, 4e3, 4e3, 1e3];

fn diamond() -> Case<'static> {
    let mut case = Case::new("amd-zen4", Arch::X86_64, x86(DIAMOND));
    // The right side is slow and the left side is fast, so cycles suggest the opposite of the true frequencies.
    case.samples = vec![10, 40, 40, 40, 20, 20, 900, 40, 40, 900];
    case
}

/// Compares frequencies with the truth, up to one scale.
fn assert_near(case: &Case, within: f64) {
    let analysis = case.analyze();
    let found: Vec<f64> = analysis.instructions.iter().map(|i| i.frequency.unwrap()).collect();
    let scale = EXECUTIONS[1] / found[1];
    for (i, (f, truth)) in found.iter().zip(EXECUTIONS).enumerate() {
        assert!((f * scale / truth).ln().abs() < within, "instruction {i}: {found:?}");
    }
}

#[test]
fn steps_correct_misleading_cycles() {
    let mut case = diamond();
    let steps = [(3, 4, 750.0), (3, 6, 250.0), (8, 1, 750.0), (8, 9, 250.0)];
    case.transfers = steps.map(|(from, to, count)| Transfer { from, to: Some(to), count }).to_vec();
    assert_near(&case, 0.1);
    assert!(case.analyze().blocks.iter().all(|b| b.confidence == Confidence::Low), "the scale is a guess");
    assert_eq!(case.analyze().basis.steps, 2000.0);
}

#[test]
fn a_ratio_to_entries_requires_observed_exits() {
    let with = |exits: f64| {
        let mut case = diamond();
        let steps = [(3, 4, 750.0), (3, 6, 250.0), (8, 1, 1000.0 - exits), (8, 9, exits)];
        case.transfers = steps.map(|(from, to, count)| Transfer { from, to: Some(to), count }).to_vec();
        case.analyze().blocks[1].per_entry
    };
    // The loop has four turns on average: one of four branches was observed to leave it.
    let seen = with(250.0).expect("seen often");
    assert!((seen.executions / 4.0).ln().abs() < 0.2 && seen.entered == Entered::Loop, "{seen:?}");
    // If no exit was observed, the number of turns may be anything above some hundred.
    assert_eq!(with(0.0), None);
}

#[test]
fn a_word_that_counts_in_a_loop_says_nothing_about_its_entries() {
    let code = "again:\nadd rax, 1\ncmp rdi, rax\njne again\nret";
    let mut case = Case::new("amd-zen4", Arch::X86_64, x86(code));
    (case.samples, case.period_cycles) = (vec![700, 700, 700, 0], Some(1e6));
    let mut per_entry = |in_code| {
        case.absolute = vec![AbsoluteCount { at: 0, frequency: 1000.0, deviation: 0.02, in_code }];
        let analysis = case.analyze();
        assert_eq!(analysis.scale.kind, ScaleKind::Absolute);
        analysis.blocks[0].per_entry
    };
    assert_eq!(per_entry(false), None);
    // Counters in the code count all blocks of a function.
    assert!(per_entry(true).is_some());
}

/// Two loops, one after the other, of millions of turns: no burst sees how one ends or the other begins.
const LOOPS: &str = "\
    first:
    add rax, 1
    cmp rdi, rax
    jne first
    second:
    add rax, rcx
    cmp rsi, rax
    jne second
    ret";

#[test]
fn bursts_count_loops_that_none_of_them_leaves() {
    let mut case = Case::new("amd-zen4", Arch::X86_64, x86(LOOPS));
    // Both loops take the same time, but the second one does ten times as many turns in it.
    case.samples = vec![700, 700, 700, 700, 700, 700, 0];
    case.transfers =
        [(2, 0, 1e4), (5, 3, 1e5)].map(|(from, to, count)| Transfer { from, to: Some(to), count }).to_vec();
    let analysis = case.analyze();
    let frequency = |i: usize| analysis.instructions[i].frequency.unwrap();
    let ratio = frequency(3) / frequency(0);
    assert!((8.0..12.5).contains(&ratio), "{ratio}");
}

#[test]
fn counted_places_correct_misleading_cycles() {
    let mut case = diamond();
    let counted =
        |at: usize, deviation| Counted { at, executions: 7.0 * EXECUTIONS[at], deviation, group: 5 };
    case.counted = vec![counted(1, 0.05), counted(4, 0.05), counted(6, 0.05), counted(9, 0.05)];
    // This count comes from another phase with a scale of its own. It must not be mixed with the others, on whose scale
    // it would be far too high.
    case.counted.push(Counted { at: 3, executions: 1e9, deviation: 0.2, group: 6 });
    assert_near(&case, 0.1);
    let analysis = case.analyze();
    assert_eq!(analysis.basis.counted, 5);
    assert!(analysis.notes[0].contains("counted windows of 5 places"), "{:?}", analysis.notes);
    assert!(analysis.blocks.iter().all(|b| b.confidence == Confidence::Low), "the scale is a guess");
}

#[test]
fn bursts_and_windows_are_fitted_together() {
    let mut case = diamond();
    // Bursts show how many turns the loop takes, windows how often each side runs, both on their own scales.
    let steps = [(8, 1, 7500.0), (8, 9, 2500.0)];
    case.transfers = steps.map(|(from, to, count)| Transfer { from, to: Some(to), count }).to_vec();
    let counted = |at: usize| Counted { at, executions: 1e-9 * EXECUTIONS[at], deviation: 0.03, group: 5 };
    case.counted = vec![counted(4), counted(6)];
    assert_near(&case, 0.1);
    let notes = case.analyze().notes;
    assert!(notes[0].contains("10000 stepped transfers and counted windows of 2 places"), "{notes:?}");
}

#[test]
fn calls_and_returns_in_bursts_join_procedures() {
    let mut case = Case::new("amd-zen4", Arch::X86_64, x86("add rax, rcx\nret"));
    case.samples = vec![500, 500];
    let analysis = case.analyze();
    let left = |count| vec![Transfer { from: 1, to: None, count }];
    let (often, seldom) = (left(3e4), left(1e4));
    let instructions = &case.instructions;
    let member =
        |transfers| Member { instructions, analysis: &analysis, transfers, counted: &[], bursts: &[] };
    let bursts = Bursts::default();
    let shapes = program::shapes(&[member(&often), member(&seldom)]);
    let scales = program::scales(&shapes, &bursts);
    assert!((scales[0].factor / scales[1].factor / 3.0).ln().abs() < 0.05, "{scales:?}");
}

#[test]
fn retired_instructions_fix_the_scale() {
    let mut case = diamond();
    case.period_cycles = Some(1e6);
    let samples: Vec<u64> = EXECUTIONS.iter().map(|&e| e as u64).collect();
    case.events.insert(Event::INSTRUCTIONS, (samples, 100_000));
    assert_near(&case, 0.05);
    let analysis = case.analyze();
    // One sample stands for 100,000 instructions, one sample of time for 1,000,000 cycles. Frequencies are in the
    // latter unit.
    let frequency = analysis.instructions[1].frequency.unwrap();
    assert!((frequency / 400.0 - 1.0).abs() < 0.05, "{frequency}");
    assert!(analysis.blocks.iter().all(|b| b.confidence == Confidence::High), "{:?}", analysis.blocks);
    assert_eq!(analysis.basis.retired, 29_000);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn hostile_evidence_does_not_panic(
        parts in prop::collection::vec(any_instruction(), 1..60),
        samples in prop::collection::vec(prop_oneof![Just(0u64), 0u64..5000, Just(u64::MAX / 2)], 60),
        retired in prop::collection::vec(prop_oneof![Just(0u64), 0u64..5000, Just(u64::MAX)], 0..70),
        steps in prop::collection::vec(
            (0usize..80, prop::option::of(0usize..80),
             prop_oneof![0.0..1e6, Just(f64::MAX), Just(f64::NAN), Just(-1.0)]), 0..40),
        counted in prop::collection::vec(
            (0usize..80, prop_oneof![0.0..1e6, Just(f64::MAX), Just(f64::NAN), Just(-1.0), Just(1e-99)],
             prop_oneof![0.01..1.0, Just(f64::INFINITY), Just(0.0), Just(1e-99)], 0usize..3), 0..20),
        scale in prop_oneof![Just(1.0), Just(0.0), Just(f64::NAN), Just(1e300), Just(1e-300)],
        period in prop_oneof![Just(0u64), Just(1), Just(1_000_000), Just(u64::MAX)],
        machine in 0usize..99,
    ) {
        let instructions = build(&parts);
        let transfers: Vec<Transfer> =
            steps.iter().map(|&(from, to, count)| Transfer { from, to, count }).collect();
        let counted: Vec<Counted> = counted
            .iter()
            .map(|&(at, executions, deviation, group)| Counted { at, executions, deviation, group })
            .collect();
        let events = BTreeMap::from([(Event::INSTRUCTIONS, (retired, period))]);
        let name = MachineModel::names().nth(machine % MachineModel::names().count()).unwrap();
        let input = ProcedureInput {
            arch: Arch::X86_64,
            instructions: &instructions,
            jump_targets: &BTreeMap::new(),
            time_samples: &samples[..instructions.len()],
            period_cycles: Some(1e6),
            event_samples: &events,
            branch_directions: &[],
            transfers: &transfers,
            counted: &counted,
            absolute: &[],
            outer: OuterScale { factor: scale, ..OuterScale::default() },
        };
        let analysis = analyze(&input, MachineModel::named(name).unwrap());
        prop_assert_eq!(verify_analysis(&analysis, instructions.len()), Ok(()));
        let in_bursts: Vec<BurstTransfer> = (0..4)
            .flat_map(|burst| transfers.iter().map(move |t| BurstTransfer { burst, from: t.from, count: t.count }))
            .collect();
        let member = Member {
            instructions: &instructions,
            analysis: &analysis,
            transfers: &transfers,
            counted: &counted,
            bursts: &in_bursts,
        };
        let all = transfers.iter().map(|t| t.count).sum();
        let times = [Some(scale * all), Some(scale * all), Some(scale * all), None];
        let all = times.map(|cycles| Burst { cycles, transfers: all }).to_vec();
        let bursts = Bursts { all, ..Bursts::default() };
        let shapes = program::shapes(&[member, member]);
        for scale in program::scales(&shapes, &bursts) {
            prop_assert!(scale.factor.is_finite() && scale.factor > 0.0, "{:?}", scale);
            // However short the bursts' times are, nothing impossible follows.
            let input = ProcedureInput { outer: scale, ..input.clone() };
            let possible = analyze_verified(&input, MachineModel::named(name).unwrap());
            prop_assert!(possible.is_ok(), "{:?}", possible.err());
        }
    }
}
