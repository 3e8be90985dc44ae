//! Call stacks by name.
//!
//! Input: epochs. Output: a tree of named frames, with inlined calls. Cost: one look-up for each distinct place.

use std::{
    collections::{BTreeMap, hash_map::Entry},
    sync::Arc,
};

use dwell_image::{Image, without_parameters};
use dwell_profile::{
    CallParent, CodePlace, Event, ImageId, ImageKind, ImageOffset, ImageRecord, StoredCallTree, path_to_text,
};
use rustc_hash::FxHashMap;

use super::flame::named_events;
use crate::{
    Cancel, Query, QueryError, SampleFilter,
    analyse::procedures::{begin_of, image_name, symbol_at},
    answer::{CodeLine, INCOMPLETE, PlaceEvent, StackFunction, StackNode, Stacks},
    load::{call_stacks, period_weights::mean_period, selection::Selection},
    query::View,
};

/// Stands for the name of an inlined function that the debug information does not name.
const INLINED: &str = "[inlined]";

/// A source file and a line in it, where they are known.
type SourceLine = Option<(String, u32)>;

/// A frame at a place, by name. A place with inlined calls has several, outermost first.
#[derive(Clone)]
pub(super) struct NamedFrame {
    pub function: u32,
    pub inlined: bool,
    pub line: SourceLine,
}

/// A place in an image, by name.
#[derive(Clone)]
pub(super) struct NamedPlace {
    address: u64,
    pub frames: Vec<NamedFrame>,
}

/// Call stacks by name, with where their functions begin.
pub(crate) struct NamedStacks {
    pub stacks: Stacks,
    /// Source file and first line of each function that is compiled on its own, by the function's index.
    begins: FxHashMap<u32, (Arc<str>, u32)>,
}

impl NamedStacks {
    /// Returns source file and first line of a function (an index); `None` if they are not known, or if all its calls are inlined.
    pub fn begin(&self, function: u32) -> Option<CodeLine> {
        self.begins.get(&function).map(|(file, line)| CodeLine { file: file.to_string(), line: *line })
    }
}

/// Names of places, each looked up once.
pub(super) struct Names<'q> {
    query: &'q Query,
    records: FxHashMap<&'q ImageId, &'q ImageRecord>,
    pub places: FxHashMap<CodePlace, NamedPlace>,
    pub functions: Vec<StackFunction>,
    numbers: FxHashMap<StackFunction, u32>,
    begins: FxHashMap<u32, (Arc<str>, u32)>,
}

impl Query {
    /// Returns the call stacks of the primary event, of the samples that `filter` takes.
    pub fn stacks(
        &self,
        epochs: &[String],
        filter: &SampleFilter,
        cancel: &Cancel,
    ) -> Result<Stacks, QueryError> {
        let view = self.view_of(epochs, filter)?;
        let event = primary(&view.selection)?;
        self.stacks_of(&view, event, filter, cancel)
    }

    /// Returns the call stacks of the event with this name.
    pub fn stacks_of_event(
        &self,
        epochs: &[String],
        event: &str,
        cancel: &Cancel,
    ) -> Result<Stacks, QueryError> {
        let filter = SampleFilter::default();
        let view = self.view_of(epochs, &filter)?;
        Ok(self.named_stacks_of(&view, event, &filter, cancel)?.stacks)
    }

    /// Returns the call stacks of the event with this name, of the samples that `filter` takes; `view` is of the same filter.
    pub(crate) fn named_stacks_of(
        &self,
        view: &View,
        event: &str,
        filter: &SampleFilter,
        cancel: &Cancel,
    ) -> Result<NamedStacks, QueryError> {
        let events = named_events(&view.selection, &[event.to_owned()])?;
        self.name_stacks(view, events[0], filter, cancel)
    }

    /// Returns the call stacks of an event, of the samples that `filter` takes; `view` is of the same filter.
    pub(crate) fn stacks_of(
        &self,
        view: &View,
        event: &Event,
        filter: &SampleFilter,
        cancel: &Cancel,
    ) -> Result<Stacks, QueryError> {
        Ok(self.name_stacks(view, event, filter, cancel)?.stacks)
    }

