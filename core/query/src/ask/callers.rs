//! Callers and callees of a function, and functions by their inclusive samples.
//!
//! Input: named call stacks. Output: rows. Cost: one pass over the frames.

use std::{cmp::Reverse, collections::BTreeMap};

use rustc_hash::FxHashMap;

use super::stacks::{NamedStacks, functions_named};
use crate::{
    Cancel, Query, QueryError, SampleFilter,
    answer::{
        CallSite, Callers, CallersRow, INCOMPLETE, Inclusive, InclusiveRow, IncompleteStacks, StackNode,
        Stacks,
    },
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

/// One call on the way from a function to its callers or callees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallStep {
    /// Demangled name of the caller or callee.
    pub function: String,
    /// File name of its binary.
    pub image: String,
    /// Whether the call is inlined.
    pub inlined: bool,
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
    /// The event whose call stacks count; `None`: the primary one.
    pub event: Option<String>,
    /// The way to the rows, from the function on: the rows are those that follow it. If empty, the rows are direct callers or
    /// callees.
    pub through: Vec<CallStep>,
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
        let view = self.view_of(&request.epochs, &request.filter)?;
        let named = match &request.event {
            Some(event) => self.named_stacks_of(&view, event, &request.filter, cancel)?.into(),
            None => self.named_stacks(&view, &request.filter, cancel)?,
        };
        let stacks = &named.stacks;
        let functions = one_function(stacks, &request.function)?;
        let within = Within::new(stacks, &functions);
        let mut tree = Rows::default();
        within.each_way(request.direction, |steps, samples| {
            if let Some(rest) = after(stacks, steps, &request.through) {
                tree.add(stacks, &rest[..rest.len().min(request.depth)], samples);
            }
        });
        let first = &stacks.functions[functions[0] as usize];
        Ok(Callers {
            schema: SCHEMA,
            epochs: stacks.epochs.clone(),
            event: stacks.event.name.clone(),
            function: first.name.clone(),
            image: first.image.clone(),
            begins: functions.iter().find_map(|function| named.begin(*function)),
            samples: within.samples(),
            own: within.own(),
            total: stacks.samples(),
            rows: tree.rows(&named, within.samples(), request.share_min),
            incomplete: incomplete(&stacks.incomplete),
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
        let view = self.view_of(epochs, filter)?;
        let named = self.named_stacks(&view, filter, cancel)?;
        let stacks = &named.stacks;
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
            incomplete: incomplete(&stacks.incomplete),
            rows,
            others,
            notes: stacks.notes.clone(),
        })
    }
}

/// Returns the indices of the functions that a user means by `name`. There are several if builds or inlined copies differ; all
/// are of one binary.
pub(super) fn one_function(stacks: &Stacks, name: &str) -> Result<Vec<u32>, QueryError> {
    let functions = functions_named(stacks, name);
    let of = |at: &u32| &stacks.functions[*at as usize];
    let Some(first) = functions.first().map(of) else {
        return Err(QueryError::NoFunctionInStacks { name: name.to_owned(), epoch: stacks.epochs.join("+") });
    };
    if functions.iter().any(|at| of(at).image != first.image) {
        let full = |at: &u32| format!("{}:{}", of(at).image, of(at).name);
        let candidates = functions.iter().map(full).collect();
        return Err(QueryError::Ambiguous { name: name.to_owned(), candidates });
    }
    Ok(functions)
}

/// The frames of stacks that are in a function or in what it calls.
pub(super) struct Within<'s> {
    stacks: &'s Stacks,
    is_it: Vec<bool>,
    /// The innermost frame of the function at or outside of each frame.
    anchors: Vec<Option<u32>>,
}

/// A step from a function to a caller or callee: the frame of the row, and the frame at whose line the call is.
type Step = (u32, u32);

impl<'s> Within<'s> {
    /// Finds the frames of functions, given by their indices.
    pub fn new(stacks: &'s Stacks, functions: &[u32]) -> Self {
        let mut is_it = vec![false; stacks.functions.len()];
        functions.iter().for_each(|function| is_it[*function as usize] = true);
        let mut anchors: Vec<Option<u32>> = Vec::with_capacity(stacks.nodes.len());
        for (at, node) in (0..).zip(&stacks.nodes) {
            let outer = node.parent.and_then(|parent| anchors[parent as usize]);
            anchors.push(if is_it[node.function as usize] { Some(at) } else { outer });
        }
        Within { stacks, is_it, anchors }
    }

