//! What is shown of probes: plain data, whose JSON is the contract of `dwell callpaths --json`.
//!
//! Enters: numbers by addresses, and the images of the process. Leaves: names, frames, nanoseconds.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use dwell_image::ImageAddress;
use dwell_profile::{CodePlace, ImageId, ImageOffset, ImageRecord, VirtualAddress};
use serde::Serialize;

use crate::{
    calibration::Calibration,
    functions::Found,
    process_images::MappedImage,
    shared_memory::{Metrics, PathCounts, PathEnd, Snapshot, Values},
};

/// The calls of functions in a process.
#[derive(Clone, Debug, Serialize)]
pub struct CallPaths {
    /// Version of this layout: 1.
    pub schema: u32,
    /// The processes.
    pub processes: Vec<u32>,
    /// Number of processes that have the functions, or may have them, whose calls are not counted; `None` if that is not known.
    pub uncounted_processes: Option<u64>,
    /// How long calls were counted, in ns.
    pub elapsed_ns: u64,
    /// The functions, in the order in which they were named.
    pub functions: Vec<FunctionCalls>,
    /// Time in ns that probes add to a call, measured on a function of Dwell's own; `None` if that was not possible.
    pub overhead_ns_per_call: Option<f64>,
    /// The longest time in ns that a thread was stopped.
    pub stopped_ns: u64,
}

/// The calls of a function.
#[derive(Clone, Debug, Serialize)]
pub struct FunctionCalls {
    /// Its name.
    pub function: String,
    /// The path of its image.
    pub image: String,
    /// The image's build ID, if it has one.
    pub build_id: Option<String>,
    /// The function's address in the image.
    pub address: u64,
    /// The source file and the line where it begins, if these are known.
    pub file: Option<String>,
    /// The line, from 1.
    pub line: Option<u32>,
    /// How it is probed: `patch`.
    pub method: &'static str,
    /// Number of calls.
    pub calls: u64,
    /// Number of calls that returned; `None` if exits are not patched.
    pub returns: Option<u64>,
    /// Number of calls that an exception or longjmp ended; `None` likewise.
    pub unwound: Option<u64>,
    /// Number of calls that could not be recorded.
    pub missed: u64,
    /// The metrics of all paths together.
    pub metrics: BTreeMap<&'static str, MetricValues>,
    /// The call paths, the most frequent first.
    pub paths: Vec<CallPath>,
}

/// A way on which a function was called.
#[derive(Clone, Debug, Serialize)]
pub struct CallPath {
    /// The frames from the outermost to the call site; none: all other paths together, since there were too many.
    pub frames: Vec<CallFrame>,
    /// Whether the first frame is the outermost one of its thread. If not, the stack could not be read further.
    pub is_complete: bool,
    /// Number of calls.
    pub calls: u64,
    /// Number of calls that returned; `None` if exits are not patched.
    pub returns: Option<u64>,
    /// The calls' share of the function's.
    pub share: f64,
    /// The metrics.
    pub metrics: BTreeMap<&'static str, MetricValues>,
}

/// A frame of a path: a function and the call in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct CallFrame {
    /// The function, if its name is known.
    pub function: Option<String>,
    /// The path of its image, if it is in one.
    pub image: Option<String>,
    /// Address in the image of the return address, or in the process if it is in no image.
    pub offset: u64,
    /// The source file.
    pub file: Option<String>,
    /// The line of the call.
    pub line: Option<u32>,
    /// Whether the function was inlined into the frame before.
    pub inlined: bool,
}

/// The values of a metric, in ns.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct MetricValues {
    /// The sum over all calls that returned.
    pub sum: u64,
    /// The median.
    pub p50: Option<u64>,
    /// The value that one of a hundred calls exceeds.
    pub p99: Option<u64>,
    /// The largest.
    pub max: u64,
}

/// The chosen metrics, and what turns ticks into nanoseconds.
pub struct Context {
    /// What is measured.
    pub metrics: Metrics,
    /// How long a tick takes.
    pub ns_per_tick: f64,
    /// What probes cost; `None` if that is not known.
    pub calibration: Option<Calibration>,
}

/// The numbers of a process and what its addresses mean.
pub struct ProcessCalls<'p> {
    /// The process.
    pub pid: u32,
    /// Its images.
    pub images: &'p [MappedImage],
    /// The functions by their number.
    pub functions: &'p [Found],
    /// The numbers.
    pub snapshot: Snapshot,
}

/// The calls of several processes together. Functions and paths that processes have in common are added up.
#[derive(Clone, Default)]
pub struct CallSum {
    processes: Vec<u32>,
    functions: Vec<MergedFunction>,
    images: BTreeMap<ImageId, ImageRecord>,
}

/// A function of several processes.
#[derive(Clone)]
pub struct MergedFunction {
    function: String,
    image: String,
    build_id: Option<String>,
    address: ImageAddress,
    begins: (Option<String>, Option<u32>),
    /// The place of its first instruction.
    pub entry: CodePlace,
    /// Number of calls that could not be recorded.
    pub missed: u64,
    paths: BTreeMap<(Vec<CallFrame>, PathEnd), MergedPath>,
}

