//! Builds the answer of `annotate`: one procedure, instruction by instruction.

use std::collections::{BTreeMap, BTreeSet};

use dwell_analysis::{
    Block, Cause, DataSource, Edge, InstructionCost, Interval, Level, PerEntry, Stall, StallKind,
};
use dwell_profile::path_to_text;

use crate::{
    analyse::{costs::ProcedureCosts, procedures::ProcedureSamples, reaching_definitions::Writers},
    answer::{
        Listing, ListingBlock, ListingImage, ListingInstruction, ListingKernel, ListingPerEntry,
        ListingProcedure, ListingScale, ListingSource, ListingStall, ListingSuccessor, Period,
    },
    cause_names::names,
    load::selection::Selection,
};

/// Returns the answer for an analysed procedure.
pub fn listing(selection: &Selection, procedure: &ProcedureSamples, costs: &ProcedureCosts) -> Listing {
    let record = &selection.images[procedure.image].record;
    let period_cycles = selection.period_cycles();
    let analysis = &costs.analysis;
    let writers = |arch| Writers::new(arch, &costs.instructions, &analysis.blocks, &analysis.edges);
    let mut writers = costs.arch().map(writers);
    let successors = successors(costs);
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
            address: costs.begin(procedure).map_or(0, |a| a.0),
            size: procedure.size_bytes,
            samples: selection.named(&procedure.counts),
            share: selection.share(&procedure.counts),
        },
        epoch: selection.name(),
        machine_model: costs.model.name().to_owned(),
        period: periods(selection),
        time_event: selection.primary().map_or("", |e| e.name()).to_owned(),
        period_cycles,
        period_seconds: selection.period_seconds(),
        scale: ListingScale { kind: analysis.scale.kind, evidence: analysis.scale.evidence.clone() },
        blocks: costs
            .analysis
            .blocks
            .iter()
            .enumerate()
            .map(|(i, b)| block(costs, b, &successors[i], period_cycles))
            .collect(),
        instructions: (0..costs.instructions.len())
            .map(|i| ListingInstruction {
                operands: writers.as_mut().map_or_else(Vec::new, |w| w.operands(i)),
                ..instruction(selection, costs, i, period_cycles)
            })
            .collect(),
        source_lines: BTreeMap::new(),
        notes: selection.notes.iter().chain(&costs.analysis.notes).cloned().collect(),
    }
}

/// Adds the text of the source lines that instructions refer to. `text_of` returns the text of a file as it was built.
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

/// Returns the edges that leave each block.
fn successors(costs: &ProcedureCosts) -> Vec<Vec<&Edge>> {
    let mut successors = vec![Vec::new(); costs.analysis.blocks.len()];
    costs.analysis.edges.iter().for_each(|edge| successors[edge.from].push(edge));
    successors
}

fn block(costs: &ProcedureCosts, block: &Block, successors: &[&Edge], period: Option<f64>) -> ListingBlock {
    let relative = block.frequency.zip(period).map(|(f, p)| f * p);
    let interval = block.frequency_interval.zip(period);
    ListingBlock {
        address: address_of_block(costs, block),
        frequency: block.frequency,
        executions: relative.filter(|_| is_told(block.frequency_interval)),
        executions_min: interval.map(|(i, p)| i.min * p),
        executions_max: interval.map(|(i, p)| i.max * p),
        executions_relative: relative,
        per_entry: block.per_entry.map(per_entry),
        confidence: block.confidence,
        cpi: block.cpi.filter(|_| is_told(block.frequency_interval)),
        cpi_min: block.cpi_interval.min,
        cpi_max: bounded(block.cpi_interval),
        best_case_cpi: block.best_case_cpi,
        successors: successors.iter().map(|e| successor(costs, e, period)).collect(),
    }
}

fn successor(costs: &ProcedureCosts, edge: &Edge, period: Option<f64>) -> ListingSuccessor {
    let relative = edge.frequency.zip(period).map(|(f, p)| f * p);
    // The frequency of an edge is known no better than those of the blocks at its ends.
    let blocks = &costs.analysis.blocks;
    let are_told = [edge.from, edge.to].iter().all(|end| is_told(blocks[*end].frequency_interval));
    ListingSuccessor {
        to: address_of_block(costs, &blocks[edge.to]),
        frequency: edge.frequency,
        executions: relative.filter(|_| are_told),
        executions_relative: relative,
    }
}

/// Returns whether a frequency with this interval is an absolute number: the interval exists only if the scale is absolute.
pub fn is_told(interval: Option<Interval>) -> bool {
    interval.is_some_and(Interval::is_precise)
}

/// Returns the upper bound, if there is one.
pub fn bounded(interval: Interval) -> Option<f64> {
    Some(interval.max).filter(|max| max.is_finite())
}

/// Converts a ratio to its form in answers.
pub fn per_entry(ratio: PerEntry) -> ListingPerEntry {
    ListingPerEntry { executions: ratio.executions, of: ratio.entered }
}

fn address_of_block(costs: &ProcedureCosts, block: &Block) -> u64 {
    costs.instructions[block.instructions.start].address.0
}