    /// Iterates over the frames with samples whose stack contains the function.
    pub fn sampled(&self) -> impl Iterator<Item = &'s StackNode> {
        self.stacks
            .nodes
            .iter()
            .zip(&self.anchors)
            .filter(|(node, anchor)| node.samples > 0 && anchor.is_some())
            .map(|(node, _)| node)
    }

    /// Returns the number of samples whose stack contains the function.
    pub fn samples(&self) -> u64 {
        self.sampled().map(|node| node.samples).sum()
    }

    /// Returns the number of samples in the function itself.
    pub fn own(&self) -> u64 {
        self.sampled().filter(|node| self.is(node)).map(|node| node.samples).sum()
    }

    /// Returns the number of other samples whose outer frames are not known, so that the function may be among them.
    pub fn possible(&self) -> u64 {
        let nodes = &self.stacks.nodes;
        let mut is_incomplete: Vec<bool> = Vec::with_capacity(nodes.len());
        for node in nodes {
            let outer = node.parent.map(|parent| is_incomplete[parent as usize]);
            is_incomplete.push(
                outer.unwrap_or_else(|| self.stacks.functions[node.function as usize].name == INCOMPLETE),
            );
        }
        let all = nodes.iter().zip(&self.anchors).zip(is_incomplete);
        let possible = all.filter(|((_, anchor), is_incomplete)| anchor.is_none() && *is_incomplete);
        possible.map(|((node, _), _)| node.samples).sum()
    }

    fn is(&self, node: &StackNode) -> bool {
        self.is_it[node.function as usize]
    }

    /// Calls `take` with each way from the function to its callers or callees, and the number of samples.
    fn each_way(&self, direction: Direction, mut take: impl FnMut(&[Step], u64)) {
        match direction {
            Direction::Callers => self.each_way_out(&mut take),
            Direction::Callees => self.each_way_in(&mut take),
        }
    }

    /// The frame of a caller is at the line of its call.
    fn each_way_out(&self, take: &mut impl FnMut(&[Step], u64)) {
        let nodes = &self.stacks.nodes;
        let mut sums = vec![0; nodes.len()];
        for (node, anchor) in nodes.iter().zip(&self.anchors) {
            anchor.iter().for_each(|anchor| sums[*anchor as usize] += node.samples);
        }
        for (at, samples) in (0_u32..).zip(sums).filter(|(_, samples)| *samples > 0) {
            let outer =
                std::iter::successors(nodes[at as usize].parent, |frame| nodes[*frame as usize].parent);
            let outer = outer.skip_while(|frame| self.is(&nodes[*frame as usize]));
            take(&outer.map(|frame| (frame, frame)).collect::<Vec<Step>>(), samples);
        }
    }

    /// The line of a call is that of the calling frame.
    fn each_way_in(&self, take: &mut impl FnMut(&[Step], u64)) {
        let nodes = &self.stacks.nodes;
        for (at, node) in (0_u32..).zip(nodes).filter(|(_, node)| node.samples > 0) {
            let Some(anchor) = self.anchors[at as usize] else { continue };
            let step = |frame: u32| nodes[frame as usize].parent.map(|caller| (frame, caller));
            let up = std::iter::successors(step(at), |(_, caller)| step(*caller));
            let mut steps: Vec<Step> = up.take_while(|(frame, _)| *frame != anchor).collect();
            steps.reverse();
            take(&steps, node.samples);
        }
    }
}

/// Returns the steps after those that a request goes through; `None` if the way is another one.
fn after<'w>(stacks: &Stacks, steps: &'w [Step], through: &[CallStep]) -> Option<&'w [Step]> {
    let (way, rest) = steps.split_at_checked(through.len())?;
    let is_same = |((frame, _), wanted): (&Step, &CallStep)| {
        let function = stacks.function(*frame);
        stacks.nodes[*frame as usize].inlined == wanted.inlined
            && function.name == wanted.function
            && function.image == wanted.image
    };
    way.iter().zip(through).all(is_same).then_some(rest)
}

/// Returns the direct callers of functions, given by their indices.
pub(super) fn direct_callers(named: &NamedStacks, within: &Within<'_>) -> Vec<CallersRow> {
    let mut tree = Rows::default();
    within.each_way(Direction::Callers, |steps, samples| {
        tree.add(&named.stacks, &steps[..steps.len().min(1)], samples)
    });
    tree.rows(named, within.samples(), 0.0)
}

/// Returns how many samples have an incomplete stack, most first, given the numbers by cause and binary.
pub(crate) fn incomplete(stacks: &BTreeMap<(String, String), u64>) -> Vec<IncompleteStacks> {
    let all = stacks.iter().map(|((cause, image), samples)| IncompleteStacks {
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
    fn add(&mut self, stacks: &Stacks, steps: &[Step], samples: u64) {
        let Some(((frame, site), rest)) = steps.split_first() else { return };
        let node = &stacks.nodes[*frame as usize];
        let row = self.by_function.entry((node.function, node.inlined)).or_default();
        row.samples += samples;
        if let Some(line) = &stacks.nodes[*site as usize].line {
            *row.sites.entry(line.clone()).or_default() += samples;
        }
        row.rows.add(stacks, rest, samples);
    }

    fn rows(self, named: &NamedStacks, whole: u64, share_min: f64) -> Vec<CallersRow> {
        let shared = |samples: u64| samples as f64 / whole.max(1) as f64;
        let kept = self.by_function.into_iter().filter(|(_, row)| shared(row.samples) >= share_min);
        let mut rows: Vec<CallersRow> = kept
            .map(|((index, inlined), row)| {
                let function = &named.stacks.functions[index as usize];
                let site = |((file, line), samples)| CallSite { file, line, samples };
                let mut sites: Vec<CallSite> = row.sites.into_iter().map(site).collect();
                sites.sort_by_key(|site| Reverse(site.samples));
                CallersRow {
                    function: function.name.clone(),
                    image: function.image.clone(),
                    inlined,
                    begins: named.begin(index),
                    samples: row.samples,
                    share: shared(row.samples),
                    sites,
                    rows: row.rows.rows(named, whole, share_min),
                }
            })
            .collect();
        rows.sort_by(|a, b| {
            b.samples.cmp(&a.samples).then_with(|| (&a.function, &a.image).cmp(&(&b.function, &b.image)))
        });
        rows
    }
}
