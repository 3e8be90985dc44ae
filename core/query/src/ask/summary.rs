//! Request `summary`: where the cycles of a procedure, an image or an epoch go (DCPI §3.3, Figure 4).
//!
//! Input: analysed procedures. Output: the share of each cause as a range. If the scale is absolute, every time sample of an
//! instruction with a known frequency is tallied exactly once: as execution, as a static stall, as a dynamic stall or gain, or
//! as sampling error. Otherwise the same samples may be executions or stalls, and everything is a range of what is possible.
//! Cost: the analysis of each procedure, on all processors.

use std::{collections::BTreeMap, ops::AddAssign};

use dwell_analysis::{Cause, InstructionCost, StallKind, machine::Order};
use dwell_image::{Arch, Instruction, Operand, RegisterSet};
use dwell_profile::path_to_text;

use crate::{
    Cancel, Query, QueryError,
    analyse::{
        costs::ProcedureCosts, listing::bounded, procedure_names, procedures::ProcedureSamples,
        totals::Totals,
    },
    answer::{CycleSplit, Summary, SummaryPart, SummaryRange, SummaryScope},
    cause_names::{names, summary_label},
    load::{filter::wants, selection::Selection},
    parallel::in_parallel,
    query::View,
};

/// A request to [`Query::summary`](crate::Query::summary).
#[derive(Clone, Debug, Default)]
pub struct SummaryRequest {
    /// Epochs to merge. If empty, the latest epoch is used.
    pub epochs: Vec<String>,
    /// If set, only this procedure (`NAME` or `IMAGE:NAME`).
    pub procedure: Option<String>,
    /// If set, only images whose path, file name or id contains this text. If nothing is set, everything.
    pub image: Option<String>,
    /// If set, only the samples in this function (`NAME` or `BINARY:NAME`) and in what it calls, by their call stacks.
    pub under: Option<String>,
}

impl Query {
    /// Returns where the cycles go.
    pub fn summary(&self, request: &SummaryRequest, cancel: &Cancel) -> Result<Summary, QueryError> {
        let view = self.view(&request.epochs)?;
        let selection = &view.selection;
        if !selection.primary().is_some_and(|e| e.is_time()) {
            return Err(QueryError::NoTime { epoch: selection.name() });
        }
        if let Some(name) = &request.under {
            return self.summary_under(&view, name, cancel);
        }
        let all = self.procedures(&view, cancel)?;
        let (scope, subjects) = match &request.procedure {
            Some(name) => {
                let one = procedure_names::by_name(selection, &self.store, all, name)?;
                let id = if one.id.is_empty() { name.clone() } else { one.id.clone() };
                (SummaryScope { kind: "procedure".to_owned(), name: id }, vec![one])
            }
            None => of_images(selection, all, &request.image)?,
        };
        let tally = self.tally(&view, &subjects, cancel)?;
        let mut answer = tally.answer(selection, scope, &machine_model(selection));
        answer.notes.extend(view.stored.note());
        Ok(answer)
    }

    fn tally(
        &self,
        view: &View,
        subjects: &[ProcedureSamples],
        cancel: &Cancel,
    ) -> Result<Tally, QueryError> {
        let tallies = in_parallel(subjects, |p| {
            let samples = p.counts.first().copied().unwrap_or(0);
            let matters = subjects.len() == 1 || view.selection.share(&p.counts) >= PROCEDURE_SHARE_MIN;
            let costs = (matters && cancel.check().is_ok()).then(|| self.costs_once(view, p)).flatten();
            Some(costs.map_or_else(|| Tally::left_out(samples), |c| Tally::new(&c, samples)))
        });
        cancel.check()?;
        let mut sum = Tally::default();
        tallies.iter().for_each(|t| sum.add(t));
        Ok(sum)
    }
}

