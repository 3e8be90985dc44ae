//! Evidence beside time, in order: a side of a branch all of whose issue points stall is known by what was counted.

use dwell_analysis::{Counted, ProcedureAnalysis, Transfer};
use dwell_image::Arch;
use dwell_profile::Event;
use expect_test::{Expect, expect};

use crate::{asm::a64, show::Case};

/// A loop of four turns with a diamond that goes left three times of four; three exits.
const DIAMOND: &str = "\
    mov x0, #0
    loop:
    add x0, x0, #1
    cmp x1, x0
    b.eq right
    ldr x2, [x3]
    add x2, x2, x7
    b join
    right:
    ldr x4, [x5]
    add x4, x4, x7
    join:
    add x8, x8, #1
    eor x9, x8, x7
    cmp x2, x6
    b.ne loop
    ret";
const EXECUTIONS: [f64; 14] = [1e3, 4e3, 4e3, 4e3, 3e3, 3e3, 3e3, 1e3, 1e3, 4e3, 4e3, 4e3, 4e3, 1e3];
/// Cycles that every instruction of the left side and of the right one stalls.
const STALLS: [(std::ops::Range<usize>, f64); 2] = [(4..7, 1.5), (7..9, 40.0)];

/// Transfers within the procedure: the first branch both ways, the left side's jump, the last branch.
const INSIDE: [(usize, Option<usize>, f64); 5] = [
    (3, Some(4), 7500.0),
    (3, Some(7), 2500.0),
    (6, Some(9), 7500.0),
    (12, Some(1), 7500.0),
    (12, Some(13), 2500.0),
];

fn diamond() -> Case<'static> {
    let mut case = Case::new("generic-inorder-2", Arch::Aarch64, a64(DIAMOND));
    case.period_cycles = Some(1e6);
    case.samples = vec![1; case.instructions.len()];
    let stall = |i: usize| STALLS.iter().find(|s| s.0.contains(&i)).map_or(0.0, |s| s.1);
    let cycles: Vec<f64> = case.analyze().instructions.iter().map(|i| i.issue_cycles_min).collect();
    case.samples = (0..cycles.len()).map(|i| (EXECUTIONS[i] * (cycles[i] + stall(i))) as u64).collect();
    case
}

/// Each block's frequency and confidence, what they rest on, and the notes.
fn told(ProcedureAnalysis { blocks, notes, basis, .. }: &ProcedureAnalysis) -> String {
    let blocks: Vec<String> =
        blocks.iter().map(|b| format!("{:.0} {:?}", b.frequency.expect("sampled"), b.confidence)).collect();
    format!("{}\n{basis:?}\n{}", blocks.join(", "), notes.join("\n"))
}

fn check(add: impl FnOnce(&mut Case), expected: Expect) {
    let mut case = diamond();
    add(&mut case);
    expected.assert_eq(&told(&case.analyze()));
}

fn transfers(seen: &[(usize, Option<usize>, f64)]) -> Vec<Transfer> {
    seen.iter().map(|&(from, to, count)| Transfer { from, to, count }).collect()
}

fn counted(at: usize, times: f64, group: usize) -> Counted {
    Counted { at, executions: times * EXECUTIONS[at], deviation: 0.03, group }
}