/// A call path of several processes.
#[derive(Clone)]
pub struct MergedPath {
    /// The name of the executable.
    pub app: Arc<str>,
    /// The call sites from the outermost one on, without inlined calls.
    pub sites: Vec<CallSite>,
    /// The reason why there are no further call sites.
    pub end: PathEnd,
    /// The calls on this path and their times, of all processes.
    pub counts: PathCounts,
}

/// A call in the code of a process.
#[derive(Clone)]
pub struct CallSite {
    /// The last byte of the call.
    pub place: CodePlace,
    /// The first instruction of the function that it is in, if that is known.
    pub entry: Option<CodePlace>,
}

impl MergedFunction {
    /// Iterates over the call paths, in an order that does not change.
    pub fn paths(&self) -> impl Iterator<Item = &MergedPath> {
        self.paths.values()
    }
}

impl CallSum {
    /// Adds the calls of a process, or of one of the programs that it executed.
    pub fn add(&mut self, process: &ProcessCalls) {
        if !self.processes.contains(&process.pid) {
            self.processes.push(process.pid);
        }
        let app = process.app();
        for (number, function) in process.functions.iter().enumerate() {
            let merged = self.merged(&process.images[function.image], function);
            let missed = process.snapshot.missed.get(number);
            merged.missed += missed.map_or(0, |missed| missed.iter().sum());
            for path in process.snapshot.paths.iter().filter(|path| path.function as usize == number) {
                let inwards = path.return_addresses.iter().rev();
                let frames = inwards.clone().flat_map(|address| process.frames(*address)).collect();
                let merged = merged.paths.entry((frames, path.end));
                merged.and_modify(|merged| merged.counts.add(path)).or_insert_with(|| MergedPath {
                    app: app.clone(),
                    sites: inwards.map(|address| process.call_site(*address)).collect(),
                    end: path.end,
                    counts: path.clone(),
                });
            }
        }
        for image in process.images {
            self.images.entry(image.id()).or_insert_with(|| image.record());
        }
    }

    /// Returns the functions, in the order in which they were named.
    pub fn functions(&self) -> &[MergedFunction] {
        &self.functions
    }

    /// Returns the images of the processes.
    pub fn images(&self) -> impl Iterator<Item = &ImageRecord> {
        self.images.values()
    }

    /// Returns whether there are no processes.
    pub fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }

    /// Returns the function among those of the processes before, or adds it.
    fn merged(&mut self, image: &MappedImage, function: &Found) -> &mut MergedFunction {
        let build_id = image.image.build_id().map(ToString::to_string);
        let is_same = |other: &MergedFunction| {
            other.address == function.image_address
                && other.image == image.path()
                && other.build_id == build_id
        };
        let at = self.functions.iter().position(is_same).unwrap_or_else(|| {
            self.functions.push(MergedFunction {
                function: function.name.clone(),
                image: image.path().to_owned(),
                build_id: build_id.clone(),
                address: function.image_address,
                begins: begins(image, function.image_address),
                entry: image.place_of(function.image_address),
                missed: 0,
                paths: BTreeMap::new(),
            });
            self.functions.len() - 1
        });
        &mut self.functions[at]
    }
}

impl CallPaths {
    /// Makes an answer. `uncounted` is the number of processes whose calls are not counted, if that is known.
    pub fn new(
        context: &Context,
        sum: CallSum,
        uncounted: Option<u64>,
        elapsed: Duration,
        stopped: Duration,
    ) -> Self {
        CallPaths {
            schema: 1,
            processes: sum.processes,
            uncounted_processes: uncounted,
            elapsed_ns: elapsed.as_nanos() as u64,
            functions: sum.functions.into_iter().map(|merged| context.function(merged)).collect(),
            overhead_ns_per_call: context.calibration.map(|cost| cost.overhead_ns),
            stopped_ns: stopped.as_nanos() as u64,
        }
    }
}

/// Returns the source line of a function's first instruction, which is not an inlined one of another function.
fn begins(image: &MappedImage, address: ImageAddress) -> (Option<String>, Option<u32>) {
    let outermost = image.image.frames(address).pop();
    outermost.map_or((None, None), |frame| (frame.file.map(|file| file.to_string()), frame.line))
}

/// Returns the values of a metric.
type Of = fn(&PathCounts) -> &Values;

impl Context {
    fn function(&self, merged: MergedFunction) -> FunctionCalls {
        let MergedFunction {
            function, image, build_id, address, begins: (file, line), missed, paths, ..
        } = merged;
        let sum = |of: fn(&PathCounts) -> u64| paths.values().map(|path| of(&path.counts)).sum::<u64>();
        let calls = sum(|path| path.calls);
        let [returns, unwound] =
            [sum(|path| path.returns), sum(|path| path.unwound)].map(|n| self.metrics.returns.then_some(n));
        let metrics = self.metrics(&paths.values().map(|path| &path.counts).collect::<Vec<_>>());
        let mut shown: Vec<CallPath> = paths
            .into_iter()
            .map(|((frames, end), MergedPath { counts, .. })| CallPath {
                frames,
                is_complete: end == PathEnd::Complete,
                calls: counts.calls,
                returns: self.metrics.returns.then_some(counts.returns),
                share: counts.calls as f64 / calls.max(1) as f64,
                metrics: self.metrics(&[&counts]),
            })
            .collect();
        shown.sort_by_key(|path| std::cmp::Reverse(path.calls));
        FunctionCalls {
            function,
            image,
            build_id,
            address: address.0,
            file,
            line,
            method: "patch",
            calls,
            returns,
            unwound,
            missed,
            metrics,
            paths: shown,
        }
    }

