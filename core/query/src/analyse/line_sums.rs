//! Sums the costs of the lines of one source file over the procedures that were compiled from it.

use std::collections::BTreeMap;

use dwell_analysis::{Confidence, PerEntry};

use crate::{
    analyse::{
        costs::ProcedureCosts,
        line_culprits::LineCulprits,
        listing::{bounded, is_told, per_entry},
        procedures::ProcedureSamples,
        totals::Totals,
    },
    answer::{LineCost, ProcedureCost, StaleLine},
    load::{
        samples::{CountsByEvent, add_counts},
        selection::Selection,
        source::LineMap,
    },
};

/// Sums of one line over all procedures.
struct LineSum {
    counts: CountsByEvent,
    totals: Totals,
    confidence: Confidence,
    culprits: LineCulprits,
    /// Frequency and executions per entry of the line's most executed instruction.
    per_entry: Option<(f64, PerEntry)>,
    procedures: Vec<(f64, usize)>,
}

/// Sums the lines of one file over procedures.
pub struct LineSums<'a> {
    selection: &'a Selection,
    /// Path of the file, as the request spells it.
    path: &'a str,
    lines: BTreeMap<u32, LineSum>,
    /// Time samples of lines that were edited after the build, by their current line numbers.
    edited: BTreeMap<u32, f64>,
}

/// One source file as one image knows it.
#[derive(Clone, Copy)]
pub struct FileOfImage<'a> {
    /// Path of the file, as the debug information spells it.
    pub file: &'a str,
    /// Maps lines as they were built to current lines.
    pub map: &'a LineMap,
}

impl<'a> LineSums<'a> {
    /// Creates sums without any line.
    pub fn new(selection: &'a Selection, path: &'a str) -> Self {
        LineSums { selection, path, lines: BTreeMap::new(), edited: BTreeMap::new() }
    }

    /// Adds the instructions of a procedure that come from this file, at their current lines.
    pub fn add(&mut self, index: usize, costs: &ProcedureCosts, of: &FileOfImage<'_>) {
        let mut by_line: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (i, line) in costs.lines.iter().enumerate() {
            let Some((_, line)) = line.as_ref().filter(|(f, _)| **f == *of.file) else { continue };
            if let Some(now) = of.map.now(*line) {
                by_line.entry(now).or_default().push(i);
            } else if let Some(now) = of.map.edited(*line) {
                *self.edited.entry(now).or_default() += costs.analysis.instructions[i].head_samples;
            }
        }
        for (line, instructions) in by_line {
            self.add_line(line, index, costs, &instructions, of);
        }
    }

    fn add_line(
        &mut self,
        line: u32,
        index: usize,
        costs: &ProcedureCosts,
        instructions: &[usize],
        of: &FileOfImage<'_>,
    ) {
        let sum = self.lines.entry(line).or_insert_with(|| LineSum {
            counts: CountsByEvent::from_elem(0, self.selection.events.len()),
            totals: Totals::default(),
            confidence: Confidence::High,
            culprits: LineCulprits::default(),
            per_entry: None,
            procedures: Vec::new(),
        });
        instructions.iter().for_each(|&i| add_counts(&mut sum.counts, &costs.samples[i]));
        let totals = costs.totals(instructions.iter().copied());
        sum.procedures.push((totals.head_samples, index));
        sum.totals.add(&totals);
        sum.per_entry =
            sum.per_entry.into_iter().chain(most_executed(costs, instructions)).max_by(by_frequency);
        for &i in instructions {
            let cost = &costs.analysis.instructions[i];
            if cost.head_samples > 0.0 {
                sum.confidence = sum.confidence.min(cost.confidence);
            }
            sum.culprits.add(costs, i, |(file, line)| match *file == *of.file {
                // A culprit in this file moves with its line. If its line was edited, only the file is kept.
                true => (self.path.into(), of.map.now(line)),
                false => (file, Some(line)),
            });
        }
    }