    /// Returns the call stacks of the primary event, and keeps them for the next request.
    pub(crate) fn named_stacks(
        &self,
        view: &View,
        filter: &SampleFilter,
        cancel: &Cancel,
    ) -> Result<Arc<NamedStacks>, QueryError> {
        let event = primary(&view.selection)?;
        view.stacks.get_or_try_init(|| self.name_stacks(view, event, filter, cancel).map(Arc::new)).cloned()
    }

    fn name_stacks(
        &self,
        view: &View,
        event: &Event,
        filter: &SampleFilter,
        cancel: &Cancel,
    ) -> Result<NamedStacks, QueryError> {
        let selection = &view.selection;
        if self.narrowed(filter).has_dimensions() {
            let why = "call stacks are not kept by thread, CPU or control group: select by application (--app), or none";
            return Err(QueryError::NoStacks { epoch: selection.name(), why: why.to_owned() });
        }
        let tree = call_stacks::read(&self.database, &selection.epochs, event, filter)?;
        if tree.is_empty() {
            return Err(no_stacks(selection, Some(event)));
        }
        let period = mean_period(selection.epochs.iter(), event);
        let mut stacks = Stacks {
            epochs: selection.epochs.iter().map(|e| e.id.to_string()).collect(),
            event: PlaceEvent {
                name: event.name().to_owned(),
                period: period.map_or(1, |(mean, _)| mean.round() as u64),
                unit: period.map_or("events", |(_, unit)| unit.name()).to_owned(),
            },
            all_samples: selection.samples_of(event),
            apps: Vec::new(),
            functions: Vec::new(),
            nodes: Vec::new(),
            incomplete: BTreeMap::new(),
            notes: selection.notes.clone(),
        };
        let mut names = Names::new(self, view);
        names.add(&tree, &mut stacks, cancel)?;
        stacks.functions = names.functions;
        Ok(NamedStacks { stacks, begins: names.begins })
    }
}

/// Returns the primary event.
fn primary(selection: &Selection) -> Result<&Event, QueryError> {
    selection.primary().ok_or_else(|| no_stacks(selection, None))
}

/// Returns the error that an event, or the primary one, has no stacks. A recording that could not have them says why.
pub(crate) fn no_stacks(selection: &Selection, event: Option<&Event>) -> QueryError {
    let refused = selection.notes.iter().find(|note| note.starts_with("call stacks are not recorded"));
    let why = match (refused, event) {
        (Some(refused), _) => refused.clone(),
        (None, Some(event)) if selection.primary() != Some(event) => {
            format!("no call stacks were recorded of {event}")
        }
        _ => "no call stacks were recorded: record with '--stacks 500'".to_owned(),
    };
    QueryError::NoStacks { epoch: selection.name(), why }
}

impl<'q> Names<'q> {
    pub fn new(query: &'q Query, view: &'q View) -> Self {
        let records = view.selection.images.iter().map(|image| (&image.record.id, &image.record));
        Names {
            query,
            records: records.collect(),
            places: FxHashMap::default(),
            functions: Vec::new(),
            numbers: FxHashMap::default(),
            begins: FxHashMap::default(),
        }
    }

