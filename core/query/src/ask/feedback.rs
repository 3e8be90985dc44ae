//! Executions by instruction, edge and call, for optimizers.
//!
//! Input: epochs. Output: procedures in the terms of a compiler: linkage names, lines, discriminators, inlined calls. This
//! module knows no file formats of other tools. Cost: the analysis of each sampled procedure, on all processors.

use std::borrow::Cow;

use dwell_analysis::{Block, InstructionCost, ProcedureAnalysis};
use dwell_image::{CompiledFrame, Flow, Image, ImageAddress, Instruction, Procedure, ProcedureOffsets};
use dwell_profile::path_to_text;
use rustc_hash::FxHashMap;

use crate::{
    Cancel, Query, QueryError,
    analyse::{costs::ProcedureCosts, coverage::never_seen, procedures::ProcedureSamples},
    answer::{Feedback, FeedbackCall, FeedbackEdge, FeedbackFrame, FeedbackInstruction, FeedbackProcedure},
    load::filter::wants,
    parallel::in_parallel,
    query::View,
};

/// Number of standard deviations by which the time of a block may exceed what its samples show.
const TIME_DEVIATIONS: f64 = 2.0;
/// Executions that a frequency of 1 stands for if the clock rate is unknown. Only ratios matter then.
const EXECUTIONS_WITHOUT_CLOCK: f64 = 1e6;

impl Query {
    /// Returns how often the code was executed, for images whose path, file name or id contains `image`.
    pub fn feedback(
        &self,
        epochs: &[String],
        image: &Option<String>,
        cancel: &Cancel,
    ) -> Result<Feedback, QueryError> {
        let view = self.view(epochs)?;
        let selection = &view.selection;
        let all = self.procedures(&view, cancel)?;
        let is_wanted = |p: &&ProcedureSamples| {
            wants(image, &selection.images[p.image].record) && p.counts.first().is_some_and(|n| *n > 0)
        };
        let wanted: Vec<&ProcedureSamples> = all.iter().filter(is_wanted).collect();
        let locals = self.local_numbers(&view, &wanted);
        let procedures = in_parallel(&wanted, |p| {
            cancel.check().ok()?;
            let mut procedure = self.feedback_of(&view, p)?;
            procedure.local_number = locals.get(&(p.image, procedure.address)).copied();
            Some(procedure)
        });
        cancel.check()?;
        let mut notes = selection.notes.clone();
        if wanted.is_empty() {
            notes.push("the requested binaries have no samples".to_owned());
        } else if !selection.primary().is_some_and(dwell_profile::Event::is_time) {
            notes.push("no event that measures time was sampled, so executions are unknown".to_owned());
        }
        let limited: usize = procedures.iter().map(|p| p.limited_blocks).sum();
        if limited > 0 {
            notes.push(format!("the executions of {limited} blocks were reduced to the number that fits into the sampled time"));
        }
        let unseen: usize = procedures.iter().map(|p| p.unseen_blocks).sum();
        if unseen > 0 {
            notes.push(format!("{unseen} blocks without a sign of execution are reported as never executed"));
        }
        Ok(Feedback {
            epochs: selection.epochs.iter().map(|e| e.id.to_string()).collect(),
            event: selection.primary().map_or_else(String::new, |e| e.name().to_owned()),
            procedures,
            notes,
        })
    }

    fn feedback_of(&self, view: &View, p: &ProcedureSamples) -> Option<FeedbackProcedure> {
        let costs = self.costs_once(view, p)?;
        let image = costs.image.as_deref()?;
        let record = &view.selection.images[p.image].record;
        let scale = view.selection.period_cycles().unwrap_or(EXECUTIONS_WITHOUT_CLOCK);
        let mut parts = credible_parts(&costs.analysis);
        let limited_blocks = parts.iter().filter(|part| **part < 1.0).count();
        let unseen = unseen(view, p.image, image, &costs);
        let unseen_blocks = unseen.iter().filter(|unseen| **unseen).count();
        parts.iter_mut().zip(unseen).for_each(|(part, unseen)| *part *= if unseen { 0.0 } else { 1.0 });
        let reader = Reader { view, image_index: p.image, image, costs: &costs, scale, parts };
        Some(FeedbackProcedure {
            image: path_to_text(&record.path).into_owned(),
            build_id: record.id.to_string(),
            symbol: p.name.clone(),
            local_number: None,
            limited_blocks,
            unseen_blocks,
            address: p.address?.0,
            entries: reader.entries(),
            instructions: reader.instructions(),
            block_starts: costs.analysis.blocks.iter().map(|b| b.instructions.start).collect(),
            edges: reader.edges(),
        })
    }

