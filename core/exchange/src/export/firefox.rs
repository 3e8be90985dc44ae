//! The Firefox Profiler's processed profile format: a thread for each event, a weighted sample for each instruction.
//!
//! The format: docs-developer/processed-profile-format.md of firefox-devtools/profiler; this is version 55, which later
//! versions upgrade. Frames have lines (for the source view) and addresses within the libraries of their symbols (for
//! the assembly view, which requests the bytes from a symbol server such as `samply load`). Dwell's samples have no
//! times, so they follow each other in the order of procedures, one each millisecond. The profile states its start and
//! end, because nothing else defines them if there are no samples.

use std::collections::BTreeMap;

use dwell_query::answer::{InstructionPlace, Places, ProcedurePlaces, StackFunction, Stacks};
use serde_json::{Value, json};

use super::file_name;

const VERSION: u32 = 55;
/// Indices into [`categories`].
const OTHER: usize = 0;
const USER: usize = 1;
const KERNEL: usize = 2;
/// The type of resources that are libraries.
const LIBRARY: u32 = 1;

fn categories() -> Value {
    let category =
        |name: &str, color: &str| json!({ "name": name, "color": color, "subcategories": ["Other"] });
    json!([category("Other", "grey"), category("User", "yellow"), category("Kernel", "orange")])
}

pub fn write(places: &Places) -> String {
    let mut libraries = Libraries::default();
    for p in &places.procedures {
        libraries.index(&p.build_id, &p.image);
    }
    let threads: Vec<Value> =
        (0..places.events.len()).map(|event| thread(places, event, &libraries)).collect();
    let longest = (0..places.events.len()).map(|event| sampled(places, event).count()).max().unwrap_or(0);
    file(places, libraries, threads, longest)
}

/// Returns the samples that have a call stack.
pub fn write_stacks(places: &Places, stacks: &Stacks) -> String {
    let mut libraries = Libraries::default();
    for function in &stacks.functions {
        libraries.index(&function.build_id, &function.path);
    }
    let mut thread = Thread::new(&libraries);
    let (mut indices, mut weights) = (Vec::new(), Vec::new());
    for (node, path) in stacks.sampled() {
        indices.push(thread.call_stack(stacks, &path));
        weights.push(node.samples);
    }
    let (name, process) = (&stacks.event.name, places.epochs.join("+"));
    let thread = thread.value(name, &process, 0, &indices, &weights);
    file(places, libraries, vec![thread], weights.len())
}

fn file(places: &Places, libraries: Libraries, threads: Vec<Value>, longest: usize) -> String {
    let event = places.events.first();
    let interval_ms = event.filter(|e| e.unit == "ns").map_or(1.0, |e| e.period as f64 / 1e6);
    let file = json!({
        "meta": {
            "version": 24, "preprocessedProfileVersion": VERSION, "processType": 0, "debug": false, "stackwalk": 0,
            "product": "dwell", "interval": interval_ms, "startTime": places.start_ns as f64 / 1e6,
            "symbolicated": true, "categories": categories(), "markerSchema": [], "extensions":
                { "length": 0, "baseURL": [], "id": [], "name": [] },
            "profilingStartTime": 0, "profilingEndTime": longest + 1,
            "pausedRanges": [], "usesOnlyOneStackType": true, "sourceCodeIsNotOnSearchfox": true,
            "sampleUnits": { "time": "ms", "eventDelay": "ms", "threadCPUDelta": "ns" },
            "importedFrom": concat!("dwell ", env!("CARGO_PKG_VERSION")),
        },
        "libs": libraries.all,
        "threads": threads,
        "pages": [], "profilerOverhead": [], "counters": [],
    });
    file.to_string() + "\n"
}

/// Returns the instructions that have samples of an event.
fn sampled(places: &Places, event: usize) -> impl Iterator<Item = (&ProcedurePlaces, &InstructionPlace)> {
    let all = places.procedures.iter().flat_map(|p| p.instructions.iter().map(move |i| (p, i)));
    all.filter(move |(_, i)| i.samples[event] > 0)
}

#[derive(Default)]
struct Libraries {
    known: BTreeMap<String, usize>,
    all: Vec<Value>,
}

