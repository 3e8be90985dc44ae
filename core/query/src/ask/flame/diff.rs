//! Request `flame --diff`: the call stacks of two sets of recordings as one tree, each frame with its change.
//!
//! Input: named call stacks of each recording. Output: a tree of bounded size. Whether a change is more than chance is tested as
//! in `diff` (see [`significance`](crate::analyse::significance)), with the samples that have a stack as the exposure: both
//! sides have the same total. Cost: one pass over the frames of each recording.

use std::sync::Arc;

use dwell_analysis::MachineModel;

use super::{FlameKind, FrameTree, kind, named_events, tree::Drawing};
use crate::{
    Cancel, Query, QueryError, SampleFilter,
    analyse::significance::{Observed, compare, false_discovery_rates},
    answer::{DiffChange, DiffSide, FlameDiff, FlameDiffFunction, FlameDiffNode, Stacks},
    query::View,
};

/// A request to [`Query::flame_diff`].
#[derive(Clone, Debug)]
pub struct FlameDiffRequest {
    /// Epochs before the change.
    pub a: Vec<String>,
    /// Epochs after the change. Several epochs on one side show how much runs vary by themselves.
    pub b: Vec<String>,
    /// The event whose stacks are compared; `None`: the primary event of each side, which must be the same.
    pub event: Option<String>,
    /// Which samples count.
    pub filter: SampleFilter,
    /// Largest number of frames that are kept apart.
    pub nodes_max: usize,
}

/// One side: its epochs together, and the stacks of each.
struct Side {
    view: Arc<View>,
    runs: Vec<Stacks>,
}

impl Side {
    fn samples(&self) -> u64 {
        self.runs.iter().map(Stacks::samples).sum()
    }

    fn answer(&self) -> DiffSide {
        let selection = &self.view.selection;
        let cpu = &selection.epochs[selection.epochs.len() - 1].cpu;
        DiffSide {
            epochs: selection.epochs.iter().map(|e| e.id.to_string()).collect(),
            cpu: cpu.model_name.clone(),
            machine_model: MachineModel::for_cpu(cpu).name().to_owned(),
            event: self.runs[0].event.name.clone(),
            samples: self.runs.iter().map(|run| run.all_samples).sum(),
            period_cycles: selection.period_cycles(),
        }
    }
}

impl Query {
    /// Returns the call stacks of two sets of epochs as one tree.
    pub fn flame_diff(&self, request: &FlameDiffRequest, cancel: &Cancel) -> Result<FlameDiff, QueryError> {
        let a = self.side(&request.a, request, cancel)?;
        let b = self.side(&request.b, request, cancel)?;
        let (event_a, event_b) = (&a.runs[0].event, &b.runs[0].event);
        if event_a.name != event_b.name {
            let why = format!("A sampled {}, B sampled {}", event_a.name, event_b.name);
            return Err(QueryError::MixedUnits { epoch: b.view.selection.name(), why });
        }
        let runs: Vec<&Stacks> = a.runs.iter().chain(&b.runs).collect();
        let mut tree: FrameTree<FlameDiffFunction> = FrameTree::new(runs.len());
        let several = runs.iter().any(|run| run.apps.len() > 1);
        for (run, stacks) in runs.iter().enumerate() {
            let function = |f: &crate::answer::StackFunction| FlameDiffFunction {
                kind: kind(f),
                name: f.name.clone(),
                image: f.image.clone(),
            };
            let functions: Vec<u32> = stacks.functions.iter().map(|f| tree.function(function(f))).collect();
            let app = |name: &String| FlameDiffFunction {
                kind: FlameKind::Application,
                name: name.clone(),
                image: String::new(),
            };
            let apps: Option<Vec<u32>> =
                several.then(|| stacks.apps.iter().map(|name| tree.function(app(name))).collect());
            tree.add(stacks, None, (&functions, apps.as_deref()), (run, 1));
        }
        let first_of_b = a.runs.len();
        // Frames of A alone are kept too, so that what disappeared is shown.
        let drawing = tree.draw(request.nodes_max, &|values| values.iter().sum());
        let merged = drawing.merged;
        let changes = changes(&a, &b, &drawing, first_of_b);
        let nodes = drawing.nodes.into_iter().zip(changes).map(|(node, change)| FlameDiffNode {
            parent: node.parent,
            function: node.function,
            inlined: node.inlined,
            merged: node.merged,
            change,
        });
        Ok(FlameDiff {
            schema: 1,
            nodes: nodes.collect(),
            functions: drawing.functions.into_iter().map(|f| f.function).collect(),
            samples_a: a.samples(),
            samples_b: b.samples(),
            merged,
            notes: notes(&a, &b),
            a: a.answer(),
            b: b.answer(),
        })
    }

    fn side(
        &self,
        epochs: &[String],
        request: &FlameDiffRequest,
        cancel: &Cancel,
    ) -> Result<Side, QueryError> {
        let view = self.view_apart(epochs, &request.filter)?;
        let mut runs = Vec::new();
        for run in view.selection.runs() {
            let one = self.view_of(&run, &request.filter)?;
            let events = named_events(&one.selection, request.event.as_slice())?;
            runs.push(self.stacks_of(&one, events[0], &request.filter, cancel)?);
        }
        Ok(Side { view, runs })
    }
}

/// Returns the change of each node.
fn changes<F>(a: &Side, b: &Side, drawing: &Drawing<F>, first_of_b: usize) -> Vec<DiffChange> {
    let exposures: Vec<f64> = a.runs.iter().chain(&b.runs).map(|run| run.samples() as f64).collect();
    let exposure = b.samples() as f64 / a.samples().max(1) as f64;
    let change = |total: &[u64]| {
        let observed = |(count, exposure): (&u64, &f64)| Observed { count: *count, exposure: *exposure };
        let runs: Vec<Observed> = total.iter().zip(&exposures).map(observed).collect();
        let (of_a, of_b) = runs.split_at(first_of_b);
        let sum = |runs: &[Observed]| runs.iter().map(|run| run.count as f64).sum::<f64>();
        let (samples_a, samples_b) = (sum(of_a), sum(of_b));
        let change = samples_b / exposure - samples_a;
        DiffChange {
            samples_a,
            samples_b,
            change,
            change_share: change / a.samples().max(1) as f64,
            ratio: (samples_a > 0.0).then(|| samples_b / exposure / samples_a),
            p: compare(of_a, of_b).p,
            ..DiffChange::default()
        }
    };
    let mut changes: Vec<DiffChange> = drawing.nodes.iter().map(|node| change(&node.total)).collect();
    let p: Vec<f64> = changes.iter().map(|change| change.p).collect();
    for (change, rate) in changes.iter_mut().zip(false_discovery_rates(&p)) {
        change.judge(rate);
    }
    changes
}

fn notes(a: &Side, b: &Side) -> Vec<String> {
    let mut notes = Vec::new();
    let (of_a, of_b) = (a.answer(), b.answer());
    if of_a.cpu != of_b.cpu {
        notes.push(format!("different machines: A on {}, B on {}", of_a.cpu, of_b.cpu));
    }
    if a.runs.len() + b.runs.len() == 2 {
        let why = "one run on each side: only sampling noise is filtered, as variation of runs is unknown";
        notes.push(why.to_owned());
    }
    for (name, side) in [("A", a), ("B", b)] {
        notes.extend(side.view.selection.notes.iter().map(|note| format!("{name}: {note}")));
    }
    notes.sort();
    notes.dedup();
    notes
}
