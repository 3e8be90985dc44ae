//! An analysed procedure ⇄ text, for readers who do not have its binary.
//!
//! Enters: an analysis and the code that it is of. Leaves: the same, from text that anybody may have written. Inlined calls, operands and the
//! targets of branches are not kept. Samples are not part of it: a reader counts them in the recordings.

use std::{collections::BTreeMap, sync::Arc};

use dwell_analysis::{Block, InstructionCost, Interval, MachineModel, ProcedureAnalysis, Stall};
use dwell_image::{ImageAddress, Instruction};
use serde::{Deserialize, Serialize};

use crate::{
    analyse::{
        costs::{ProcedureCosts, bare_instruction},
        procedures::ProcedureSamples,
    },
    load::{
        samples::{CountsByEvent, add_counts},
        selection::Selection,
    },
};

/// The version of the text. It grows when older readers would be wrong.
const VERSION: u32 = 1;

/// Says where the analysis comes from.
const NOTE: &str = "the binary is not on this machine: this analysis of it was stored beside the recordings";

/// The part of the text that all versions have.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    version: u32,
    instructions: Vec<StoredInstruction>,
    /// The source files that instructions refer to.
    files: Vec<Arc<str>>,
    analysis: ProcedureAnalysis,
}

#[derive(Serialize, Deserialize)]
struct StoredInstruction {
    address: ImageAddress,
    length: u8,
    mnemonic: Box<str>,
    text: Box<str>,
    /// Index of its source file, and line in it.
    line: Option<(usize, u32)>,
}

/// Returns an analysis as text.
pub fn write(costs: &ProcedureCosts) -> String {
    let mut files: BTreeMap<Arc<str>, usize> =
        costs.lines.iter().flatten().map(|(file, _)| (file.clone(), 0)).collect();
    files.values_mut().enumerate().for_each(|(index, file)| *file = index);
    let instruction = |(i, line): (&Instruction, &Option<(Arc<str>, u32)>)| StoredInstruction {
        address: i.address,
        length: i.length,
        mnemonic: i.mnemonic.clone(),
        text: i.text.clone(),
        line: line.as_ref().map(|(file, line)| (files[file], *line)),
    };
    let stored = Stored {
        version: VERSION,
        instructions: costs.instructions.iter().zip(&costs.lines).map(instruction).collect(),
        files: files.keys().cloned().collect(),
        analysis: costs.analysis.clone(),
    };
    serde_json::to_string(&stored).expect("plain data")
}

/// Reads the analysis of a procedure that begins where the text's does. Returns what is wrong with the text otherwise.
pub fn read(
    selection: &Selection,
    procedure: &ProcedureSamples,
    text: &str,
) -> Result<ProcedureCosts, String> {
    let Stored { instructions, files, mut analysis, .. } = parse(text)?;
    let model = MachineModel::for_cpu(&selection.epochs.last().ok_or("there is no recording")?.cpu);
    check_numbers(&analysis, model)?;
    let samples = counts(selection, procedure, &instructions);
    analysis.notes.push(NOTE.to_owned());
    let line = |i: &StoredInstruction| i.line.map(|(file, line)| (files[file].clone(), line));
    Ok(ProcedureCosts {
        image: None,
        model,
        samples,
        lines: instructions.iter().map(line).collect(),
        instructions: instructions
            .into_iter()
            .map(|i| Instruction {
                length: i.length,
                mnemonic: i.mnemonic,
                text: i.text,
                ..bare_instruction(i.address)
            })
            .collect(),
        analysis,
    })
}

fn parse(text: &str) -> Result<Stored, String> {
    let Versioned { version } = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if version != VERSION {
        return Err(format!("it has version {version}, this dwell reads {VERSION}"));
    }
    let stored: Stored = serde_json::from_str(text).map_err(|error| error.to_string())?;
    check(&stored.instructions, &stored.files, &stored.analysis)?;
    Ok(stored)
}