/// Tallies every procedure of the requested images.
fn of_images(
    selection: &Selection,
    all: &[ProcedureSamples],
    part: &Option<String>,
) -> Result<(SummaryScope, Vec<ProcedureSamples>), QueryError> {
    let Some(name) = part else {
        return Ok((SummaryScope { kind: "epoch".to_owned(), name: selection.name() }, all.to_vec()));
    };
    let wanted: Vec<bool> = selection.images.iter().map(|i| wants(part, &i.record)).collect();
    let subjects: Vec<ProcedureSamples> = all.iter().filter(|p| wanted[p.image]).cloned().collect();
    let mut images: Vec<usize> = subjects.iter().map(|p| p.image).collect();
    images.sort_unstable();
    images.dedup();
    if images.is_empty() {
        return Err(QueryError::NoImage { name: name.clone(), epoch: selection.name() });
    }
    let paths: Vec<_> =
        images.iter().map(|&i| path_to_text(&selection.images[i].record.path).into_owned()).collect();
    Ok((SummaryScope { kind: "image".to_owned(), name: paths.join(", ") }, subjects))
}

/// Returns where the cycles of one analysed procedure go; `None` unless its scale is absolute.
pub fn split(costs: &ProcedureCosts) -> Option<CycleSplit> {
    let tally = Tally::new(costs, 0);
    let part = |samples: f64| samples / tally.tallied;
    // The ends of a range are equal if the scale is absolute.
    (tally.totals.is_absolute() && tally.tallied > 0.0).then(|| CycleSplit {
        execution: part(tally.execution.max),
        r#static: part(tally.fixed().max),
        dynamic: part(tally.stalled.max + tally.gain),
    })
}

/// Least share of the samples for which a procedure is analysed. Analysing the others would take long and change little.
pub(super) const PROCEDURE_SHARE_MIN: f64 = 0.0001;

/// Rows of dynamic causes, in the order of Figure 4. The causes of one row share one range.
const DYNAMIC_ROWS: [(&str, &[Cause]); 9] = [
    ("i-cache-miss", &[Cause::ICacheMiss]),
    ("itlb-miss", &[Cause::ItlbMiss]),
    ("d-cache-miss", &[Cause::DCacheMiss]),
    ("dtlb-miss", &[Cause::DtlbMiss]),
    ("write-buffer", &[Cause::WriteBuffer]),
    ("synchronization", &[Cause::Synchronization]),
    ("branch-mispredict", &[Cause::BranchMispredict]),
    ("multiplier", &[Cause::Multiplier]),
    ("divider", &[Cause::Divider]),
];
/// Name of the row for causes that have no row of their own in the paper's summary.
const OTHER: &str = "other";

/// Names of the rows of static causes.
const STATIC_ROWS: [&str; 7] = [
    "slotting",
    "dependency-address",
    "dependency-flags",
    "dependency-first",
    "dependency-second",
    "dependency-third",
    "functional-unit",
];

/// Returns the name of the processor model by which samples of the last epoch are analysed.
pub(super) fn machine_model(selection: &Selection) -> String {
    let last = &selection.epochs[selection.epochs.len() - 1];
    dwell_analysis::MachineModel::for_cpu(&last.cpu).name().to_owned()
}

/// Least and largest possible number of samples. The ends are equal if the scale is absolute, except for dynamic causes.
#[derive(Clone, Copy, Debug, Default)]
struct Range {
    min: f64,
    max: f64,
}

impl Range {
    fn exactly(samples: f64) -> Range {
        Range { min: samples, max: samples }
    }

    fn up_to(max: f64) -> Range {
        Range { min: 0.0, max }
    }

    fn scaled(self, part: f64) -> Range {
        Range { min: part * self.min, max: part * self.max }
    }
}

impl AddAssign for Range {
    fn add_assign(&mut self, more: Range) {
        self.min += more.min;
        self.max += more.max;
    }
}

/// Ranges by the name of a row.
type Rows = BTreeMap<&'static str, Range>;

/// Sums over instructions, in time samples.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// Number of all time samples, tallied or not.
    samples: u64,
    tallied: f64,
    totals: Totals,
    dynamic: Rows,
    stalled: Range,
    unexplained: Range,
    /// Gain and sampling error of procedures whose scale is absolute. Without such a scale nothing is known of either.
    gain: f64,
    error: f64,
    statics: Rows,
    execution: Range,
    procedures: usize,
    left_out: usize,
}