    /// Returns for each local symbol, by image (an index) and address, its number among the local symbols of the same name.
    fn local_numbers(&self, view: &View, wanted: &[&ProcedureSamples]) -> FxHashMap<(usize, u64), usize> {
        let mut images: Vec<usize> = wanted.iter().map(|p| p.image).collect();
        images.sort_unstable();
        images.dedup();
        let mut numbers = FxHashMap::default();
        for index in images {
            let found = self.store.find(&view.selection.images[index].record);
            let Ok(image) = &found.image else { continue };
            let mut uses: FxHashMap<Cow<'_, str>, usize> = FxHashMap::default();
            for p in image.procedures().iter().filter(|p| p.is_local()) {
                let number = uses.entry(p.name()).or_default();
                *number += 1;
                numbers.insert((index, p.address.0), *number);
            }
        }
        numbers
    }
}

/// Reads the execution counts for compilers from the analysis of one procedure.
struct Reader<'a> {
    view: &'a View,
    image_index: usize,
    image: &'a Image,
    costs: &'a ProcedureCosts,
    /// Executions that a frequency of 1 stands for.
    scale: f64,
    /// Factor for the frequencies of each block.
    parts: Vec<f64>,
}

/// Returns for each block the part of its estimated executions that the sampled time allows, at most 1. The time is that of
/// the block and its neighbours, since a sample may land one block later. With few samples, the estimate for a loop has no
/// useful upper bound, and a single such loop could become the hottest code of the whole program.
fn credible_parts(analysis: &ProcedureAnalysis) -> Vec<f64> {
    let sum = |block: &Block, of: &dyn Fn(&InstructionCost) -> f64| -> f64 {
        analysis.instructions.get(block.instructions.clone()).into_iter().flatten().map(of).sum()
    };
    let own: Vec<f64> = analysis.blocks.iter().map(|b| sum(b, &|i| i.head_samples)).collect();
    let mut around = own.clone();
    for edge in analysis.edges.iter().filter(|e| e.from != e.to) {
        around[edge.from] += own[edge.to];
        around[edge.to] += own[edge.from];
    }
    let part = |(block, samples): (&Block, f64)| {
        let time_max = samples + TIME_DEVIATIONS * (samples + 1.0).sqrt();
        let time = block.frequency.unwrap_or(0.0) * sum(block, &|i| i.best_case_cycles);
        if time > time_max { time_max / time } else { 1.0 }
    };
    analysis.blocks.iter().zip(around).map(part).collect()
}

/// Returns for each block whether nothing was seen in it, neither by a sample of any event nor on a path burst.
fn unseen(view: &View, image_index: usize, image: &Image, costs: &ProcedureCosts) -> Vec<bool> {
    let ProcedureCosts { analysis, instructions, samples, .. } = costs;
    let mut is_seen: Vec<bool> = samples.iter().map(|counts| counts.iter().any(|n| *n > 0)).collect();
    for (seen, cost) in is_seen.iter_mut().zip(&analysis.instructions) {
        *seen |= cost.head_samples > 0.0;
    }
    let offsets = ProcedureOffsets::new(image, instructions);
    for t in view.selection.transfers.within(image_index, &offsets) {
        [Some(t.from), t.to].into_iter().flatten().for_each(|i| is_seen[i] = true);
    }
    let of = |b: &Block| b.instructions.clone();
    let seen: Vec<bool> = analysis.blocks.iter().map(|b| of(b).any(|i| is_seen[i])).collect();
    never_seen(&analysis.blocks, &analysis.edges, &seen)
}