/// Checks all that other code takes for granted.
fn check(
    instructions: &[StoredInstruction],
    files: &[Arc<str>],
    analysis: &ProcedureAnalysis,
) -> Result<(), String> {
    let ascend = instructions.windows(2).all(|pair| pair[0].address < pair[1].address);
    let is_named = |i: &StoredInstruction| i.line.is_none_or(|(file, _)| file < files.len());
    let mut next = 0;
    let all_in_blocks = analysis.blocks.iter().all(|block| {
        let is_next = block.instructions.start == next && block.instructions.end > next;
        next = block.instructions.end;
        is_next
    });
    let blocks = analysis.blocks.len();
    let is_there = |culprit: Option<usize>| culprit.is_none_or(|culprit| culprit < instructions.len());
    let stalls = || analysis.instructions.iter().flat_map(|cost| &cost.stalls);
    let all = [
        !instructions.is_empty() && ascend,
        instructions.iter().all(|i| i.length > 0 && is_named(i)),
        all_in_blocks && next == instructions.len(),
        analysis.edges.iter().all(|edge| edge.from < blocks && edge.to < blocks),
        analysis.instructions.len() == instructions.len(),
        stalls().all(|stall| is_there(stall.culprit)),
    ];
    if all.contains(&false) { Err("its parts do not fit together".to_owned()) } else { Ok(()) }
}

/// Checks that no number is impossible: negative, outside of its range, or a block faster than the processor.
fn check_numbers(analysis: &ProcedureAnalysis, model: &MachineModel) -> Result<(), String> {
    // Two instructions at most are executed as one.
    let least = 0.5 / f64::from(model.issue_width.min(model.retire_width).max(1));
    let is_amount = |value: f64| value >= 0.0;
    let is_known_amount = |value: Option<f64>| value.is_none_or(|value| value.is_finite() && value >= 0.0);
    let is_range = |range: Interval| range.min >= 0.0 && range.min <= range.max;
    let is_part = |part: f64| (0.0..=1.0).contains(&part);
    let stall = |stall: &Stall| {
        is_range(Interval { min: stall.cycles_min, max: stall.cycles_max })
            && stall.sources.iter().all(|source| is_part(source.part))
    };
    let block = |block: &Block| {
        is_known_amount(block.frequency)
            && block.frequency_interval.is_none_or(is_range)
            && block.cpi.is_none_or(|cpi| cpi.is_finite() && cpi >= least)
            && is_range(block.cpi_interval)
            && is_amount(block.best_case_cpi)
            && block.per_entry.is_none_or(|entry| is_amount(entry.executions))
    };
    let instruction = |cost: &InstructionCost| {
        let amounts = [cost.issue_cycles_min, cost.best_case_cycles, cost.gain_cycles, cost.head_samples];
        is_known_amount(cost.frequency)
            && cost.frequency_interval.is_none_or(is_range)
            && is_known_amount(cost.cpi)
            && is_range(cost.cpi_interval)
            && amounts.into_iter().all(is_amount)
            && cost.stalls.iter().all(stall)
            && cost.kernel.is_none_or(|kernel| is_amount(kernel.cycles))
    };
    let all = analysis.blocks.iter().all(block)
        && analysis.edges.iter().all(|edge| is_known_amount(edge.frequency))
        && analysis.instructions.iter().all(instruction);
    if all { Ok(()) } else { Err("it has numbers that are impossible".to_owned()) }
}