impl Tally {
    /// Returns the tally of one procedure that has `samples` time samples.
    fn new(costs: &ProcedureCosts, samples: u64) -> Tally {
        let mut tally = Tally { samples, procedures: 1, totals: costs.all_totals(), ..Tally::default() };
        for block in &costs.analysis.blocks {
            tally.add_block(costs, block.instructions.clone());
        }
        tally
    }

    /// Returns the tally of some instructions of one procedure: of each block those that `parts` lists together.
    pub(crate) fn of_parts(costs: &ProcedureCosts, parts: &[Vec<usize>]) -> Tally {
        let totals = costs.totals(parts.iter().flatten().copied());
        let mut tally = Tally { procedures: 1, totals, ..Tally::default() };
        parts.iter().for_each(|part| tally.add_block(costs, part.iter().copied()));
        tally
    }

    /// Returns the tally of a procedure that cannot be analysed.
    pub fn left_out(samples: u64) -> Tally {
        Tally { samples, left_out: 1, ..Tally::default() }
    }

    /// Returns the tally of a part of a procedure's samples: of each block as many as `of_block` returns, by the block's index.
    /// They go where the block's samples go. `samples` is the number of all, also of those outside of blocks.
    pub fn of_part(costs: &ProcedureCosts, samples: u64, of_block: impl Fn(usize) -> u64) -> Tally {
        let mut tally = Tally { samples, procedures: 1, ..Tally::default() };
        for (index, block) in costs.analysis.blocks.iter().enumerate() {
            let whole: f64 =
                block.instructions.clone().map(|i| costs.analysis.instructions[i].head_samples).sum();
            if of_block(index) > 0 && whole > 0.0 {
                let totals = costs.totals(block.instructions.clone());
                let mut of_all = Tally { totals, ..Tally::default() };
                of_all.add_block(costs, block.instructions.clone());
                tally.add(&of_all.scaled(of_block(index) as f64 / whole));
            }
        }
        tally
    }

    /// Multiplies everything but the numbers of samples and procedures.
    fn scaled(&self, part: f64) -> Tally {
        let rows = |rows: &Rows| rows.iter().map(|(row, range)| (*row, range.scaled(part))).collect();
        Tally {
            tallied: part * self.tallied,
            totals: self.totals.scaled(part),
            dynamic: rows(&self.dynamic),
            stalled: self.stalled.scaled(part),
            unexplained: self.unexplained.scaled(part),
            gain: part * self.gain,
            error: part * self.error,
            statics: rows(&self.statics),
            execution: self.execution.scaled(part),
            ..self.clone()
        }
    }

    /// Adds the tally of another procedure.
    pub(crate) fn add(&mut self, more: &Tally) {
        self.samples += more.samples;
        self.tallied += more.tallied;
        self.totals.add(&more.totals);
        self.stalled += more.stalled;
        self.unexplained += more.unexplained;
        self.gain += more.gain;
        self.error += more.error;
        self.execution += more.execution;
        for (sums, rows) in [(&mut self.dynamic, &more.dynamic), (&mut self.statics, &more.statics)] {
            rows.iter().for_each(|(row, range)| *sums.entry(row).or_default() += *range);
        }
        self.procedures += more.procedures;
        self.left_out += more.left_out;
    }

    /// Returns the samples of all static stalls together.
    fn fixed(&self) -> Range {
        let mut sum = Range::default();
        self.statics.values().for_each(|range| sum += *range);
        sum
    }

    fn add_block(&mut self, costs: &ProcedureCosts, instructions: impl Iterator<Item = usize>) {
        let executed = |i: &usize| costs.analysis.instructions[*i].frequency.is_some_and(|f| f > 0.0);
        let instructions = instructions.filter(executed);
        match costs.is_absolute() {
            true => self.add_known_block(costs, instructions),
            false => self.add_unknown_block(costs, &instructions.collect::<Vec<_>>()),
        }
    }

