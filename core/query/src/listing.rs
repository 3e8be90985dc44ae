//! `annotate`: one procedure, instruction by instruction.

use std::collections::{BTreeMap, BTreeSet};

use dwell_analysis::{Block, Cause, Confidence, DataSource, Edge, InstructionCost, Level, StallKind};
use dwell_profile::path_to_text;

use crate::{
    answer::{
        Listing, ListingBlock, ListingImage, ListingInstruction, ListingKernel, ListingProcedure,
        ListingSource, ListingStall, ListingSuccessor, Period,
    },
    costs::ProcedureCosts,
    procedures::ProcedureSamples,
    selection::Selection,
    writers::Writers,
};

/// The answer for a procedure that was analysed.
pub fn listing(selection: &Selection, procedure: &ProcedureSamples, costs: &ProcedureCosts) -> Listing {
    let record = &selection.images[procedure.image].record;
    let period_cycles = selection.period_cycles();
    let analysis = &costs.analysis;
    let writers = |arch| Writers::new(arch, &costs.instructions, &analysis.blocks, &analysis.edges);
    let writers = costs.arch().map(writers);
    Listing {
        schema: 1,
        image: ListingImage {
            path: path_to_text(&record.path).into_owned(),
            build_id: record.id.to_string(),
            arch: costs.arch().map_or("", |arch| arch.name()).to_owned(),
        },
        procedure: ListingProcedure {
            name: procedure.name.clone(),
            demangled: procedure.demangled.clone(),
            address: procedure.address.map_or(0, |a| a.0),
            size: procedure.size_bytes,
            samples: selection.named(&procedure.counts),
            share: selection.share(&procedure.counts),
        },
        epoch: selection.name(),
        machine_model: costs.model.name().to_owned(),
        period: periods(selection),
        time_event: selection.primary().map_or("", |e| e.name()).to_owned(),
        period_cycles,
        blocks: costs
            .analysis
            .blocks
            .iter()
            .enumerate()
            .map(|(i, b)| block(costs, i, b, period_cycles))
            .collect(),
        instructions: (0..costs.instructions.len())
            .map(|i| ListingInstruction {
                operands: writers.as_ref().map_or_else(Vec::new, |w| w.operands(i)),
                ..instruction(selection, costs, i, period_cycles)
            })
            .collect(),
        source_lines: BTreeMap::new(),
        notes: selection.notes.iter().chain(&costs.analysis.notes).cloned().collect(),
    }
}

/// Adds the text of the lines that instructions name; `text_of` gives a file as it was built.
pub fn add_source_lines(listing: &mut Listing, text_of: impl Fn(&str) -> Option<String>) {
    let mut wanted: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    for i in &listing.instructions {
        if let (Some(file), Some(line)) = (&i.file, i.line) {
            wanted.entry(file).or_default().insert(line);
        }
    }
    let found = wanted.into_iter().filter_map(|(file, lines)| {
        let text = text_of(file)?;
        let kept = text.lines().enumerate().map(|(i, t)| (i as u32 + 1, t.to_owned()));
        Some((file.to_owned(), kept.filter(|(n, _)| lines.contains(n)).collect()))
    });
    listing.source_lines = found.collect();
}

fn periods(selection: &Selection) -> BTreeMap<String, Period> {
    let records = selection.epochs.iter().flat_map(|e| &e.events);
    records
        .map(|(event, r)| {
            (event.name().to_owned(), Period { value: r.period, unit: r.unit.name().to_owned() })
        })
        .collect()
}

fn block(costs: &ProcedureCosts, index: usize, block: &Block, period: Option<f64>) -> ListingBlock {
    let successors = costs.analysis.edges.iter().filter(|e| e.from == index);
    ListingBlock {
        address: address_of_block(costs, block),
        frequency: block.frequency,
        executions: block.frequency.zip(period).map(|(f, p)| f * p),
        confidence: confidence_name(block.confidence).to_owned(),
        cpi: block.cpi,
        best_case_cpi: block.best_case_cpi,
        successors: successors.map(|e| successor(costs, e, period)).collect(),
    }
}

fn successor(costs: &ProcedureCosts, edge: &Edge, period: Option<f64>) -> ListingSuccessor {
    ListingSuccessor {
        to: address_of_block(costs, &costs.analysis.blocks[edge.to]),
        frequency: edge.frequency,
        executions: edge.frequency.zip(period).map(|(f, p)| f * p),
    }
}

fn address_of_block(costs: &ProcedureCosts, block: &Block) -> u64 {
    costs.instructions[block.instructions.start].address.0
}