/// Returns the instruction at `index` with its cost; `period` is the mean number of cycles between two samples.
pub fn instruction(
    selection: &Selection,
    costs: &ProcedureCosts,
    index: usize,
    period: Option<f64>,
) -> ListingInstruction {
    let instruction = &costs.instructions[index];
    let cost = &costs.analysis.instructions[index];
    let (file, line) = costs.lines[index].clone().map_or((None, None), |(f, l)| (Some(f), Some(l)));
    let relative = cost.frequency.zip(period).map(|(f, p)| f * p);
    let interval = cost.frequency_interval.zip(period);
    ListingInstruction {
        address: instruction.address.0,
        text: instruction.text.to_string(),
        file: file.map(|f| f.to_string()),
        line,
        samples: selection.named(&costs.samples[index]),
        head_samples: cost.head_samples,
        executions: relative.filter(|_| is_told(cost.frequency_interval)),
        executions_min: interval.map(|(i, p)| i.min * p),
        executions_max: interval.map(|(i, p)| i.max * p),
        executions_relative: relative,
        cpi: cost.cpi.filter(|_| is_told(cost.frequency_interval)),
        cpi_min: cost.cpi_interval.min,
        cpi_max: bounded(cost.cpi_interval),
        issue_cycles_min: cost.issue_cycles_min,
        gain_cycles: cost.gain_cycles,
        confidence: cost.confidence,
        stalls: stalls(costs, cost),
        kernel: cost.kernel.map(|k| ListingKernel {
            cause: names(k.cause).name.to_owned(),
            label: names(k.cause).label,
            letter: names(k.cause).letter,
            samples: k.samples,
            cycles: Some(k.cycles).filter(|_| is_told(cost.frequency_interval)),
        }),
        operands: Vec::new(),
    }
}

/// Returns the stalls of an instruction: static ones first, then those that may explain more, then the more likely ones.
fn stalls(costs: &ProcedureCosts, cost: &InstructionCost) -> Vec<ListingStall> {
    let mut stalls: Vec<_> = cost.stalls.iter().collect();
    stalls.sort_by(|a, b| {
        let dynamic = (a.kind == StallKind::Dynamic).cmp(&(b.kind == StallKind::Dynamic));
        let most = b.cycles_max.total_cmp(&a.cycles_max);
        dynamic.then(most).then(likelihood(a.cause).cmp(&likelihood(b.cause)))
    });
    let is_absolute = costs.is_absolute();
    let answer = stalls.into_iter().map(|s| {
        let range = stall_range(costs, cost, s);
        ListingStall {
            kind: s.kind,
            cause: names(s.cause).name.to_owned(),
            label: names(s.cause).label,
            letter: names(s.cause).letter,
            cycles_min: range.cycles.min,
            cycles_max: range.cycles.max,
            share_min: range.share.min,
            share_max: range.share.max,
            culprit_address: s.culprit.map(|c| costs.instructions[c].address.0),
            levels: s.sources.iter().map(|d| level_name(d.level).to_owned()).collect(),
            sources: s.sources.iter().map(|d| source(*d, is_absolute)).collect(),
        }
    });
    answer.collect()
}

/// Cost of a stall as cycles and as a share of the instruction's time.
pub struct StallRange {
    /// Cycles per execution. For a dynamic stall without an absolute scale, the maximum is no bound.
    pub cycles: Interval,
    /// Share of the instruction's time, 0 to 1.
    pub share: Interval,
}

/// Returns the cost of a stall, for any kind of scale. A dynamic stall takes the time that static stalls and the issue leave
/// over. Without an absolute scale its share is therefore known only in part.
pub fn stall_range(costs: &ProcedureCosts, cost: &InstructionCost, stall: &Stall) -> StallRange {
    let frequency = cost.frequency.unwrap_or(0.0);
    let all = if frequency > 0.0 { cost.head_samples / frequency } else { 0.0 };
    let part = |cycles: f64, of: f64| if of > 0.0 { (cycles / of).clamp(0.0, 1.0) } else { 0.0 };
    let told = Interval { min: stall.cycles_min, max: stall.cycles_max };
    let is_dynamic = stall.kind == StallKind::Dynamic;
    if costs.is_absolute() {
        return StallRange {
            cycles: told,
            share: Interval { min: part(told.min, all), max: part(told.max, all) },
        };
    }
    let least = cost.cpi_interval.min;
    if !is_dynamic {
        return StallRange { cycles: told, share: Interval { min: 0.0, max: part(told.max, least) } };
    }
    // The excess over the best case: estimated, and the least that is possible.
    let (excess, excess_min) = (all - cost.best_case_cycles, (least - cost.best_case_cycles).max(0.0));
    let min = part(told.min, excess) * excess_min;
    StallRange {
        cycles: Interval { min, max: told.max.max(min) },
        share: Interval { min: part(min, least), max: part(told.max, excess) },
    }
}

fn source(source: DataSource, is_absolute: bool) -> ListingSource {
    ListingSource { level: source.level, part: Some(source.part).filter(|_| is_absolute) }
}

/// Returns the usual name of a level of the memory hierarchy.
fn level_name(level: Level) -> &'static str {
    match level {
        Level::Second => "L2",
        Level::Last => "LLC",
        Level::Memory => "DRAM",
    }
}

/// Returns the rank by which causes that may explain equally much are ordered; the lowest rank comes first. DCPI §6.3 lists
/// all of them, but one has to come first. Data cache misses and mispredicted branches are common; other causes are rare,
/// and TLB misses usually accompany data cache misses.
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