#[test]
fn time_alone_leaves_stalled_sides_uncertain() {
    check(
        |_| (),
        expect![[r#"
        1000 Low, 4004 High, 3981 Low, 23 Low, 4004 High, 1000 Low
        Basis { directions: 0, steps: 0.0, counted: 0, retired: 0, absolute: 0 }
    "#]],
    );
}

#[test]
fn samples_of_instructions_determine_frequencies() {
    let samples = |times: f64| EXECUTIONS.iter().map(|e| (times * e) as u64).collect::<Vec<u64>>();
    let event = |times: f64, period| (Event::INSTRUCTIONS, (samples(times), period));
    check(
        |case| case.events.extend([event(1.0, 1_000_000)]),
        expect![[r#"
        1000 High, 4000 High, 3000 High, 1000 High, 4000 High, 1000 High
        Basis { directions: 0, steps: 0.0, counted: 0, retired: 41000, absolute: 0 }
        frequencies rest on cycles and 41000 samples of retired instructions"#]],
    );
    // The period is ten times longer, so there are a tenth of the samples.
    check(
        |case| case.events.extend([event(0.1, 10_000_000)]),
        expect![[r#"
        1000 High, 4000 High, 3000 High, 1000 Low, 4000 High, 1000 High
        Basis { directions: 0, steps: 0.0, counted: 0, retired: 4100, absolute: 0 }
        frequencies rest on cycles and 4100 samples of retired instructions"#]],
    );
}

#[test]
fn steps_determine_frequencies() {
    check(
        |case| case.transfers = transfers(&INSIDE),
        expect![[r#"
        1000 Low, 4000 High, 3000 Low, 1000 Low, 4000 High, 1000 Low
        Basis { directions: 0, steps: 27500.0, counted: 0, retired: 0, absolute: 0 }
        frequencies rest on cycles and 27500 stepped transfers"#]],
    );
    // The evidence includes the return, too.
    let all = [&INSIDE[..], &[(13, None, 2500.0)]].concat();
    check(
        |case| case.transfers = transfers(&all),
        expect![[r#"
        1000 High, 4000 High, 3000 Low, 1000 Low, 4000 High, 1000 High
        Basis { directions: 0, steps: 30000.0, counted: 0, retired: 0, absolute: 0 }
        frequencies rest on cycles and 30000 stepped transfers"#]],
    );
}

#[test]
fn windows_determine_frequencies() {
    check(
        |case| case.counted = vec![counted(4, 7.0, 5), counted(9, 7.0, 5)],
        expect![[r#"
        1000 Low, 4000 High, 3000 Low, 1000 Low, 4000 High, 1000 Low
        Basis { directions: 0, steps: 0.0, counted: 2, retired: 0, absolute: 0 }
        frequencies rest on cycles and counted windows of 2 places"#]],
    );
    // Both sides stall, but together they run as often as the loop turns.
    check(
        |case| case.counted = vec![counted(4, 7.0, 5), counted(8, 7.0, 5)],
        expect![[r#"
        1000 Low, 4000 High, 3000 Low, 1000 Low, 4000 High, 1000 Low
        Basis { directions: 0, steps: 0.0, counted: 2, retired: 0, absolute: 0 }
        frequencies rest on cycles and counted windows of 2 places"#]],
    );
    // One place belongs to a group of its own, so its scale is shared with no other place.
    check(
        |case| case.counted = vec![counted(4, 7.0, 5), counted(9, 7.0, 6)],
        expect![[r#"
        1000 Low, 4004 High, 3981 Low, 23 Low, 4004 High, 1000 Low
        Basis { directions: 0, steps: 0.0, counted: 2, retired: 0, absolute: 0 }
        frequencies rest on cycles and counted windows of 2 places"#]],
    );
}

#[test]
fn all_evidence_is_used() {
    check(
        |case| {
            case.counted = vec![counted(4, 1e-6, 5), counted(9, 1e-6, 5)];
            case.transfers = transfers(&INSIDE);
            case.events.insert(Event::INSTRUCTIONS, (EXECUTIONS.map(|e| e as u64).to_vec(), 1_000_000));
        },
        expect![[r#"
            1000 High, 4000 High, 3000 High, 1000 High, 4000 High, 1000 High
            Basis { directions: 0, steps: 27500.0, counted: 2, retired: 41000, absolute: 0 }
            frequencies rest on cycles, 41000 samples of retired instructions, 27500 stepped transfers and counted windows of 2 places"#]],
    );
}

/// If edges are missing, each block is estimated from its own samples.
#[test]
fn instructions_count_without_a_graph() {
    let mut case = Case::new("generic-inorder-2", Arch::Aarch64, a64("ldr x2, [x3]\nadd x2, x2, x7\nbr x2"));
    case.period_cycles = Some(1e6);
    case.samples = vec![9000, 90_000, 1000];
    case.events.insert(Event::INSTRUCTIONS, (vec![1000; 3], 1_000_000));
    expect![[r#"
        1000 High
        Basis { directions: 0, steps: 0.0, counted: 0, retired: 3000, absolute: 0 }
        the targets of an indirect jump are unknown: each block is estimated by itself
        frequencies rest on cycles and 3000 samples of retired instructions"#]]
    .assert_eq(&told(&case.analyze()));
}