/// One instruction (an index) with its cost; `period`: cycles between two samples.
pub fn instruction(
    selection: &Selection,
    costs: &ProcedureCosts,
    index: usize,
    period: Option<f64>,
) -> ListingInstruction {
    let instruction = &costs.instructions[index];
    let cost = &costs.analysis.instructions[index];
    let (file, line) = costs.lines[index].clone().map_or((None, None), |(f, l)| (Some(f), Some(l)));
    ListingInstruction {
        address: instruction.address.0,
        text: instruction.text.to_string(),
        file: file.map(|f| f.to_string()),
        line,
        samples: selection.named(&costs.samples[index]),
        head_samples: cost.head_samples,
        executions: cost.frequency.zip(period).map(|(f, p)| f * p),
        cpi: cost.cpi,
        issue_cycles_min: cost.issue_cycles_min,
        gain_cycles: cost.gain_cycles,
        confidence: confidence_name(cost.confidence).to_owned(),
        stalls: stalls(costs, cost),
        kernel: cost.kernel.map(|k| ListingKernel {
            cause: cause_name(k.cause).to_owned(),
            samples: k.samples,
            cycles: k.cycles,
        }),
        operands: Vec::new(),
    }
}

/// Static ones first, the likelier of those that explain as much before the others.
fn stalls(costs: &ProcedureCosts, cost: &InstructionCost) -> Vec<ListingStall> {
    let mut stalls: Vec<_> = cost.stalls.iter().collect();
    stalls.sort_by(|a, b| {
        let dynamic = (a.kind == StallKind::Dynamic).cmp(&(b.kind == StallKind::Dynamic));
        let most = b.cycles_max.total_cmp(&a.cycles_max);
        dynamic.then(most).then(likelihood(a.cause).cmp(&likelihood(b.cause)))
    });
    let answer = stalls.into_iter().map(|s| ListingStall {
        kind: kind_name(s.kind).to_owned(),
        cause: cause_name(s.cause).to_owned(),
        cycles_min: s.cycles_min,
        cycles_max: s.cycles_max,
        culprit_address: s.culprit.map(|c| costs.instructions[c].address.0),
        sources: s.sources.iter().map(|d| source(*d)).collect(),
    });
    answer.collect()
}

fn source(source: DataSource) -> ListingSource {
    let level = match source.level {
        Level::Second => "l2",
        Level::Last => "last-level",
        Level::Memory => "memory",
    };
    ListingSource { level: level.to_owned(), part: source.part }
}

/// Which of several causes that explain as much is named first: DCPI §6.3 lists them all, but one comes first.
/// Data misses and mispredictions are common; the rest is rare, and translation misses come with data misses.
pub fn likelihood(cause: Cause) -> u32 {
    match cause {
        Cause::DCacheMiss => 0,
        Cause::BranchMispredict => 1,
        Cause::Divider | Cause::Multiplier | Cause::Synchronization | Cause::System => 2,
        Cause::WriteBuffer | Cause::StoreForwarding => 3,
        Cause::DtlbMiss => 4,
        Cause::ICacheMiss => 5,
        Cause::ItlbMiss => 6,
        Cause::Aliasing4K | Cause::PageFault => 6,
        Cause::Slotting | Cause::Dependency | Cause::FunctionalUnit => 7,
        Cause::Unexplained => 8,
    }
}

/// `static` or `dynamic`.
pub fn kind_name(kind: StallKind) -> &'static str {
    match kind {
        StallKind::Static => "static",
        StallKind::Dynamic => "dynamic",
    }
}

/// `low`, `medium`, `high`.
pub fn confidence_name(confidence: Confidence) -> &'static str {
    match confidence {
        Confidence::Low => "low",
        Confidence::Medium => "medium",
        Confidence::High => "high",
    }
}

/// A cause's name in answers.
pub fn cause_name(cause: Cause) -> &'static str {
    match cause {
        Cause::Slotting => "slotting",
        Cause::Dependency => "dependency",
        Cause::FunctionalUnit => "functional-unit",
        Cause::ICacheMiss => "i-cache-miss",
        Cause::ItlbMiss => "itlb-miss",
        Cause::DCacheMiss => "d-cache-miss",
        Cause::DtlbMiss => "dtlb-miss",
        Cause::WriteBuffer => "write-buffer",
        Cause::Synchronization => "synchronization",
        Cause::BranchMispredict => "branch-mispredict",
        Cause::Divider => "divider",
        Cause::Multiplier => "multiplier",
        Cause::StoreForwarding => "store-forwarding",
        Cause::Aliasing4K => "4k-aliasing",
        Cause::System => "system",
        Cause::PageFault => "page-fault",
        Cause::Unexplained => "unexplained",
    }
}