impl Reader<'_> {
    /// Returns the executions that a frequency in `block` stands for.
    fn executions(&self, block: usize, frequency: Option<f64>) -> Option<f64> {
        let executions = frequency? * self.scale * self.parts.get(block)?;
        (executions.is_finite() && executions >= 0.0).then_some(executions)
    }

    /// Returns the executions of the first block, minus those that came from within the procedure.
    fn entries(&self) -> f64 {
        let analysis = &self.costs.analysis;
        let all = analysis.blocks.first().and_then(|b| self.executions(0, b.frequency)).unwrap_or(0.0);
        let into = analysis.edges.iter().filter(|e| e.to == 0);
        let within: f64 = into.filter_map(|e| self.executions(e.from, e.frequency)).sum();
        (all - within).max(0.0)
    }

    fn instructions(&self) -> Vec<FeedbackInstruction> {
        let blocks = self.costs.analysis.blocks.iter().enumerate();
        blocks
            .flat_map(|(b, block)| block.instructions.clone().map(move |i| self.instruction(b, i)))
            .collect()
    }

    fn instruction(&self, block: usize, i: usize) -> FeedbackInstruction {
        let instruction = &self.costs.instructions[i];
        let executions = self.executions(block, self.costs.analysis.instructions[i].frequency);
        FeedbackInstruction {
            address: instruction.address.0,
            samples: self.costs.samples[i].first().copied().unwrap_or(0),
            executions,
            frames: frames(self.image, instruction.address),
            calls: executions.map_or_else(Vec::new, |e| self.calls(instruction, e)),
        }
    }

    fn calls(&self, instruction: &Instruction, executions: f64) -> Vec<FeedbackCall> {
        let call = |callee: &Procedure<'_>, executions, is_indirect| FeedbackCall {
            target: callee.name().trim_end_matches("@plt").to_owned(),
            target_address: callee.address.0,
            executions,
            is_indirect,
        };
        match instruction.flow {
            Flow::Call { target: Some(target) } => {
                let callee = self.entered(target).into_iter();
                callee.map(|callee| call(&callee, executions, false)).collect()
            }
            Flow::Jump { target } => {
                let tail_call = self.entered(target).filter(|_| !self.is_own(target)).into_iter();
                tail_call.map(|callee| call(&callee, executions, false)).collect()
            }
            Flow::Call { target: None } => {
                let seen = self.seen_targets(instruction.address);
                let total: f64 = seen.iter().map(|(_, count)| count).sum();
                seen.iter().map(|(callee, count)| call(callee, executions * count / total, true)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns the procedure whose first instruction is at `target`.
    fn entered(&self, target: ImageAddress) -> Option<Procedure<'_>> {
        self.image.procedure_at(target).filter(|p| p.address == target)
    }

    fn is_own(&self, target: ImageAddress) -> bool {
        let (first, last) = (self.costs.instructions.first(), self.costs.instructions.last());
        first.is_some_and(|i| i.address <= target) && last.is_some_and(|i| target <= i.address)
    }

    /// Returns the procedures that an indirect call was seen to enter on path bursts, with their counts.
    fn seen_targets(&self, from: ImageAddress) -> Vec<(Procedure<'_>, f64)> {
        let image = self.image;
        let Some(from) = image.offset_of(from) else { return Vec::new() };
        let seen = self.view.selection.transfers.targets(self.image_index, from);
        let callee = |(offset, count)| Some((self.entered(image.address_of(offset)?)?, count));
        seen.filter_map(callee).filter(|(_, count)| *count > 0.0).collect()
    }

    fn edges(&self) -> Vec<FeedbackEdge> {
        let ProcedureCosts { analysis, instructions, .. } = self.costs;
        let edges = analysis.edges.iter().filter_map(|edge| {
            let from = analysis.blocks.get(edge.from)?.instructions.end.checked_sub(1)?;
            let to = analysis.blocks.get(edge.to)?.instructions.start;
            Some(FeedbackEdge {
                from: instructions.get(from)?.address.0,
                to: instructions.get(to)?.address.0,
                // Control does not enter a block without a sign of execution.
                executions: match self.parts.get(edge.to) {
                    Some(0.0) => 0.0,
                    _ => self.executions(edge.from, edge.frequency)?,
                },
            })
        });
        edges.collect()
    }
}

fn frames(image: &Image, address: ImageAddress) -> Vec<FeedbackFrame> {
    let files = image.frames(address);
    let frame = |(at, f): (usize, CompiledFrame)| FeedbackFrame {
        function: f.function,
        file: files.get(at).and_then(|f| Some(f.file.as_ref()?.to_string())),
        start_line: f.start_line,
        line: f.line,
        discriminator: f.discriminator,
    };
    image.compiled_frames(address).into_iter().enumerate().map(frame).collect()
}