/// Returns the samples of each instruction. A sample inside an instruction counts for that instruction.
fn counts(
    selection: &Selection,
    procedure: &ProcedureSamples,
    instructions: &[StoredInstruction],
) -> Vec<CountsByEvent> {
    let mut counts = vec![CountsByEvent::from_elem(0, selection.events.len()); instructions.len()];
    let points = &selection.images[procedure.image].points;
    // Where the binary is missing, procedures have offsets in place of addresses.
    let start = procedure.address.map_or(0, |address| address.0);
    for point in procedure.points.iter().map(|&point| point as usize) {
        let distance = points.offset(point).0.wrapping_sub(start);
        let address = instructions[0].address.offset(distance);
        let after = instructions.partition_point(|i| i.address <= address);
        if let Some(sum) = after.checked_sub(1).and_then(|at| counts.get_mut(at)) {
            add_counts(sum, points.counts(point));
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A text of two instructions, a block and an edge.
    fn text() -> Value {
        let cost = json!({
            "frequency": 1.5, "frequency_interval": {"min": 1.0, "max": null}, "confidence": "low", "cpi": null,
            "cpi_interval": {"min": 0.1, "max": null}, "issue_cycles_min": 0.0, "best_case_cycles": 0.0, "gain_cycles": 0.0,
            "head_samples": 3.0, "kernel": null, "stalls": [{
                "kind": "dynamic", "cause": "DCacheMiss", "cycles_min": 0.0, "cycles_max": 5.0, "culprit": 1,
                "sources": [{"level": "memory", "part": 0.5}]
            }]
        });
        let instruction = |address: u64| json!({"address": address, "length": 1, "mnemonic": "nop", "text": "nop", "line": [0, 3]});
        json!({
            "version": VERSION, "files": ["a.c"], "instructions": [instruction(16), instruction(17)],
            "analysis": {
                "blocks": [{
                    "instructions": {"start": 0, "end": 2}, "frequency": 1.5, "frequency_interval": null, "confidence": "high",
                    "cpi": 2.0, "cpi_interval": {"min": 1.0, "max": 3.0}, "best_case_cpi": 0.5, "class": 0,
                    "per_entry": {"executions": 2.0, "entered": "loop"}
                }],
                "edges": [{"from": 0, "to": 0, "frequency": null, "confidence": "medium"}],
                "instructions": [cost, cost], "missing_edges": false, "notes": [],
                "basis": {"directions": 0, "steps": 0.0, "counted": 0, "retired": 0, "absolute": 0},
                "scale": {"kind": "program", "deviation": null, "headroom": 2.0, "evidence": []}
            }
        })
    }

    #[test]
    fn what_is_written_is_read() {
        let stored = parse(&text().to_string()).unwrap();
        assert_eq!(stored.analysis.scale.deviation, f64::INFINITY);
        assert_eq!(stored.analysis.instructions[0].cpi_interval.max, f64::INFINITY);
        assert_eq!(serde_json::to_value(&stored).unwrap(), text());
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let changes = [
            ("/version", json!(VERSION + 1), "this dwell reads"),
            ("/instructions", json!([]), "fit together"),
            ("/instructions/1/address", json!(16), "fit together"),
            ("/instructions/1/length", json!(0), "fit together"),
            ("/instructions/1/line/0", json!(1), "fit together"),
            ("/analysis/blocks", json!([]), "fit together"),
            ("/analysis/blocks/0/instructions/start", json!(1), "fit together"),
            ("/analysis/blocks/0/instructions/end", json!(3), "fit together"),
            ("/analysis/edges/0/to", json!(1), "fit together"),
            ("/analysis/instructions/0/stalls/0/culprit", json!(2), "fit together"),
            ("/analysis/instructions/1", Value::Null, "invalid type"),
            ("/files", json!("a.c"), "invalid type"),
        ];
        for (place, value, why) in changes {
            let mut changed = text();
            *changed.pointer_mut(place).unwrap() = value;
            let error = parse(&changed.to_string()).map(|_| ()).unwrap_err();
            assert!(error.contains(why), "{place}: {error}");
        }
        assert!(parse(&"[".repeat(100_000)).is_err());
    }

    #[test]
    fn impossible_numbers_are_refused() {
        let model = MachineModel::named("amd-zen3").unwrap();
        let check = |text: &Value| check_numbers(&parse(&text.to_string()).unwrap().analysis, model);
        assert_eq!(check(&text()), Ok(()));
        let changes = [
            ("/analysis/blocks/0/cpi", json!(0.01)),
            ("/analysis/blocks/0/frequency", json!(-1.0)),
            ("/analysis/blocks/0/cpi_interval/min", json!(4.0)),
            ("/analysis/blocks/0/per_entry/executions", json!(-2.0)),
            ("/analysis/edges/0/frequency", json!(-1e300)),
            ("/analysis/instructions/0/cpi", json!(-0.5)),
            ("/analysis/instructions/1/head_samples", json!(-3.0)),
            ("/analysis/instructions/0/stalls/0/cycles_min", json!(6.0)),
            ("/analysis/instructions/0/stalls/0/sources/0/part", json!(1.5)),
        ];
        for (place, value) in changes {
            let mut changed = text();
            *changed.pointer_mut(place).unwrap() = value;
            assert!(check(&changed).is_err(), "{place}");
        }
    }
}
