//! Request `flame`: all call stacks as one tree of functions, with cycles per instruction and causes of the functions that hold
//! most of the time.
//!
//! Input: named call stacks of one or several events. Output: a tree of bounded size. Values of events are added up only if
//! their periods have one unit. Cost: one pass over the frames, and the analysis of the functions with most samples.

mod analysis;
mod diff;
mod places;
mod tree;

use std::collections::{BTreeMap, BTreeSet};

use dwell_profile::{Event, Unit};

pub use diff::FlameDiffRequest;
use tree::{Drawing, FrameTree};

use super::{callers::incomplete, stacks::no_stacks};
use crate::{
    Cancel, Query, QueryError, SampleFilter,
    answer::{
        Flame, FlameEvent, FlameFunction, FlameKind, FlameNode, INCOMPLETE, IncompleteStacks, StackFunction,
        Stacks,
    },
    load::{period_weights::mean_period, selection::Selection},
    query::View,
};

/// A request to [`Query::flame`].
#[derive(Clone, Debug)]
pub struct FlameRequest {
    /// Selectors of the epochs; none: the latest one.
    pub epochs: Vec<String>,
    /// Events whose stacks are shown; none: the primary event.
    pub events: Vec<String>,
    /// Which samples count.
    pub filter: SampleFilter,
    /// Largest number of frames that are kept apart.
    pub nodes_max: usize,
    /// Whether to analyse the functions that hold most of the samples.
    pub analyse: bool,
}

/// What a frame stands for.
type Named = (FlameKind, StackFunction);

impl Query {
    /// Returns all call stacks as a tree of functions.
    pub fn flame(&self, request: &FlameRequest, cancel: &Cancel) -> Result<Flame, QueryError> {
        let view = self.view_of(&request.epochs, &request.filter)?;
        let selection = &view.selection;
        let events = named_events(selection, &request.events)?;
        let unit = common_unit(selection, &events)?;
        let of = |event: &&Event| self.stacks_of(&view, event, &request.filter, cancel);
        let all = events.iter().map(of).collect::<Result<Vec<Stacks>, _>>()?;
        let tree = tree_of(&all, unit.is_some());
        let drawing = tree.draw(request.nodes_max, &|values| values[0]);
        let mut notes = all[0].notes.clone();
        let mut flame = Flame {
            schema: 1,
            epochs: all[0].epochs.clone(),
            events: all.iter().map(event_of).collect(),
            unit: unit.map_or("samples", |unit| unit.name()).to_owned(),
            total: 0,
            functions: functions_of(&drawing),
            merged: drawing.merged,
            nodes: drawing.nodes.into_iter().map(node_of).collect(),
            analysed_share: 0.0,
            incomplete: incomplete_of(&all),
            notes: Vec::new(),
        };
        flame.total = flame.nodes.iter().map(|node| node.own).sum();
        let names: Vec<Named> = drawing.functions.into_iter().map(|f| f.function).collect();
        places::find(self, &view, &all, &names, &mut flame.functions, cancel)?;
        if request.analyse {
            let [stacks] = &all[..] else {
                notes.push("causes are not analysed in a graph of several events".to_owned());
                return Ok(Flame { notes, ..flame });
            };
            notes.extend(analysis::analyse(self, &view, stacks, &names, &mut flame, cancel)?);
        }
        Ok(Flame { notes, ..flame })
    }
}

/// Returns what a sample with a stack stands for, in the unit of the period: samples without a stack are spread over those with one, so
/// that events of which different parts have stacks can be compared.
fn time_of_stack(stacks: &Stacks) -> u64 {
    let with_stack = stacks.samples().max(1) as f64;
    (stacks.event.period as f64 * (stacks.all_samples as f64 / with_stack).max(1.0)).round() as u64
}

/// Adds the stacks of all events up. If `by_period` is set, a sample counts as much as the time that it stands for.
fn tree_of(all: &[Stacks], by_period: bool) -> FrameTree<Named> {
    let mut tree: FrameTree<Named> = FrameTree::new(1);
    let apps: BTreeSet<&String> = all.iter().flat_map(|stacks| &stacks.apps).collect();
    for stacks in all {
        let event = named(FlameKind::Event, &stacks.event.name);
        let under = (all.len() > 1).then(|| tree.function(event)).map(|f| tree.frame(None, f, false));
        let functions: Vec<u32> =
            stacks.functions.iter().map(|f| tree.function((kind(f), f.clone()))).collect();
        let names = stacks.apps.iter().map(|app| named(FlameKind::Application, app));
        let names: Option<Vec<u32>> = (apps.len() > 1).then(|| names.map(|app| tree.function(app)).collect());
        let value = if by_period { time_of_stack(stacks) } else { 1 };
        tree.add(stacks, under, (&functions, names.as_deref()), (0, value));
    }
    tree
}