impl Libraries {
    fn index(&mut self, build_id: &str, path: &str) -> usize {
        if let Some(&known) = self.known.get(build_id) {
            return known;
        }
        let name = file_name(path);
        self.all.push(json!({
            "name": name, "path": path, "debugName": name, "debugPath": path,
            "breakpadId": breakpad_id(build_id), "codeId": is_hex(build_id).then_some(build_id), "arch": null,
        }));
        self.known.insert(build_id.to_owned(), self.all.len() - 1);
        self.all.len() - 1
    }
}

fn is_hex(id: &str) -> bool {
    !id.is_empty() && id.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Returns a build ID as Breakpad spells it: its first 16 bytes as a GUID, whose first three fields are little-endian,
/// and an age of 0.
fn breakpad_id(build_id: &str) -> String {
    if !is_hex(build_id) {
        return "0".repeat(33);
    }
    let digits: String = build_id.chars().chain(std::iter::repeat('0')).take(32).collect();
    let bytes: Vec<&str> = (0..16).map(|i| &digits[2 * i..2 * i + 2]).collect();
    let order = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
    order.map(|i| bytes[i].to_ascii_uppercase()).concat() + "0"
}

/// A table that is stored by columns and contains each row once.
struct Table<K> {
    known: BTreeMap<K, usize>,
    rows: Vec<K>,
}

impl<K: Ord + Clone> Table<K> {
    fn new() -> Self {
        Table { known: BTreeMap::new(), rows: Vec::new() }
    }

    fn index(&mut self, row: K) -> usize {
        if let Some(&known) = self.known.get(&row) {
            return known;
        }
        self.rows.push(row.clone());
        self.known.insert(row, self.rows.len() - 1);
        self.rows.len() - 1
    }

    fn column<V: serde::Serialize>(&self, value: impl Fn(&K) -> V) -> Value {
        json!(self.rows.iter().map(value).collect::<Vec<V>>())
    }
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Function {
    name: usize,
    library: usize,
    file: Option<usize>,
    line: Option<u32>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Frame {
    address: u64,
    depth: usize,
    function: usize,
    symbol: usize,
    line: Option<u32>,
    category: usize,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Symbol {
    library: usize,
    address: u64,
    name: usize,
}

/// The tables of a thread that its samples refer to.
struct Thread<'a> {
    libraries: &'a Libraries,
    strings: Table<String>,
    functions: Table<Function>,
    frames: Table<Frame>,
    symbols: Table<Symbol>,
    /// The stacks: a frame, and the stack of its caller.
    stacks: Table<(usize, Option<usize>)>,
}

fn thread(places: &Places, event: usize, libraries: &Libraries) -> Value {
    let mut thread = Thread::new(libraries);
    let (mut stacks, mut weights) = (Vec::new(), Vec::new());
    for (p, i) in sampled(places, event) {
        stacks.push(thread.stack(p, i));
        weights.push(i.samples[event]);
    }
    thread.value(&places.events[event].name, &places.epochs.join("+"), event, &stacks, &weights)
}

impl<'a> Thread<'a> {
    fn new(libraries: &'a Libraries) -> Self {
        Thread {
            libraries,
            strings: Table::new(),
            functions: Table::new(),
            frames: Table::new(),
            symbols: Table::new(),
            stacks: Table::new(),
        }
    }

    /// Returns the stack of these frames, outermost first. The symbol of a frame has no address, so that there is no view of its
    /// assembly.
    fn call_stack(&mut self, stacks: &Stacks, path: &[u32]) -> usize {
        let (mut stack, mut depth) = (None, 0);
        for &at in path {
            let (node, function): (_, &StackFunction) = (&stacks.nodes[at as usize], stacks.function(at));
            depth = if node.inlined { depth + 1 } else { 0 };
            let library = self.libraries.known[&function.build_id];
            let name = self.text(&function.name);
            let (address, file) = (node.address.saturating_sub(function.image_base), node.line.as_ref());
            let symbol = self.symbols.index(Symbol { library, address, name });
            let file_name = file.map(|(file, _)| self.text(file));
            let row = Function { name, library, file: file_name, line: None };
            let (function, line) = (self.functions.index(row), file.map(|(_, line)| *line));
            let category = if stacks.function(at).kernel { KERNEL } else { USER };
            let frame = self.frames.index(Frame { address, depth, function, symbol, line, category });
            stack = Some(self.stacks.index((frame, stack)));
        }
        stack.expect("each stack has a frame")
    }

    fn text(&mut self, text: &str) -> usize {
        self.strings.index(text.to_owned())
    }

    /// Returns the stack from the procedure to the innermost inlined function: frames with the same address, each
    /// called by the previous one.
    fn stack(&mut self, p: &ProcedurePlaces, i: &InstructionPlace) -> usize {
        let library = self.libraries.known[&p.build_id];
        let address = i.address.saturating_sub(p.image_base);
        let name = self.text(&p.demangled);
        let symbol =
            self.symbols.index(Symbol { library, address: p.address.saturating_sub(p.image_base), name });
        let kernel = p.build_id == "kernel" || p.build_id.starts_with("module:");
        let category = if kernel { KERNEL } else { USER };
        let outer = i.frames.len().saturating_sub(1);
        let mut stack = None;
        for depth in 0..=outer {
            let frame = i.frames.get(outer - depth);
            let file = if depth == 0 { p.file.as_deref() } else { frame.and_then(|f| f.file.as_deref()) };
            let inlined = frame.and_then(|f| f.function.as_deref()).unwrap_or("[inlined]");
            let function = Function {
                name: self.text(if depth == 0 { &p.demangled } else { inlined }),
                library,
                file: file.map(|f| self.text(f)),
                line: if depth == 0 { p.line } else { None },
            };
            let function = self.functions.index(function);
            let line = frame.and_then(|f| f.line);
            let frame = self.frames.index(Frame { address, depth, function, symbol, line, category });
            stack = Some(self.stacks.index((frame, stack)));
        }
        stack.expect("there is a frame for the procedure")
    }

    fn value(mut self, event: &str, process: &str, index: usize, stacks: &[usize], weights: &[u64]) -> Value {
        let names: Vec<usize> = (0..self.libraries.all.len())
            .map(|l| {
                let name = self.libraries.all[l]["name"].as_str().unwrap_or_default().to_owned();
                self.text(&name)
            })
            .collect();
        let (frames, functions, symbols) = (&self.frames, &self.functions, &self.symbols);
        let none = |n: usize| vec![Value::Null; n];
        json!({
            "name": event, "isMainThread": index == 0, "processType": "default", "processName": process,
            "pid": "1", "tid": index + 1, "processStartupTime": 0, "processShutdownTime": null, "registerTime": 0,
            "unregisterTime": null, "pausedRanges": [], "showMarkersInTimeline": false,
            "samples": {
                "length": stacks.len(), "weightType": "samples", "stack": stacks, "weight": weights,
                "timeDeltas": vec![1; stacks.len()],
            },
            "markers": {
                "length": 0, "category": [], "data": [], "endTime": [], "name": [], "phase": [], "startTime": [],
            },
            "stackTable": {
                "length": self.stacks.rows.len(),
                "frame": self.stacks.column(|s| s.0), "prefix": self.stacks.column(|s| s.1),
            },
            "frameTable": {
                "length": frames.rows.len(),
                "address": frames.column(|f| f.address), "inlineDepth": frames.column(|f| f.depth),
                "category": frames.column(|f| f.category), "subcategory": frames.column(|_| OTHER),
                "func": frames.column(|f| f.function), "nativeSymbol": frames.column(|f| f.symbol),
                "innerWindowID": frames.column(|_| 0), "line": frames.column(|f| f.line), "column": none(frames.rows.len()),
            },
            "funcTable": {
                "length": functions.rows.len(),
                "name": functions.column(|f| f.name), "isJS": functions.column(|_| false),
                "relevantForJS": functions.column(|_| false), "resource": functions.column(|f| f.library),
                "fileName": functions.column(|f| f.file), "lineNumber": functions.column(|f| f.line),
                "columnNumber": none(functions.rows.len()),
            },
            "nativeSymbols": {
                "length": symbols.rows.len(),
                "libIndex": symbols.column(|s| s.library), "address": symbols.column(|s| s.address),
                "name": symbols.column(|s| s.name), "functionSize": none(symbols.rows.len()),
            },
            "resourceTable": {
                "length": names.len(), "lib": (0..names.len()).collect::<Vec<_>>(), "name": names,
                "host": none(names.len()), "type": vec![LIBRARY; names.len()],
            },
            "stringArray": self.strings.rows,
        })
    }
}
