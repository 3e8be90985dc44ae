//! Calls as a recording, so that whatever reads recordings reads calls: flame graphs, callers, comparisons, exports, SQL.
//!
//! Enters: the sum of calls. Leaves: what a database stores of it. Never here: files.
//!
//! A call is counted at the entry of its function, which is the innermost frame, under the call sites. Its time is counted without that of
//! the counted functions that it calls, so a function's total is the sum of its part of the tree.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use dwell_profile::{
    CallStacksRecord, CodePlace, Counts, Event, EventRecord, ImageId, ImageKind, ImageRecord, SampleKey,
    StackEnd, StackRoot, StoredCallTree, Unit,
};

use crate::{
    answer::{CallSum, Context, MergedFunction, MergedPath},
    shared_memory::PathEnd,
};

/// The name of the backend in a recording of calls.
pub const BACKEND: &str = "callpaths";

/// The part of a recording that a database stores of calls.
pub struct Recording {
    /// `calls`, with those that were missed as lost ones, and `calls-wall`, `calls-cpu` and `calls-blocked` in ns where these were
    /// measured.
    pub events: BTreeMap<Event, EventRecord>,
    /// The numbers of each function, at its entry.
    pub counts: Counts,
    /// The same numbers by call path.
    pub call_tree: StoredCallTree,
    /// The paths in numbers: of the calls, not of their times.
    pub call_stacks: CallStacksRecord,
    /// The images of functions and call sites.
    pub images: Vec<ImageRecord>,
}

impl Recording {
    /// Makes a recording of calls.
    pub fn new(context: &Context, sum: &CallSum) -> Self {
        let mut recording = Recording {
            events: BTreeMap::new(),
            counts: Counts::default(),
            call_tree: StoredCallTree::default(),
            call_stacks: CallStacksRecord::default(),
            images: images(sum),
        };
        let calls = |path: &MergedPath| path.counts.calls;
        recording.add("calls", Unit::Events, sum, &numbers(sum, calls));
        for metric in context.metric_names() {
            let times = own_times(sum, &numbers(sum, |path| context.sum_ns(metric, path)));
            recording.add(&format!("calls-{metric}"), Unit::Nanoseconds, sum, &times);
        }
        let missed = sum.functions().iter().map(|function| function.missed).sum();
        recording.events.entry(Event::named("calls")).and_modify(|record| record.lost = missed);
        for path in sum.functions().iter().flat_map(MergedFunction::paths) {
            recording.call_stacks.samples += path.counts.calls;
            let end = end_of(path);
            if !end.is_complete() {
                *recording.call_stacks.incomplete.entry(end.name().to_owned()).or_default() += calls(path);
            }
        }
        recording
    }

    /// Adds an event, with a number for each path of each function.
    fn add(&mut self, name: &str, unit: Unit, sum: &CallSum, numbers: &Numbers) {
        let event = Event::named(name);
        let mut all = 0;
        for (function, numbers) in sum.functions().iter().zip(numbers) {
            for (path, number) in function.paths().zip(numbers).filter(|(_, number)| **number > 0) {
                let key = SampleKey {
                    image: function.entry.image.clone(),
                    event: event.clone(),
                    offset: function.entry.offset,
                    app: path.app.clone(),
                    instance: 0,
                    dimensions: None,
                };
                *self.counts.entry(key).or_default() += number;
                let root =
                    StackRoot { event: event.clone(), app: path.app.clone(), instance: 0, end: end_of(path) };
                let frames = path.sites.iter().map(|site| &site.place).chain([&function.entry]);
                self.call_tree.add(root, frames.cloned(), *number);
                all += number;
            }
        }
        let record = EventRecord {
            period: 1,
            unit,
            samples: all,
            lost: 0,
            throttled: 0,
            unknown: 0,
            running_share: None,
        };
        self.events.insert(event, record);
    }
}

/// A number for each path of each function.
type Numbers = Vec<Vec<u64>>;

fn numbers(sum: &CallSum, of: impl Fn(&MergedPath) -> u64) -> Numbers {
    sum.functions().iter().map(|function| function.paths().map(&of).collect()).collect()
}

/// Takes from the time of each call that of the counted functions which it calls. O(paths × frames).
fn own_times(sum: &CallSum, times: &Numbers) -> Numbers {
    let by_entry: HashMap<&CodePlace, usize> =
        sum.functions().iter().enumerate().map(|(number, function)| (&function.entry, number)).collect();
    let mut paths: HashMap<(usize, Vec<&CodePlace>), usize> = HashMap::new();
    for (number, function) in sum.functions().iter().enumerate() {
        for (at, path) in function.paths().enumerate().filter(|(_, path)| path.end != PathEnd::Others) {
            paths.entry((number, path.sites.iter().map(|site| &site.place).collect())).or_insert(at);
        }
    }
    let mut own = times.clone();
    for (function, times) in sum.functions().iter().zip(times) {
        for (path, time) in function.paths().zip(times) {
            // The innermost frame that is a counted function is the one whose time has that of this call.
            let caller = path.sites.iter().enumerate().rev().find_map(|(depth, site)| {
                let number = by_entry.get(site.entry.as_ref()?)?;
                Some((*number, path.sites[..depth].iter().map(|site| &site.place).collect::<Vec<_>>()))
            });
            if let Some(caller) = caller
                && let Some(at) = paths.get(&caller)
            {
                // Less than nothing remains where the caller has not returned yet.
                own[caller.0][*at] = own[caller.0][*at].saturating_sub(*time);
            }
        }
    }
    own
}

/// Returns the images that functions and call sites are in.
fn images(sum: &CallSum) -> Vec<ImageRecord> {
    let sites = sum.functions().iter().flat_map(MergedFunction::paths).flat_map(|path| &path.sites);
    let places = sites.map(|site| &site.place).chain(sum.functions().iter().map(|function| &function.entry));
    let used: BTreeSet<&ImageId> = places.map(|place| &place.image).collect();
    let unknown = ImageRecord::new(ImageId::unknown(), ImageKind::Unknown, "[unknown]");
    let all = sum.images().chain([&unknown]);
    all.filter(|record| used.contains(&record.id)).cloned().collect()
}

fn end_of(path: &MergedPath) -> StackEnd {
    match path.end {
        PathEnd::Complete => StackEnd::Root,
        PathEnd::UnknownCode => StackEnd::NoUnwindInformation,
        PathEnd::TooDeep => StackEnd::TooDeep,
        PathEnd::Unreadable => StackEnd::Broken,
        PathEnd::Others => StackEnd::Unknown,
    }
}
