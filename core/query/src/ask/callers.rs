//! Callers and callees of a function, and functions by their inclusive samples.
//!
//! Input: named call stacks. Output: rows. Cost: one pass over the frames.

use std::{cmp::Reverse, collections::BTreeMap};

use rustc_hash::FxHashMap;

use super::stacks::functions_named;
use crate::{
    Cancel, Query, QueryError, SampleFilter,
    answer::{CallSite, Callers, CallersRow, INCOMPLETE, Inclusive, InclusiveRow, IncompleteStacks, Stacks},
};

/// Version of the answers.
const SCHEMA: u32 = 1;

/// The direction in which the stacks of a function are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Outwards: who calls it.
    Callers,
    /// Inwards: what it calls.
    Callees,
}

/// A request for the callers or callees of a function.
#[derive(Clone, Debug)]
pub struct CallersRequest {
    /// Selectors of the epochs; none: the latest one.
    pub epochs: Vec<String>,
    /// The function: `NAME` or `BINARY:NAME`.
    pub function: String,
    /// Callers or callees.
    pub direction: Direction,
    /// Number of levels.
    pub depth: usize,
    /// Smallest share of the function's samples that a row has, 0 to 1.
    pub share_min: f64,
    /// Which samples count.
    pub filter: SampleFilter,
}

impl Query {
    /// Returns who calls a function or what it calls, by the samples in it and in what it calls.
    ///
    /// Each sample counts once. If a stack contains the function several times, its innermost call counts, and calls of the
    /// function by itself are skipped on the way to its caller.
    pub fn callers(&self, request: &CallersRequest, cancel: &Cancel) -> Result<Callers, QueryError> {
        let stacks = self.stacks(&request.epochs, &request.filter, cancel)?;
        let functions = functions_named(&stacks, &request.function);
        let Some(first) = functions.first().map(|at| &stacks.functions[*at as usize]) else {
            return Err(QueryError::NoFunctionInStacks {
                name: request.function.clone(),
                epoch: stacks.epochs.join("+"),
            });
        };
        let images: Vec<&str> = functions.iter().map(|at| &*stacks.functions[*at as usize].image).collect();
        if images.iter().any(|image| *image != images[0]) {
            let full = |at: &u32| {
                let function = &stacks.functions[*at as usize];
                format!("{}:{}", function.image, function.name)
            };
            let candidates = functions.iter().map(full).collect();
            return Err(QueryError::Ambiguous { name: request.function.clone(), candidates });
        }
        let (mut samples, mut own) = (0, 0);
        let mut tree = Rows::default();
        for (at, node) in (0..).zip(&stacks.nodes).filter(|(_, node)| node.samples > 0) {
            let path = stacks.path(at);
            let is_it = |frame: &u32| functions.contains(&stacks.nodes[*frame as usize].function);
            let Some(position) = path.iter().rposition(is_it) else { continue };
            samples += node.samples;
            own += if position + 1 == path.len() { node.samples } else { 0 };
            let steps: Vec<(u32, u32)> = match request.direction {
                // The frame of a caller is at the line of its call.
                Direction::Callers => {
                    let outer = path[..position].iter().rev().skip_while(|frame| is_it(frame));
                    outer.map(|frame| (*frame, *frame)).collect()
                }
                Direction::Callees => path[position..].windows(2).map(|pair| (pair[1], pair[0])).collect(),
            };
            tree.add(&stacks, &steps[..steps.len().min(request.depth)], node.samples);
        }
        Ok(Callers {
            schema: SCHEMA,
            epochs: stacks.epochs.clone(),
            event: stacks.event.name.clone(),
            function: first.name.clone(),
            image: first.image.clone(),
            samples,
            own,
            total: stacks.samples(),
            rows: tree.rows(&stacks, samples, request.share_min),
            incomplete: incomplete(&stacks),
            notes: stacks.notes.clone(),
        })
    }

