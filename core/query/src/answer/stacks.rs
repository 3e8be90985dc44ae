//! Call stacks of samples by name, and what follows from them: callers, callees, inclusive samples.

use std::collections::BTreeMap;

use serde::Serialize;

use super::PlaceEvent;

/// Name of the outermost frame of stacks that are not complete.
pub const INCOMPLETE: &str = "[incomplete]";

/// The call stacks of some epochs, as a tree of named frames.
#[derive(Clone, Debug, PartialEq)]
pub struct Stacks {
    /// Ids of the epochs whose stacks were merged.
    pub epochs: Vec<String>,
    /// The event whose samples have stacks.
    pub event: PlaceEvent,
    /// Number of all samples of that event, with and without a stack.
    pub all_samples: u64,
    /// Applications, by name.
    pub apps: Vec<String>,
    /// Functions, each once.
    pub functions: Vec<StackFunction>,
    /// Frames. A caller precedes what it calls.
    pub nodes: Vec<StackNode>,
    /// How many samples have an incomplete stack: by cause, and by the file name of the binary where the stack ends.
    pub incomplete: BTreeMap<(String, String), u64>,
    /// Notes that a reader needs to interpret the stacks.
    pub notes: Vec<String>,
}

/// A function in call stacks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackFunction {
    /// Demangled name, as the source code spells it; `[BINARY]` if no symbol is known.
    pub name: String,
    /// File name of the binary, or a name that stands for it (`[kernel.kallsyms]`); empty for [`INCOMPLETE`].
    pub image: String,
    /// Path of the binary.
    pub path: String,
    /// Id of the binary.
    pub build_id: String,
    /// Image address of the binary's first byte: 0 except for executables at fixed addresses.
    pub image_base: u64,
    /// Whether the code is the kernel's.
    pub kernel: bool,
}

/// A frame of call stacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackNode {
    /// Index of the caller's frame; `None` if this is an outermost frame.
    pub parent: Option<u32>,
    /// Index of the application.
    pub app: u32,
    /// Index of the function.
    pub function: u32,
    /// Whether the function was inlined into its caller.
    pub inlined: bool,
    /// Image address of the instruction, or of the last byte of the call; an offset if the binary is not at hand.
    pub address: u64,
    /// Offset in the binary of the same byte.
    pub offset: u64,
    /// Source file and line of the instruction or the call, where they are known.
    pub line: Option<(String, u32)>,
    /// Number of samples whose innermost frame this is.
    pub samples: u64,
}

impl Stacks {
    /// Returns the number of samples that have a stack.
    pub fn samples(&self) -> u64 {
        self.nodes.iter().map(|node| node.samples).sum()
    }

    /// Returns the number of samples in each frame, calls included.
    pub fn inclusive(&self) -> Vec<u64> {
        let mut sums: Vec<u64> = self.nodes.iter().map(|node| node.samples).collect();
        for at in (0..self.nodes.len()).rev() {
            if let Some(parent) = self.nodes[at].parent {
                sums[parent as usize] += sums[at];
            }
        }
        sums
    }

    /// Returns the indices of the frames of a stack, outermost first.
    pub fn path(&self, node: u32) -> Vec<u32> {
        let up = |at: &u32| self.nodes[*at as usize].parent;
        let mut path: Vec<u32> = std::iter::successors(Some(node), up).collect();
        path.reverse();
        path
    }

    /// Iterates over the frames whose samples are not 0, with the frames of their stacks, outermost first.
    pub fn sampled(&self) -> impl Iterator<Item = (&StackNode, Vec<u32>)> {
        let sampled = (0..).zip(&self.nodes).filter(|(_, node)| node.samples > 0);
        sampled.map(|(at, node)| (node, self.path(at)))
    }

    /// Returns the function of a frame.
    pub fn function(&self, node: u32) -> &StackFunction {
        &self.functions[self.nodes[node as usize].function as usize]
    }
}

/// Functions by the samples in them and in what they call.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct Inclusive {
    /// Version of this object's form.
    pub schema: u32,
    /// Ids of the epochs whose stacks were merged.
    pub epochs: Vec<String>,
    /// The event whose samples have stacks.
    pub event: String,
    /// Number of samples that have a stack.
    pub samples: u64,
    /// Number of all samples of the event.
    pub all_samples: u64,
    /// How many samples have an incomplete stack.
    pub incomplete: Vec<IncompleteStacks>,
    /// The functions, most samples first.
    pub rows: Vec<InclusiveRow>,
    /// Number of functions that are not in `rows`.
    pub others: usize,
    /// Notes that a reader needs to interpret the answer.
    pub notes: Vec<String>,
}

/// A function, with the samples in it and in what it calls.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct InclusiveRow {
    /// Demangled name.
    pub function: String,
    /// File name of the binary.
    pub image: String,
    /// Samples whose stack contains the function; a recursive function counts once.
    pub samples: u64,
    /// Share of `samples` of all samples that have a stack, 0 to 1.
    pub share: f64,
    /// Samples in the function itself.
    pub own: u64,
}