    /// Tallies one block whose scale is absolute. Samples that no stall explains are sampling error, or a gain if they are too
    /// many for chance. On an in-order processor this is decided for each instruction. On an out-of-order processor it is
    /// decided for the block: the model's best case is that of the block, and its distribution over the instructions is only a
    /// guess, since instructions behind a stalled one may execute at no additional cost.
    fn add_known_block(&mut self, costs: &ProcedureCosts, instructions: impl Iterator<Item = usize>) {
        const ERRORS_MIN: f64 = 3.0;
        let (mut rest, mut expected) = (0.0, 0.0);
        for i in instructions {
            if let Some((r, e)) = self.add_instruction(costs, i) {
                rest += r;
                expected += e;
            }
        }
        let is_gain =
            costs.model.order == Order::OutOfOrder && rest < -ERRORS_MIN * f64::max(expected, 1.0).sqrt();
        *(if is_gain { &mut self.gain } else { &mut self.error }) += rest;
    }

    /// Tallies one instruction. Every sample of an instruction with a known frequency goes to exactly one place. If neither
    /// a stall nor a gain explains the difference from the model, the function returns two numbers: the samples beyond those
    /// that the model expects, and the samples that it expects.
    fn add_instruction(&mut self, costs: &ProcedureCosts, i: usize) -> Option<(f64, f64)> {
        let cost = &costs.analysis.instructions[i];
        let frequency = cost.frequency?;
        let expected = frequency * cost.best_case_cycles;
        self.tallied += cost.head_samples;
        let mut fixed = 0.0;
        for stall in cost.stalls.iter().filter(|s| s.kind == StallKind::Static) {
            let row = static_row(costs, i, stall.cause, stall.culprit);
            *self.statics.entry(row).or_default() += Range::exactly(frequency * stall.cycles_max);
            fixed += frequency * stall.cycles_max;
        }
        self.execution += Range::exactly(expected - fixed);
        let rest = cost.head_samples - expected;
        if is_stalled(cost) {
            self.stalled += Range::exactly(rest);
            self.add_dynamic(cost, rest, Range::exactly(rest));
            return None;
        }
        if cost.gain_cycles > 0.0 {
            self.gain += rest;
            return None;
        }
        Some((rest, expected))
    }

    /// Tallies one block whose scale is not absolute. It may have run from never to as often as the scale allows. So all of its
    /// time may be stalls, and only the time that is left over if it ran most often is a stall for certain.
    fn add_unknown_block(&mut self, costs: &ProcedureCosts, instructions: &[usize]) {
        let costs_of = || instructions.iter().map(|&i| (i, &costs.analysis.instructions[i]));
        let most_executed =
            |cost: &InstructionCost| cost.frequency.unwrap_or(0.0) * costs.analysis.scale.times_max();
        let sampled: f64 = costs_of().map(|(_, cost)| cost.head_samples).sum();
        let (mut best, mut execution) = (0.0, 0.0);
        let mut statics: BTreeMap<&'static str, f64> = BTreeMap::new();
        for (i, cost) in costs_of() {
            best += most_executed(cost) * cost.best_case_cycles;
            execution += most_executed(cost) * cost.best_case_cycles;
            for stall in cost.stalls.iter().filter(|s| s.kind == StallKind::Static) {
                let most = most_executed(cost) * stall.cycles_max;
                *statics.entry(static_row(costs, i, stall.cause, stall.culprit)).or_default() += most;
                execution -= most;
            }
        }
        self.tallied += sampled;
        self.execution += Range::up_to(execution.clamp(0.0, sampled));
        for (row, most) in statics {
            *self.statics.entry(row).or_default() += Range::up_to(most.min(sampled));
        }
        let stalled = Range { min: (sampled - best).max(0.0), max: sampled };
        self.stalled += stalled;
        // The time of an instruction beyond its best case, if it ran as often as is possible.
        let beyond = |cost: &InstructionCost| match cost.cpi_interval.min {
            cpi if cpi > 0.0 => cost.head_samples * (1.0 - cost.best_case_cycles / cpi).max(0.0),
            _ => 0.0,
        };
        let waiting = || costs_of().map(|(_, cost)| cost).filter(|cost| is_stalled(cost));
        let sum: f64 = waiting().map(beyond).sum();
        let certain = if sum > stalled.min { stalled.min / sum } else { 1.0 };
        for cost in waiting() {
            let excess = cost.head_samples - cost.frequency.unwrap_or(0.0) * cost.best_case_cycles;
            self.add_dynamic(cost, excess, Range { min: certain * beyond(cost), max: cost.head_samples });
        }
    }