    /// Returns the lines that were edited after the build, ascending.
    pub fn stale(&self) -> Vec<StaleLine> {
        let total = self.selection.primary_total().max(1) as f64;
        let sampled = self.edited.iter().filter(|(_, samples)| **samples >= 0.5);
        sampled.map(|(&line, samples)| StaleLine { line, share: samples / total }).collect()
    }

    /// Returns the lines with samples, ascending.
    pub fn finish(self, procedures: &[ProcedureSamples]) -> Vec<LineCost> {
        let selection = self.selection;
        let costs_time = |s: &LineSum| s.totals.head_samples >= 0.5 || s.counts.iter().any(|n| *n > 0);
        let sampled = self.lines.into_iter().filter(|(_, sum)| costs_time(sum));
        sampled.map(|(line, sum)| sum.into_cost(selection, line, procedures)).collect()
    }
}

/// Returns the frequency and executions per entry of the most executed of these instructions.
fn most_executed(costs: &ProcedureCosts, instructions: &[usize]) -> Option<(f64, PerEntry)> {
    let of_block = |&i: &usize| {
        let blocks = &costs.analysis.blocks;
        let block = &blocks[blocks.partition_point(|b| b.instructions.end <= i)];
        Some((block.frequency?, block.per_entry?))
    };
    instructions.iter().filter_map(of_block).max_by(by_frequency)
}

fn by_frequency(a: &(f64, PerEntry), b: &(f64, PerEntry)) -> std::cmp::Ordering {
    a.0.total_cmp(&b.0)
}

impl LineSum {
    fn into_cost(self, selection: &Selection, line: u32, procedures: &[ProcedureSamples]) -> LineCost {
        let period = selection.period_cycles();
        let mut owners = self.procedures;
        owners.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let totals = &self.totals;
        let head_samples = totals.head_samples;
        let most = totals.most.filter(|_| totals.is_absolute()).zip(period);
        let interval = most.and_then(|((_, interval), p)| Some((interval?, p)));
        let (culprits, ties) = self.culprits.finish(head_samples, period);
        LineCost {
            line,
            samples: selection.named(&self.counts),
            share: head_samples / selection.primary_total().max(1) as f64,
            cycles: period.map(|p| p * head_samples),
            seconds: selection.period_seconds().map(|p| p * head_samples),
            scale: totals.scale.unwrap_or_default(),
            executions: most.filter(|((_, i), _)| is_told(*i)).map(|((frequency, _), p)| frequency * p),
            executions_min: interval.map(|(i, p)| i.min * p),
            executions_max: interval.map(|(i, p)| i.max * p),
            per_entry: self.per_entry.map(|(_, ratio)| per_entry(ratio)),
            cpi: totals.cpi(),
            cpi_min: totals.cpi_interval().min,
            cpi_max: bounded(totals.cpi_interval()),
            best_case_cpi: totals.best_case_cpi(),
            confidence: self.confidence,
            culprits,
            ties,
            procedures: owners.iter().map(|(_, p)| procedures[*p].id.clone()).collect(),
        }
    }
}

/// Returns the cost of a procedure that begins at `line`.
pub fn procedure_cost(
    selection: &Selection,
    procedure: &ProcedureSamples,
    line: u32,
    costs: Option<&ProcedureCosts>,
) -> ProcedureCost {
    let totals = costs.map(ProcedureCosts::all_totals).unwrap_or_default();
    let samples = procedure.counts.first().copied().unwrap_or(0) as f64;
    ProcedureCost {
        id: procedure.id.clone(),
        demangled: procedure.demangled.clone(),
        line,
        samples: selection.named(&procedure.counts),
        share: selection.share(&procedure.counts),
        cycles: selection.period_cycles().map(|p| p * samples),
        seconds: selection.period_seconds().map(|p| p * samples),
        scale: totals.scale.unwrap_or_default(),
        cpi: totals.cpi(),
        cpi_min: totals.cpi_interval().min,
        cpi_max: bounded(totals.cpi_interval()),
        best_case_cpi: totals.best_case_cpi(),
    }
}