    /// Adds all stacks of a tree by name. Frames of one function at one address under one caller become one.
    fn add(&mut self, tree: &StoredCallTree, stacks: &mut Stacks, cancel: &Cancel) -> Result<(), QueryError> {
        let mut known: FxHashMap<(Option<u32>, u32, u32, u64, bool), u32> = FxHashMap::default();
        let mut apps: FxHashMap<&str, u32> = FxHashMap::default();
        let roots = tree.roots_of_nodes();
        // The innermost named frame of each node.
        let mut innermost: Vec<u32> = Vec::with_capacity(tree.nodes().len());
        let mut ends: Vec<u32> = (0..).take(tree.nodes().len()).collect();
        for (number, node) in tree.nodes().iter().enumerate() {
            if number % 4096 == 0 {
                cancel.check()?;
            }
            let root = &tree.roots()[roots[number] as usize];
            let app = *apps.entry(&root.app).or_insert_with(|| {
                stacks.apps.push(root.app.to_string());
                stacks.apps.len() as u32 - 1
            });
            let mut put = |parent, function, (address, offset), frame: &NamedFrame| {
                let key = (parent, app, function, address, frame.inlined);
                *known.entry(key).or_insert_with(|| {
                    let (inlined, line) = (frame.inlined, frame.line.clone());
                    stacks.nodes.push(StackNode {
                        parent,
                        app,
                        function,
                        inlined,
                        address,
                        offset,
                        line,
                        samples: 0,
                    });
                    stacks.nodes.len() as u32 - 1
                })
            };
            let mut parent = match node.parent {
                CallParent::Node(caller) => {
                    ends[number] = ends[caller as usize];
                    Some(innermost[caller as usize])
                }
                CallParent::Root(_) if root.end.is_complete() => None,
                CallParent::Root(_) => {
                    let function = self.number(StackFunction {
                        name: INCOMPLETE.to_owned(),
                        image: String::new(),
                        path: String::new(),
                        build_id: String::new(),
                        image_base: 0,
                        kernel: false,
                    });
                    let frame = NamedFrame { function, inlined: false, line: None };
                    Some(put(None, function, (0, 0), &frame))
                }
            };
            if !root.end.is_complete() && node.samples > 0 {
                let image = &tree.nodes()[ends[number] as usize].frame.image;
                let image = self.records.get(image).map_or(image.to_string(), |record| image_name(record));
                *stacks.incomplete.entry((root.end.name().to_owned(), image)).or_default() += node.samples;
            }
            let place = self.place(&node.frame);
            for frame in &place.frames {
                parent = Some(put(parent, frame.function, (place.address, node.frame.offset.0), frame));
            }
            let last = parent.expect("each place has a frame");
            stacks.nodes[last as usize].samples += node.samples;
            innermost.push(last);
        }
        Ok(())
    }

    fn number(&mut self, function: StackFunction) -> u32 {
        let functions = &mut self.functions;
        *self.numbers.entry(function).or_insert_with_key(|function| {
            functions.push(function.clone());
            functions.len() as u32 - 1
        })
    }

    pub fn place(&mut self, place: &CodePlace) -> NamedPlace {
        if let Some(known) = self.places.get(place) {
            return known.clone();
        }
        let named = match self.records.get(&place.image).copied() {
            Some(record) => self.look_up(record, place),
            None => {
                let name = format!("[{}]", place.image);
                let image = place.image.to_string();
                let (path, build_id) = (image.clone(), image.clone());
                let function = StackFunction { name, image, path, build_id, image_base: 0, kernel: false };
                self.one_frame(place.offset.0, function)
            }
        };
        self.places.insert(place.clone(), named.clone());
        named
    }

    /// Keeps where a function begins, unless that is known.
    fn keep_begin(&mut self, function: u32, begin: impl FnOnce() -> Option<(Arc<str>, u32)>) {
        if let Entry::Vacant(entry) = self.begins.entry(function)
            && let Some(begin) = begin()
        {
            entry.insert(begin);
        }
    }

    fn one_frame(&mut self, address: u64, function: StackFunction) -> NamedPlace {
        let function = self.number(function);
        NamedPlace { address, frames: vec![NamedFrame { function, inlined: false, line: None }] }
    }