    /// Returns the functions with the most samples in them and in what they call.
    pub fn inclusive(
        &self,
        epochs: &[String],
        filter: &SampleFilter,
        limit: Option<usize>,
        cancel: &Cancel,
    ) -> Result<Inclusive, QueryError> {
        let stacks = self.stacks(epochs, filter, cancel)?;
        let mut sums: Vec<(u64, u64)> = vec![(0, 0); stacks.functions.len()];
        // The last sampled frame under which each function was counted.
        let mut counted: Vec<u32> = vec![u32::MAX; stacks.functions.len()];
        for (at, node) in (0..).zip(&stacks.nodes).filter(|(_, node)| node.samples > 0) {
            sums[node.function as usize].1 += node.samples;
            for frame in stacks.path(at) {
                let function = stacks.nodes[frame as usize].function as usize;
                if counted[function] != at {
                    counted[function] = at;
                    sums[function].0 += node.samples;
                }
            }
        }
        let total = stacks.samples();
        let row = |(function, (samples, own)): (&crate::answer::StackFunction, (u64, u64))| InclusiveRow {
            function: function.name.clone(),
            image: function.image.clone(),
            samples,
            share: samples as f64 / total.max(1) as f64,
            own,
        };
        let named = stacks.functions.iter().zip(sums).filter(|(function, _)| function.name != INCOMPLETE);
        let mut rows: Vec<InclusiveRow> = named.map(row).collect();
        rows.sort_by(|a, b| {
            let key = |r: &InclusiveRow| Reverse((r.samples, r.own));
            key(a).cmp(&key(b)).then_with(|| (&a.function, &a.image).cmp(&(&b.function, &b.image)))
        });
        let others = rows.len().saturating_sub(limit.unwrap_or(usize::MAX));
        rows.truncate(limit.unwrap_or(usize::MAX));
        Ok(Inclusive {
            schema: SCHEMA,
            epochs: stacks.epochs.clone(),
            event: stacks.event.name.clone(),
            samples: total,
            all_samples: stacks.all_samples,
            incomplete: incomplete(&stacks),
            rows,
            others,
            notes: stacks.notes,
        })
    }
}

/// Returns how many samples have an incomplete stack, most first.
fn incomplete(stacks: &Stacks) -> Vec<IncompleteStacks> {
    let all = stacks.incomplete.iter().map(|((cause, image), samples)| IncompleteStacks {
        cause: cause.clone(),
        image: image.clone(),
        samples: *samples,
    });
    let mut all: Vec<IncompleteStacks> = all.collect();
    all.sort_by_key(|row| Reverse(row.samples));
    all
}

/// Rows by function, as a tree.
#[derive(Default)]
struct Rows {
    by_function: FxHashMap<(u32, bool), Row>,
}

#[derive(Default)]
struct Row {
    samples: u64,
    sites: BTreeMap<(String, u32), u64>,
    rows: Rows,
}

impl Rows {
    /// Adds samples along a way. Each step has the frame of the row, and the frame at whose line the call is.
    fn add(&mut self, stacks: &Stacks, steps: &[(u32, u32)], samples: u64) {
        let Some(((frame, site), rest)) = steps.split_first() else { return };
        let node = &stacks.nodes[*frame as usize];
        let row = self.by_function.entry((node.function, node.inlined)).or_default();
        row.samples += samples;
        if let Some(line) = &stacks.nodes[*site as usize].line {
            *row.sites.entry(line.clone()).or_default() += samples;
        }
        row.rows.add(stacks, rest, samples);
    }

    fn rows(self, stacks: &Stacks, whole: u64, share_min: f64) -> Vec<CallersRow> {
        let shared = |samples: u64| samples as f64 / whole.max(1) as f64;
        let kept = self.by_function.into_iter().filter(|(_, row)| shared(row.samples) >= share_min);
        let mut rows: Vec<CallersRow> = kept
            .map(|((function, inlined), row)| {
                let function = &stacks.functions[function as usize];
                let site = |((file, line), samples)| CallSite { file, line, samples };
                let mut sites: Vec<CallSite> = row.sites.into_iter().map(site).collect();
                sites.sort_by_key(|site| Reverse(site.samples));
                CallersRow {
                    function: function.name.clone(),
                    image: function.image.clone(),
                    inlined,
                    samples: row.samples,
                    share: shared(row.samples),
                    sites,
                    rows: row.rows.rows(stacks, whole, share_min),
                }
            })
            .collect();
        rows.sort_by(|a, b| {
            b.samples.cmp(&a.samples).then_with(|| (&a.function, &a.image).cmp(&(&b.function, &b.image)))
        });
        rows
    }
}
