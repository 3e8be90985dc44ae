//! Cycles per instruction and causes of the functions in call stacks.
//!
//! Input: named call stacks, the samples of the same epochs. Output: an analysis for each function whose code holds most of the
//! samples. A function is analysed by its own instructions and its inlined copies, not by what was inlined into it. Cost: the
//! analysis of the procedures that hold [`SHARE_ANALYSED`] of the samples, at most [`PROCEDURES_MAX`], on all processors.

use std::{cmp::Reverse, collections::BTreeMap};

use dwell_analysis::StallKind;
use rustc_hash::FxHashMap;

use super::{Named, View};
use crate::{
    Cancel, Query, QueryError,
    analyse::{costs::ProcedureCosts, procedures::ProcedureSamples},
    answer::{Flame, FlameAnalysis, FlameCause, FlameKind, Stacks, Summary, SummaryScope},
    ask::{stacks::innermost_name, summary::Tally},
    cause_names::summary_label,
    parallel::in_parallel,
};

/// Share of the samples whose procedures are analysed.
const SHARE_ANALYSED: f64 = 0.95;
/// Largest number of procedures that are analysed.
const PROCEDURES_MAX: usize = 300;
/// Least share of a cause that is listed. A smaller one rounds to zero.
const SHARE_SEEN: f64 = 0.0005;

/// A function in one binary: id of the binary, and name.
type FunctionKey = (String, String);

/// Analyses the functions that hold most of the samples. Returns notes.
pub fn analyse(
    query: &Query,
    view: &View,
    stacks: &Stacks,
    names: &[Named],
    flame: &mut Flame,
    cancel: &Cancel,
) -> Result<Vec<String>, QueryError> {
    let is_of_time = view.selection.primary().is_some_and(|event| event.is_time());
    if !is_of_time || view.selection.primary().map(|event| event.name()) != Some(&stacks.event.name) {
        let why = format!("causes are not analysed: {} does not measure time on a CPU", stacks.event.name);
        return Ok(vec![why]);
    }
    let procedures = hottest(query, view, stacks, cancel)?;
    let parts = in_parallel(&procedures, |procedure| {
        cancel.check().ok()?;
        Some(tallies(view, procedure, &*query.costs_once(view, procedure)?))
    });
    cancel.check()?;
    let mut sums: FxHashMap<FunctionKey, Tally> = FxHashMap::default();
    for (key, tally) in parts.into_iter().flatten() {
        sums.entry(key).or_default().add(&tally);
    }
    let mut analysed = 0;
    for ((kind, name), function) in names.iter().zip(&mut flame.functions) {
        let key = (name.build_id.clone(), name.name.clone());
        let Some(tally) = sums.get(&key).filter(|_| *kind == FlameKind::Function) else { continue };
        let summary = tally.answer(&view.selection, SummaryScope::default(), "");
        function.analysis = (summary.samples_tallied > 0.0).then(|| analysis(&summary));
        analysed += if function.analysis.is_some() { function.own } else { 0 };
    }
    flame.analysed_share = analysed as f64 / flame.total.max(1) as f64;
    Ok(Vec::new())
}

/// Returns the procedures whose code, with what was inlined into it, holds most of the samples.
fn hottest(
    query: &Query,
    view: &View,
    stacks: &Stacks,
    cancel: &Cancel,
) -> Result<Vec<ProcedureSamples>, QueryError> {
    let mut samples: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for mut node in stacks.nodes.iter().filter(|node| node.samples > 0) {
        let own = node.samples;
        while let Some(parent) = node.parent.filter(|_| node.inlined) {
            node = &stacks.nodes[parent as usize];
        }
        let function = &stacks.functions[node.function as usize];
        *samples.entry((&function.build_id, &function.name)).or_default() += own;
    }
    let mut ranked: Vec<((&str, &str), u64)> = samples.into_iter().collect();
    ranked.sort_by_key(|(_, samples)| Reverse(*samples));
    let mut known: FxHashMap<(&str, &str), &ProcedureSamples> = FxHashMap::default();
    for procedure in query.procedures(view, cancel)? {
        let image = view.selection.images[procedure.image].record.id.as_str();
        known.entry((image, &procedure.demangled)).or_insert(procedure);
    }
    let enough = SHARE_ANALYSED * stacks.samples() as f64;
    let mut before = 0;
    let wanted = ranked.into_iter().take_while(|(_, samples)| {
        let is_wanted = (before as f64) < enough;
        before += samples;
        is_wanted
    });
    let found = wanted.filter_map(|(name, _)| known.get(&name).map(|p| (*p).clone()));
    Ok(found.take(PROCEDURES_MAX).collect())
}

/// Returns where the cycles of the functions in one procedure go: of its own, and of those that were inlined into it.
fn tallies(view: &View, procedure: &ProcedureSamples, costs: &ProcedureCosts) -> Vec<(FunctionKey, Tally)> {
    let record = &view.selection.images[procedure.image].record;
    let Some(image) = &costs.image else { return Vec::new() };
    let mut parts: BTreeMap<String, Vec<Vec<usize>>> = BTreeMap::new();
    for block in &costs.analysis.blocks {
        let mut of_block: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for i in block.instructions.clone() {
            if costs.analysis.instructions[i].frequency.is_some() {
                let name = innermost_name(image, costs.instructions[i].address, &procedure.demangled);
                of_block.entry(name).or_default().push(i);
            }
        }
        of_block.into_iter().for_each(|(name, part)| parts.entry(name).or_default().push(part));
    }
    let tally = |(name, parts): (String, Vec<Vec<usize>>)| {
        ((record.id.to_string(), name), Tally::of_parts(costs, &parts))
    };
    parts.into_iter().map(tally).collect()
}

fn analysis(summary: &Summary) -> FlameAnalysis {
    let dynamic = summary.dynamic.iter().map(|range| FlameCause {
        kind: StallKind::Dynamic,
        cause: range.cause.clone(),
        label: range.label,
        share_min: range.share_min,
        share_max: range.share_max,
    });
    let fixed = summary.r#static.iter().map(|part| FlameCause {
        kind: StallKind::Static,
        cause: part.cause.clone(),
        label: part.label,
        share_min: part.share_min,
        share_max: part.share_max,
    });
    let unexplained = FlameCause {
        kind: StallKind::Dynamic,
        cause: "unexplained".to_owned(),
        label: summary_label("unexplained"),
        share_min: summary.unexplained_stall_min,
        share_max: summary.unexplained_stall_max,
    };
    let mut causes: Vec<FlameCause> = dynamic.chain([unexplained]).chain(fixed).collect();
    causes.retain(|cause| cause.share_max >= SHARE_SEEN);
    causes.sort_by(|a, b| b.share_max.total_cmp(&a.share_max));
    FlameAnalysis {
        samples: summary.samples_tallied,
        scale: summary.scale,
        cpi: summary.cpi,
        cpi_min: summary.cpi_min,
        cpi_max: summary.cpi_max,
        execution: summary.execution,
        execution_min: summary.execution_min,
        execution_max: summary.execution_max,
        causes,
    }
}