    fn look_up(&mut self, record: &ImageRecord, place: &CodePlace) -> NamedPlace {
        let image = image_name(record);
        let found = self.query.store.find(record);
        let base = found.image.as_ref().ok().and_then(|opened| opened.address_of(ImageOffset(0)));
        let function = |name: String| StackFunction {
            name,
            image: image.clone(),
            path: path_to_text(&record.path).into_owned(),
            build_id: record.id.to_string(),
            image_base: base.map_or(0, |address| address.0),
            kernel: matches!(record.kind, ImageKind::Kernel | ImageKind::Module),
        };
        if let Ok(opened) = &found.image
            && let Some(address) = opened.address_of(place.offset)
        {
            let frames = named_frames(opened, address, &image);
            let frames = frames.into_iter().enumerate().map(|(at, (name, line))| NamedFrame {
                function: self.number(function(name)),
                inlined: at > 0,
                line,
            });
            let frames: Vec<NamedFrame> = frames.collect();
            self.keep_begin(frames[0].function, || {
                opened.procedure_line(opened.procedure_at(address)?.address)
            });
            return NamedPlace { address: address.0, frames };
        }
        if let Some(symbol) = symbol_at(found.symbols(record), place.offset.0) {
            return self.one_frame(place.offset.0, function(dwell_image::demangle(&symbol.name)));
        }
        if let Some(named) = record.places.at(place.offset) {
            let frames = named.frames.iter().rev().enumerate().map(|(at, frame)| NamedFrame {
                function: self.number(function(dwell_image::demangle(&frame.function))),
                inlined: at > 0,
                line: frame.file.as_ref().map(|f| f.to_string()).zip(frame.line),
            });
            let frames: Vec<NamedFrame> = frames.collect();
            if let Some(outermost) = frames.first() {
                self.keep_begin(outermost.function, || begin_of(record, place.offset));
                return NamedPlace { address: place.offset.0, frames };
            }
        }
        self.one_frame(place.offset.0, function(bracketed(&image)))
    }
}

/// Returns the functions at an address, outermost first, each with the line of the instruction or the inlined call.
fn named_frames(
    image: &Image,
    address: dwell_image::ImageAddress,
    image_name: &str,
) -> Vec<(String, SourceLine)> {
    let procedure = image.procedure_at(address).map(|procedure| procedure.demangled());
    let mut frames: Vec<_> = image
        .frames(address)
        .into_iter()
        .rev()
        .map(|frame| (frame.function, frame.file.map(|f| f.to_string()).zip(frame.line.filter(|l| *l > 0))))
        .collect();
    if frames.is_empty() {
        frames.push((None, None));
    }
    let name = |(at, (function, line)): (usize, (Option<String>, SourceLine))| {
        let known = if at == 0 { procedure.clone().or(function) } else { function };
        (known.unwrap_or_else(|| if at == 0 { bracketed(image_name) } else { INLINED.to_owned() }), line)
    };
    frames.into_iter().enumerate().map(name).collect()
}

/// Returns the name of the innermost function at an address of a procedure, as frames of stacks have it.
pub(crate) fn innermost_name(image: &Image, address: dwell_image::ImageAddress, procedure: &str) -> String {
    let mut frames = image.frames(address);
    match frames.len() {
        0 | 1 => procedure.to_owned(),
        _ => frames.swap_remove(0).function.unwrap_or_else(|| INLINED.to_owned()),
    }
}

/// Returns the name that stands for code without a symbol.
fn bracketed(image: &str) -> String {
    if image.starts_with('[') { image.to_owned() } else { format!("[{image}]") }
}

/// Returns the indices of the functions that a user means by `name`: `NAME` or `BINARY:NAME`, with or without parameters.
pub fn functions_named(stacks: &Stacks, name: &str) -> Vec<u32> {
    let all = || (0..).zip(&stacks.functions).filter(|(_, f)| f.name != INCOMPLETE);
    let full = |f: &StackFunction| format!("{}:{}", f.image, f.name);
    let exact: Vec<u32> =
        all().filter(|(_, f)| f.name == name || full(f) == name).map(|(at, _)| at).collect();
    if !exact.is_empty() {
        return exact;
    }
    let short = |f: &StackFunction| without_parameters(&f.name).to_string();
    let is_meant = |f: &StackFunction| short(f) == name || format!("{}:{}", f.image, short(f)) == name;
    all().filter(|(_, f)| is_meant(f)).map(|(at, _)| at).collect()
}