/// Samples whose stack is incomplete for one cause.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct IncompleteStacks {
    /// Why the next frame is not known, as `FORMAT.md` of the database spells it.
    pub cause: String,
    /// File name of the binary where the stacks end.
    pub image: String,
    /// Number of samples.
    pub samples: u64,
}

/// The callers of a function, or what it calls.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct Callers {
    /// Version of this object's form.
    pub schema: u32,
    /// Ids of the epochs whose stacks were merged.
    pub epochs: Vec<String>,
    /// The event whose samples have stacks.
    pub event: String,
    /// Demangled name of the function.
    pub function: String,
    /// File name of its binary.
    pub image: String,
    /// Where the source code of the function begins, if that is known.
    pub begins: Option<CodeLine>,
    /// Samples whose stack contains the function.
    pub samples: u64,
    /// Samples in the function itself.
    pub own: u64,
    /// Number of samples that have a stack.
    pub total: u64,
    /// Callers (or callees), most samples first. Each sample is counted at one of them.
    pub rows: Vec<CallersRow>,
    /// How many samples have an incomplete stack.
    pub incomplete: Vec<IncompleteStacks>,
    /// Notes that a reader needs to interpret the answer.
    pub notes: Vec<String>,
}

/// A caller or callee.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct CallersRow {
    /// Demangled name.
    pub function: String,
    /// File name of the binary.
    pub image: String,
    /// Whether the call was inlined.
    pub inlined: bool,
    /// Where the source code of the function begins, if that is known.
    pub begins: Option<CodeLine>,
    /// Samples of the stacks through this row.
    pub samples: u64,
    /// Share of the samples of the function that was asked for, 0 to 1.
    pub share: f64,
    /// The lines of the calls, most samples first: in the caller, for callees in the function itself.
    pub sites: Vec<CallSite>,
    /// The callers of the caller, or the callees of the callee.
    pub rows: Vec<CallersRow>,
}

/// A line that calls.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct CallSite {
    /// Source file.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Samples of the stacks through this call.
    pub samples: u64,
}

/// A line of source code.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct CodeLine {
    /// Source file.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
}

/// The functions of a source file that are in call stacks, with their callers.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct FileFunctions {
    /// Version of this object's form.
    pub schema: u32,
    /// Ids of the epochs whose stacks were merged.
    pub epochs: Vec<String>,
    /// The event whose samples have stacks.
    pub event: String,
    /// Number of samples that have a stack.
    pub samples: u64,
    /// The functions, by their first line.
    pub functions: Vec<FileFunction>,
    /// Notes that a reader needs to interpret the answer.
    pub notes: Vec<String>,
}

/// A function of a source file, with its callers.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct FileFunction {
    /// Demangled name.
    pub function: String,
    /// File name of the binary.
    pub image: String,
    /// First line in the file as it is now, from 1; `None` if the line was edited, or if all calls of the function are inlined.
    pub line: Option<u32>,
    /// First and last line with samples or calls in call stacks, in the file as it is now, from 1.
    pub lines: Option<(u32, u32)>,
    /// Samples whose stack contains the function.
    pub samples: u64,
    /// Samples in the function itself.
    pub own: u64,
    /// Direct callers, most samples first. Their `rows` are empty.
    pub rows: Vec<CallersRow>,
}

/// The call paths with the most samples.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct HottestPaths {
    /// Version of this object's form.
    pub schema: u32,
    /// Ids of the epochs whose stacks were merged.
    pub epochs: Vec<String>,
    /// The event whose samples have stacks.
    pub event: String,
    /// Number of samples that have a stack.
    pub samples: u64,
    /// The paths, most samples first. Each sample is counted at one path.
    pub paths: Vec<CallPath>,
    /// Number of paths that are not in `paths`.
    pub others: usize,
    /// Number of samples of those.
    pub others_samples: u64,
    /// How many samples have an incomplete stack.
    pub incomplete: Vec<IncompleteStacks>,
    /// Notes that a reader needs to interpret the answer.
    pub notes: Vec<String>,
}

/// Samples that were reached through the same functions.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct CallPath {
    /// The functions, outermost first; the samples are in the last one.
    pub frames: Vec<PathFrame>,
    /// Whether outer frames were left out, so that stacks that differ in them are one path.
    pub shortened: bool,
    /// Number of samples.
    pub samples: u64,
    /// Share of `samples` of all samples that have a stack, 0 to 1.
    pub share: f64,
}

/// A function in a call path.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct PathFrame {
    /// Demangled name.
    pub function: String,
    /// File name of the binary.
    pub image: String,
    /// Whether the function was inlined into its caller.
    pub inlined: bool,
    /// Whether the function calls itself directly here. Calls by itself are one frame.
    pub recursive: bool,
    /// Source line with the most samples: of the call, or of the samples in the last frame.
    pub site: Option<CodeLine>,
}
