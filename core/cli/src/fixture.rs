//! Answers made up for tests of what is printed.
//!
//! Input: the kind of scale. Output: a listing of two blocks, a line with a cost. Never here: anything that is read from a profile.

use std::collections::BTreeMap;

use dwell_query::answer::{
    Confidence, LineCost, LineCulprit, LineTie, Listing, ListingBlock, ListingImage, ListingInstruction,
    ListingProcedure, ListingScale, ListingStall, Period, ScaleKind, StallKind,
};

/// Returns a listing of a loop that waits for memory, and of its entry. Executions are known if `scale` is absolute.
pub fn listing(scale: ScaleKind) -> Listing {
    let is_absolute = scale == ScaleKind::Absolute;
    let mut entry = instruction(is_absolute, 0x1000, 1.0, "xor eax, eax", 0.0);
    entry.cpi = None;
    let mut load = instruction(is_absolute, 0x1002, 50.0, "mov rdi, qword ptr [rdi + 0x10]", 3000.0);
    load.stalls = vec![stall("d-cache-miss", "D-cache miss", 'd'), stall("dtlb-miss", "DTLB miss", 'D')];
    let back = instruction(is_absolute, 0x1006, 50.0, "jne 0x1002", 40.0);
    Listing {
        schema: 1,
        image: ListingImage { path: "/bin/walk".into(), build_id: "ab".into(), arch: "x86_64".into() },
        procedure: ListingProcedure {
            name: "walk".into(),
            demangled: "walk".into(),
            address: 0x1000,
            size: 8,
            samples: BTreeMap::from([("cpu-clock".to_owned(), 3040)]),
            share: 0.28,
        },
        epoch: "e1".into(),
        machine_model: "amd-zen4".into(),
        period: BTreeMap::from([("cpu-clock".to_owned(), Period { value: 1_000_000, unit: "ns".into() })]),
        time_event: "cpu-clock".into(),
        period_cycles: Some(3e6),
        period_seconds: Some(1e-3),
        scale: ListingScale { kind: scale, evidence: Vec::new() },
        blocks: vec![block(is_absolute, 0x1000, 1.0), block(is_absolute, 0x1002, 50.0)],
        instructions: vec![entry, load, back],
        source_lines: BTreeMap::new(),
        notes: Vec::new(),
    }
}

/// Returns the executions, their ends and the ratio of a block or instruction that ran `millions` of times.
fn executions(is_absolute: bool, millions: f64) -> [Option<f64>; 4] {
    let number = |part: f64| is_absolute.then_some(part * millions * 1e6);
    [number(1.0), number(0.98), number(1.02), Some(millions)]
}

fn block(is_absolute: bool, address: u64, millions: f64) -> ListingBlock {
    let [executions, executions_min, executions_max, executions_relative] = executions(is_absolute, millions);
    ListingBlock {
        address,
        frequency: Some(millions),
        executions,
        executions_min,
        executions_max,
        executions_relative,
        per_entry: None,
        confidence: Confidence::High,
        cpi: is_absolute.then_some(66.0),
        cpi_min: if is_absolute { 64.5 } else { 4.0 },
        cpi_max: is_absolute.then_some(67.5),
        best_case_cpi: 1.3,
        successors: Vec::new(),
    }
}

fn instruction(
    is_absolute: bool,
    address: u64,
    millions: f64,
    text: &str,
    head_samples: f64,
) -> ListingInstruction {
    let [executions, executions_min, executions_max, executions_relative] = executions(is_absolute, millions);
    ListingInstruction {
        address,
        text: text.into(),
        file: None,
        line: None,
        samples: BTreeMap::new(),
        head_samples,
        executions,
        executions_min,
        executions_max,
        executions_relative,
        cpi: is_absolute.then_some(head_samples * 0.044),
        cpi_min: if is_absolute { head_samples * 0.043 } else { 0.17 },
        cpi_max: is_absolute.then_some(head_samples * 0.045),
        issue_cycles_min: 0.17,
        gain_cycles: 0.0,
        confidence: Confidence::High,
        stalls: Vec::new(),
        kernel: None,
        operands: Vec::new(),
    }
}

/// Returns a stall whose culprit is the instruction before it.
fn stall(cause: &str, label: &'static str, letter: char) -> ListingStall {
    ListingStall {
        kind: StallKind::Dynamic,
        cause: cause.into(),
        label,
        letter,
        cycles_min: 0.0,
        cycles_max: 130.0,
        share_min: 0.0,
        share_max: 0.98,
        culprit_address: Some(0x1000),
        levels: Vec::new(),
        sources: Vec::new(),
    }
}

/// Returns the cost of line 43, which waits for memory because of line 41.
pub fn line_cost() -> LineCost {
    let culprit = LineCulprit {
        kind: StallKind::Dynamic,
        cause: "d-cache-miss".into(),
        label: "D-cache miss",
        cycles_min: None,
        cycles_max: None,
        share_max: 0.9,
        file: None,
        line: Some(41),
    };
    let tie = LineTie {
        text: "waits for memory (D-cache or DTLB miss)".into(),
        culprits: vec![0],
        share_max: 0.9,
        cycles_min: None,
        cycles_max: None,
    };
    LineCost {
        line: 43,
        samples: BTreeMap::new(),
        share: 0.28,
        cycles: Some(9e9),
        seconds: Some(3.0),
        scale: ScaleKind::Absolute,
        executions: Some(50e6),
        executions_min: Some(49e6),
        executions_max: Some(51e6),
        per_entry: None,
        cpi: Some(66.0),
        cpi_min: 64.5,
        cpi_max: Some(67.5),
        best_case_cpi: Some(1.3),
        confidence: Confidence::High,
        culprits: vec![culprit],
        ties: vec![tie],
        procedures: Vec::new(),
    }
}