    /// Distributes the stalled samples of an instruction to the rows. The maximum of a row is what its causes may explain; its
    /// minimum is what all other rows together cannot explain. `excess` is the number of samples beyond the best case by the
    /// estimated frequency, which the causes were found for; `stalled` is the number that is possible.
    fn add_dynamic(&mut self, cost: &InstructionCost, excess: f64, stalled: Range) {
        let mut parts: BTreeMap<&'static str, f64> = BTreeMap::new();
        for stall in cost.stalls.iter().filter(|s| s.kind == StallKind::Dynamic && excess > 0.0) {
            let part = cost.frequency.unwrap_or(0.0) * stall.cycles_max / excess;
            *parts.entry(dynamic_row(stall.cause)).or_default() += part;
        }
        parts.values_mut().for_each(|part| *part = part.min(1.0));
        let total: f64 = parts.values().sum();
        for (row, part) in parts {
            let least = (1.0 - (total - part)).clamp(0.0, part);
            if row == names(Cause::Unexplained).name {
                // If something stays unexplained, all other rows are at their maximum.
                self.unexplained += stalled.scaled(least);
            } else {
                let range = Range { min: least * stalled.min, max: part * stalled.max };
                *self.dynamic.entry(row).or_default() += range;
            }
        }
    }

    /// Converts the tally to an answer.
    pub(crate) fn answer(&self, selection: &Selection, scope: SummaryScope, machine_model: &str) -> Summary {
        let period = selection.period_cycles();
        let share = |part: f64| if self.tallied > 0.0 { part / self.tallied } else { 0.0 };
        let known = |part: f64| self.totals.is_absolute().then(|| share(part));
        let range = |cause: &str| {
            let Range { min, max } = self.dynamic.get(cause).copied().unwrap_or_default();
            SummaryRange {
                cause: cause.to_owned(),
                label: summary_label(cause),
                share_min: share(min),
                share_max: share(max),
            }
        };
        let part = |cause: &str| {
            let Range { min, max } = self.statics.get(cause).copied().unwrap_or_default();
            SummaryPart {
                cause: cause.to_owned(),
                label: summary_label(cause),
                share: known(max),
                share_min: share(min),
                share_max: share(max),
            }
        };
        let (fixed, dynamic) =
            (self.fixed(), Range { min: self.stalled.min + self.gain, max: self.stalled.max + self.gain });
        let most = |part: f64| if self.totals.is_absolute() { share(part) } else { share(part).min(1.0) };
        let totals = Some(&self.totals).filter(|t| t.scale.is_some());
        let mut notes = selection.notes.clone();
        if self.tallied <= 0.0 {
            notes.push("no instruction has a frequency, so there is nothing to add up".to_owned());
        } else if !self.totals.is_absolute() {
            let why = "how often the code ran is not known, so the same time may be executions or stalls: shares are ranges of \
                       what is possible";
            notes.push(why.to_owned());
        }
        Summary {
            schema: 1,
            epochs: selection.epochs.iter().map(|e| e.id.to_string()).collect(),
            scope,
            machine_model: machine_model.to_owned(),
            time_event: selection.primary().map_or("", |e| e.name()).to_owned(),
            period_cycles: period,
            samples: self.samples,
            samples_tallied: self.tallied,
            tallied_share: if self.samples > 0 { self.tallied / self.samples as f64 } else { 0.0 },
            procedures: self.procedures,
            procedures_left_out: self.left_out,
            cycles: period.map(|p| p * self.tallied),
            scale: totals.and_then(|t| t.scale),
            instructions: period.zip(self.totals.absolute_executed()).map(|(p, n)| p * n),
            cpi: self.totals.cpi(),
            cpi_min: totals.map(|t| t.cpi_interval().min),
            cpi_max: totals.and_then(|t| bounded(t.cpi_interval())),
            best_case_cpi: self.totals.best_case_cpi(),
            dynamic: DYNAMIC_ROWS.iter().map(|(row, _)| *row).chain([OTHER]).map(range).collect(),
            unexplained_stall: known(self.unexplained.max),
            unexplained_stall_min: share(self.unexplained.min),
            unexplained_stall_max: share(self.unexplained.max),
            unexplained_gain: known(self.gain),
            subtotal_dynamic: known(dynamic.max),
            subtotal_dynamic_min: share(dynamic.min),
            subtotal_dynamic_max: share(dynamic.max),
            r#static: STATIC_ROWS.into_iter().map(part).collect(),
            subtotal_static: known(fixed.max),
            subtotal_static_min: share(fixed.min),
            subtotal_static_max: most(fixed.max),
            total_stall: known(dynamic.max + fixed.max),
            total_stall_min: share(dynamic.min + fixed.min),
            total_stall_max: most(dynamic.max + fixed.max),
            execution: known(self.execution.max),
            execution_min: share(self.execution.min),
            execution_max: share(self.execution.max),
            net_sampling_error: known(self.error),
            under: None,
            notes,
        }
    }
}