    /// Returns the names of the metrics of time that are measured.
    pub fn metric_names(&self) -> impl Iterator<Item = &'static str> {
        self.metrics(&[]).into_keys()
    }

    /// Returns the sum of a metric over the calls of a path, in ns; 0 if it is not measured.
    pub fn sum_ns(&self, metric: &str, path: &MergedPath) -> u64 {
        self.metrics(&[&path.counts]).get(metric).map_or(0, |values| values.sum)
    }

    fn metrics(&self, paths: &[&PathCounts]) -> BTreeMap<&'static str, MetricValues> {
        let chosen: [(&'static str, bool, Of); 3] = [
            ("wall", self.metrics.wall, |path| &path.wall),
            ("cpu", self.metrics.cpu, |path| &path.cpu),
            ("blocked", self.metrics.blocked, |path| &path.blocked),
        ];
        let measured = chosen.into_iter().filter(|(_, is_on, _)| *is_on);
        measured
            .map(|(name, _, of)| {
                // The probe's own time is in the wall time and in the CPU time of a call, but not in blocked time.
                let own_ticks =
                    self.calibration.filter(|_| name != "blocked").map_or(0, |cost| cost.inner_ticks);
                (name, self.values(paths.iter().map(|path| of(path)), own_ticks))
            })
            .collect()
    }

    /// Adds up values, without the ticks that the probe took of each.
    fn values<'v>(&self, values: impl Iterator<Item = &'v Values>, own_ticks: u64) -> MetricValues {
        let mut all: Option<Values> = None;
        for values in values {
            match &mut all {
                Some(all) => all.add(values),
                None => all = Some(values.clone()),
            }
        }
        let in_ns = |ticks: u64| (ticks as f64 * self.ns_per_tick) as u64;
        let ns = |ticks: u64| in_ns(ticks.saturating_sub(own_ticks));
        match all {
            Some(all) => MetricValues {
                // The probe's time varies, so that of very short calls may be less than what is taken out.
                sum: in_ns(all.sum.saturating_sub(own_ticks * all.buckets.iter().sum::<u64>()))
                    .max(ns(all.max)),
                p50: all.quantile(0.5).map(ns),
                p99: all.quantile(0.99).map(ns),
                max: ns(all.max),
            },
            None => MetricValues { sum: 0, p50: None, p99: None, max: 0 },
        }
    }
}

impl ProcessCalls<'_> {
    /// Returns the name of the executable, which is mapped below all libraries.
    fn app(&self) -> Arc<str> {
        let path = self.images.first().map_or("", |image| image.path());
        path.rsplit('/').next().unwrap_or_default().into()
    }

    /// Returns the image that a byte of code is in: what was mapped last, if there was another image before.
    fn image_at(&self, address: VirtualAddress) -> Option<&MappedImage> {
        self.images.iter().rev().find(|image| image.mapping.contains(address))
    }

    /// Returns the call before a return address.
    fn call_site(&self, address: VirtualAddress) -> CallSite {
        let call = address.back(1);
        let Some(image) = self.image_at(call) else {
            let place = CodePlace { image: ImageId::unknown(), offset: ImageOffset(call.as_offset()) };
            return CallSite { place, entry: None };
        };
        let procedure = image.procedure_at(call);
        CallSite {
            place: image.place_of(image.in_image(call)),
            entry: procedure.map(|procedure| image.place_of(procedure.address)),
        }
    }

    /// Returns the frames of a return address, an inlined one after the one that it was inlined into.
    fn frames(&self, address: VirtualAddress) -> Vec<CallFrame> {
        let call = address.back(1); // The call is before the return address.
        let Some(image) = self.image_at(call) else {
            let unknown = CallFrame {
                function: None,
                image: None,
                offset: address.as_offset(),
                file: None,
                line: None,
                inlined: false,
            };
            return vec![unknown];
        };
        let offset = image.in_image(address).0;
        let frames = image.image.frames(image.in_image(call));
        let mut shown: Vec<CallFrame> = frames
            .into_iter()
            .rev()
            .enumerate()
            .map(|(depth, frame)| CallFrame {
                function: frame.function,
                image: Some(image.path().to_owned()),
                offset,
                file: frame.file.map(|file| file.to_string()),
                line: frame.line,
                inlined: depth > 0,
            })
            .collect();
        if shown.is_empty() {
            let image = Some(image.path().to_owned());
            shown.push(CallFrame { function: None, image, offset, file: None, line: None, inlined: false });
        }
        shown
    }
}
