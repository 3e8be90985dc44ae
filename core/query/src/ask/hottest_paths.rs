//! Request `hottest_paths`: the call paths with the most samples, at a length that people read.
//!
//! Input: named call stacks. Output: paths of functions. Stacks that lead through the same functions are one path, whatever the
//! lines of their calls; calls of a function by itself are one frame; of long stacks the innermost frames are kept. Each sample is
//! counted at one path. Cost: one pass over the sampled frames.

use std::{cmp::Reverse, collections::BTreeMap};

use rustc_hash::FxHashMap;

use super::{callers::incomplete, stacks::NamedStacks};
use crate::{
    Cancel, Query, QueryError, SampleFilter,
    answer::{CallPath, CodeLine, HottestPaths, PathFrame, Stacks},
};

/// A function of a path: its index, whether it is inlined, whether it calls itself.
type Frame = (u32, bool, bool);

/// The samples of one path.
#[derive(Default)]
struct Sum {
    samples: u64,
    /// Samples by frame of the path (its position) and line.
    sites: BTreeMap<(usize, CodeLine), u64>,
}

impl Query {
    /// Returns the `limit` call paths with the most samples, each of at most `depth` frames.
    pub fn hottest_paths(
        &self,
        epochs: &[String],
        filter: &SampleFilter,
        limit: usize,
        depth: usize,
        cancel: &Cancel,
    ) -> Result<HottestPaths, QueryError> {
        let view = self.view_of(epochs, filter)?;
        let named = self.named_stacks(&view, filter, cancel)?;
        let stacks = &named.stacks;
        let mut sums = added_up(stacks, depth.max(1), cancel)?;
        let others = sums.split_off(sums.len().min(limit));
        let total = stacks.samples();
        Ok(HottestPaths {
            schema: 1,
            epochs: stacks.epochs.clone(),
            event: stacks.event.name.clone(),
            samples: total,
            paths: sums.into_iter().map(|(key, sum)| path(&named, &key, sum, total)).collect(),
            others: others.len(),
            others_samples: others.iter().map(|(_, sum)| sum.samples).sum(),
            incomplete: incomplete(&stacks.incomplete),
            notes: stacks.notes.clone(),
        })
    }
}

/// The frames of a path, outermost first, and whether outer ones were left out.
type Key = (Vec<Frame>, bool);

/// Returns the paths, most samples first.
fn added_up(stacks: &Stacks, depth: usize, cancel: &Cancel) -> Result<Vec<(Key, Sum)>, QueryError> {
    let mut sums: FxHashMap<Key, Sum> = FxHashMap::default();
    for (number, (node, nodes)) in stacks.sampled().enumerate() {
        if number % 4096 == 0 {
            cancel.check()?;
        }
        let (frames, lines) = shortened(stacks, &nodes, depth);
        let sum = sums.entry(frames).or_default();
        sum.samples += node.samples;
        for (at, line) in lines.into_iter().enumerate() {
            if let Some((file, line)) = line.clone() {
                *sum.sites.entry((at, CodeLine { file, line })).or_default() += node.samples;
            }
        }
    }
    let mut sums: Vec<(Key, Sum)> = sums.into_iter().collect();
    sums.sort_by(|(a, one), (b, other)| other.samples.cmp(&one.samples).then_with(|| a.cmp(b)));
    Ok(sums)
}

/// Returns the innermost `depth` frames of a stack as a path, with the line of each: of several calls of a function by itself, the
/// innermost one's.
fn shortened<'s>(stacks: &'s Stacks, nodes: &[u32], depth: usize) -> (Key, Vec<&'s Option<(String, u32)>>) {
    let (mut frames, mut lines): (Vec<Frame>, Vec<_>) = (Vec::new(), Vec::new());
    for node in nodes.iter().map(|at| &stacks.nodes[*at as usize]) {
        match frames.last_mut() {
            Some((function, _, recursive)) if *function == node.function => {
                *recursive = true;
                *lines.last_mut().expect("as many as frames") = &node.line;
            }
            _ => {
                frames.push((node.function, node.inlined, false));
                lines.push(&node.line);
            }
        }
    }
    let left_out = frames.len().saturating_sub(depth);
    ((frames.split_off(left_out), left_out > 0), lines.split_off(left_out))
}

fn path(named: &NamedStacks, (frames, shortened): &Key, sum: Sum, total: u64) -> CallPath {
    let site = |at: usize| {
        let of_frame = sum.sites.iter().filter(|((position, _), _)| *position == at);
        of_frame.min_by_key(|(_, samples)| Reverse(**samples)).map(|((_, line), _)| line.clone())
    };
    let frame = |(at, (function, inlined, recursive)): (usize, &Frame)| {
        let known = &named.stacks.functions[*function as usize];
        PathFrame {
            function: known.name.clone(),
            image: known.image.clone(),
            inlined: *inlined,
            recursive: *recursive,
            site: site(at),
        }
    };
    CallPath {
        frames: frames.iter().enumerate().map(frame).collect(),
        shortened: *shortened,
        samples: sum.samples,
        share: sum.samples as f64 / total.max(1) as f64,
    }
}