fn is_stalled(cost: &InstructionCost) -> bool {
    cost.stalls.iter().any(|s| s.kind == StallKind::Dynamic)
}

fn dynamic_row(cause: Cause) -> &'static str {
    if cause == Cause::Unexplained {
        return names(cause).name;
    }
    DYNAMIC_ROWS.iter().find(|(_, causes)| causes.contains(&cause)).map_or(OTHER, |(row, _)| row)
}

fn static_row(costs: &ProcedureCosts, i: usize, cause: Cause, culprit: Option<usize>) -> &'static str {
    match cause {
        Cause::Dependency => {
            let writes = culprit.and_then(|c| costs.instructions.get(c)).map(|c| c.writes);
            costs.arch().map_or(OTHER, |arch| operand_row(arch, &costs.instructions[i], writes))
        }
        Cause::FunctionalUnit => "functional-unit",
        _ => "slotting",
    }
}

/// Returns the row for the operand that `waiting` lacks, given the registers that its culprit writes. These are Ra, Rb and
/// Rc of the paper, for any instruction set.
fn operand_row(arch: Arch, waiting: &Instruction, written: Option<RegisterSet>) -> &'static str {
    let lacking = written.map_or(RegisterSet::EMPTY, |w| w.intersection(waiting.reads));
    let address: RegisterSet = waiting.memory().flat_map(|m| [m.base, m.index]).flatten().collect();
    if !lacking.intersection(address).is_empty() {
        return "dependency-address";
    }
    if arch.flags().is_some_and(|flags| lacking.contains(flags) && lacking.iter().count() == 1) {
        return "dependency-flags";
    }
    let sources = sources(arch, waiting);
    match sources.iter().position(|r| lacking.contains(*r)) {
        Some(0) | None => "dependency-first",
        Some(1) => "dependency-second",
        Some(_) => "dependency-third",
    }
}

/// Returns the registers among the source operands, in the assembler's order. On x86 the destination is a source too.
fn sources(arch: Arch, instruction: &Instruction) -> Vec<dwell_image::Register> {
    let register = |o: &Operand| match o {
        Operand::Register { register, .. } => Some(*register),
        _ => None,
    };
    let registers: Vec<_> = instruction.operands.iter().filter_map(register).collect();
    let has_destination = !matches!(arch, Arch::X86_64 | Arch::X86)
        && registers.len() > 1
        && registers.first().is_some_and(|r| instruction.writes.contains(*r));
    let mut sources = registers[usize::from(has_destination)..].to_vec();
    sources.retain(|r| instruction.reads.contains(*r));
    sources
}