/// Returns the events that a request names; the primary one if it names none.
pub(super) fn named_events<'s>(
    selection: &'s Selection,
    names: &[String],
) -> Result<Vec<&'s Event>, QueryError> {
    if names.is_empty() {
        return selection.primary().map(|event| vec![event]).ok_or_else(|| no_stacks(selection, None));
    }
    let sampled = || selection.events.iter().filter(|event| !event.is_derived());
    let find = |name: &String| {
        let found = sampled()
            .find(|event| event.name() == name)
            .or_else(|| sampled().find(|event| event.base_name() == name));
        found.ok_or_else(|| QueryError::NoEvent {
            name: name.clone(),
            epoch: selection.name(),
            known: sampled().map(|event| event.name().to_owned()).collect(),
        })
    };
    let mut events = names.iter().map(find).collect::<Result<Vec<_>, _>>()?;
    let mut seen = Vec::new();
    events.retain(|event| {
        !seen.contains(event) && {
            seen.push(*event);
            true
        }
    });
    Ok(events)
}

/// Returns the unit that values of several events have in common; `None` for one event, whose samples are counted.
fn common_unit(selection: &Selection, events: &[&Event]) -> Result<Option<Unit>, QueryError> {
    let [_, _, ..] = events else { return Ok(None) };
    let mixed = |why: String| QueryError::MixedUnits { epoch: selection.name(), why };
    let mut unit = None;
    for event in events {
        let Some((_, own)) = mean_period(selection.epochs.iter(), event) else { continue };
        if own == Unit::Events || *unit.get_or_insert(own) != own {
            let words = |event: &&Event| match mean_period(selection.epochs.iter(), event) {
                Some((_, unit)) => format!("{event} in {}", unit.name()),
                None => event.to_string(),
            };
            let units: Vec<String> = events.iter().map(words).collect();
            return Err(mixed(format!("events of different units have no sum: {}", units.join(", "))));
        }
    }
    Ok(unit)
}

/// Returns what stands for an event or an application.
fn named(kind: FlameKind, name: &str) -> Named {
    let none = String::new;
    let function = StackFunction {
        name: name.to_owned(),
        image: none(),
        path: none(),
        build_id: none(),
        image_base: 0,
        kernel: false,
    };
    (kind, function)
}

fn kind(function: &StackFunction) -> FlameKind {
    match function.name == INCOMPLETE && function.build_id.is_empty() {
        true => FlameKind::Incomplete,
        false => FlameKind::Function,
    }
}

fn event_of(stacks: &Stacks) -> FlameEvent {
    FlameEvent {
        name: stacks.event.name.clone(),
        period: stacks.event.period,
        unit: stacks.event.unit.clone(),
        samples: stacks.samples(),
        all_samples: stacks.all_samples,
    }
}

fn functions_of(drawing: &Drawing<Named>) -> Vec<FlameFunction> {
    let function = |values: &tree::FunctionValues<Named>| {
        let (kind, function) = &values.function;
        FlameFunction {
            kind: *kind,
            name: function.name.clone(),
            image: function.image.clone(),
            id: None,
            kernel: function.kernel,
            file: None,
            line: None,
            total: values.total[0],
            own: values.own[0],
            analysis: None,
        }
    };
    drawing.functions.iter().map(function).collect()
}

fn node_of(node: tree::DrawnNode) -> FlameNode {
    FlameNode {
        parent: node.parent,
        function: node.function,
        inlined: node.inlined,
        total: node.total[0],
        own: node.own[0],
        merged: node.merged,
    }
}

/// Returns how many samples of all events have an incomplete stack.
fn incomplete_of(all: &[Stacks]) -> Vec<IncompleteStacks> {
    let mut sums = BTreeMap::new();
    for ((cause, image), samples) in all.iter().flat_map(|stacks| &stacks.incomplete) {
        *sums.entry((cause.clone(), image.clone())).or_insert(0) += samples;
    }
    incomplete(&sums)
}
