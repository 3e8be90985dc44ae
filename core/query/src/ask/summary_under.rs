//! Request `summary`, under a function: where the cycles go of the samples in a function and in what it calls.
//!
//! Input: named call stacks, analysed procedures. Output: the share of each cause as a range, and how many samples it rests on.
//!
//! Where the time of an instruction goes is known from all samples of its procedure. Which of them lie under the function is known of
//! those that have a call stack. So each such sample counts as the average sample of the basic block that it is in: the instructions
//! of a block run equally often, and a sample may land on the instruction behind the one that was waited for, hence no finer than
//! that. That a block waits for other things when another function calls it is not seen; the answer says so.

use dwell_image::ImageAddress;
use rustc_hash::FxHashMap;

use super::{
    callers::{Within, one_function},
    summary::{PROCEDURE_SHARE_MIN, Tally, machine_model},
};
use crate::{
    Cancel, Query, QueryError, SampleFilter,
    analyse::{costs::ProcedureCosts, procedures::ProcedureSamples},
    answer::{Stacks, Summary, SummaryScope, SummaryUnder},
    load::selection::Selection,
    parallel::in_parallel,
    query::View,
};

/// Samples under the function in one procedure, by address.
type InProcedure = Vec<(ImageAddress, u64)>;

impl Query {
    pub(super) fn summary_under(
        &self,
        view: &View,
        name: &str,
        cancel: &Cancel,
    ) -> Result<Summary, QueryError> {
        let selection = &view.selection;
        let named = self.named_stacks(view, &SampleFilter::default(), cancel)?;
        let stacks = &named.stacks;
        let functions = one_function(stacks, name)?;
        let within = Within::new(stacks, &functions);
        let procedures = self.procedures(view, cancel)?;
        let (by_procedure, elsewhere) = by_procedure(selection, procedures, stacks, &within);
        let tallies = in_parallel(&by_procedure, |(p, places)| {
            let samples: u64 = places.iter().map(|(_, samples)| samples).sum();
            let matters = samples as f64 >= PROCEDURE_SHARE_MIN * within.samples() as f64;
            let costs =
                (matters && cancel.check().is_ok()).then(|| self.costs_once(view, &procedures[*p])).flatten();
            Some(
                costs
                    .map_or_else(|| Tally::left_out(samples), |costs| tally(&costs, &procedures[*p], places)),
            )
        });
        cancel.check()?;
        let mut sum = if elsewhere > 0 { Tally::left_out(elsewhere) } else { Tally::default() };
        tallies.iter().for_each(|tally| sum.add(tally));
        let function = &stacks.functions[functions[0] as usize];
        let scope =
            SummaryScope { kind: "under".to_owned(), name: format!("{}:{}", function.image, function.name) };
        let mut answer = sum.answer(selection, scope, &machine_model(selection));
        // These would be of the samples with a call stack alone.
        (answer.cycles, answer.instructions) = (None, None);
        answer.under = Some(under(stacks, &within));
        answer.notes.push(
            "each sample under the function counts as the average sample of its basic block, whoever calls it: a block that waits \
             for other things when another function calls it is not told apart"
                .to_owned(),
        );
        Ok(answer)
    }
}

fn under(stacks: &Stacks, within: &Within<'_>) -> SummaryUnder {
    let stack_samples = stacks.samples();
    SummaryUnder {
        samples: within.samples(),
        own: within.own(),
        stack_samples,
        all_samples: stacks.all_samples,
        share: within.samples() as f64 / stack_samples.max(1) as f64,
        incomplete: within.possible(),
    }
}

/// Returns the samples under the function by procedure (an index), and the number of those in none.
fn by_procedure(
    selection: &Selection,
    procedures: &[ProcedureSamples],
    stacks: &Stacks,
    within: &Within<'_>,
) -> (Vec<(usize, InProcedure)>, u64) {
    let images =
        selection.images.iter().enumerate().map(|(index, image)| (image.record.id.to_string(), index));
    let images: FxHashMap<String, usize> = images.collect();
    let starts = procedures.iter().enumerate().filter_map(|(p, of)| Some(((of.image, of.address?.0), p)));
    let mut starts: Vec<((usize, u64), usize)> = starts.collect();
    starts.sort_unstable();
    let procedure_at = |image: usize, address: u64| {
        let after = starts.partition_point(|(start, _)| *start <= (image, address));
        let ((of, start), p) = *starts.get(after.checked_sub(1)?)?;
        (of == image && address - start < procedures[p].size_bytes.max(1)).then_some(p)
    };
    let mut found: FxHashMap<usize, InProcedure> = FxHashMap::default();
    let mut elsewhere = 0;
    for node in within.sampled() {
        let image = images.get(&stacks.functions[node.function as usize].build_id);
        match image.and_then(|image| procedure_at(*image, node.address)) {
            Some(p) => found.entry(p).or_default().push((ImageAddress(node.address), node.samples)),
            None => elsewhere += node.samples,
        }
    }
    let mut found: Vec<(usize, InProcedure)> = found.into_iter().collect();
    found.sort_unstable_by_key(|(p, _)| *p);
    (found, elsewhere)
}

/// Tallies the samples at these places of a procedure.
fn tally(costs: &ProcedureCosts, procedure: &ProcedureSamples, places: &[(ImageAddress, u64)]) -> Tally {
    let blocks = &costs.analysis.blocks;
    let begin = |address: Option<ImageAddress>| address.map_or(0, |address| address.0);
    let shift = begin(costs.begin(procedure)).wrapping_sub(begin(procedure.address));
    let mut by_block = vec![0; blocks.len()];
    for (address, samples) in places {
        // A sample inside an instruction counts for that instruction.
        let after = costs.instructions.partition_point(|i| i.address.0 <= address.0.wrapping_add(shift));
        let at = after.checked_sub(1).and_then(|i| blocks.iter().position(|b| b.instructions.contains(&i)));
        if let Some(block) = at {
            by_block[block] += samples;
        }
    }
    let all = places.iter().map(|(_, samples)| samples).sum();
    Tally::of_part(costs, all, |block| by_block[block])
}
