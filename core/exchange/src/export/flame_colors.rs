//! Flame graphs as SVG whose colours say what a function is or waits for, and differential flame graphs.
//!
//! Input: answers of the query. Output: SVG, drawn by inferno. It colours frames by their names, so a name says what its colour
//! stands for: the binary if another one has a function of that name, the cycles per instruction, the cause, or the change.
//! Black text is legible on all colours, and they differ for people with any colour vision.

use std::collections::{BTreeMap, BTreeSet};

use dwell_query::answer::{
    DiffChange, Flame, FlameAnalysis, FlameCause, FlameDiff, FlameDiffFunction, FlameFunction, FlameKind,
    StallKind,
};
use inferno::flamegraph::{
    Options,
    color::{Color, PaletteMap},
};

use super::{
    flame::{KERNEL_MARK, draw, options},
    folded,
};
use crate::ExchangeError;

/// What the colours of a flame graph say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlameColor {
    /// The kind of code: the kernel, inlined functions, C++, the rest.
    Kind,
    /// The binary.
    Binary,
    /// Cycles per instruction.
    Cpi,
    /// The cause that may explain most of the function's time.
    Cause,
}

const fn color(rgb: u32) -> Color {
    Color { r: (rgb >> 16) as u8, g: (rgb >> 8) as u8, b: rgb as u8 }
}

/// The colour of what is not known, not significant, or not distinguished.
const GREY: Color = color(0xdddddd);
/// The colour of stalls whose every cause was ruled out.
const UNEXPLAINED: Color = color(0xc3a6e0);
/// P. Tol's "light" scheme. The binaries with most samples get one each.
const BINARIES: [Color; 8] = [
    color(0x77aadd),
    color(0xee8866),
    color(0xeedd88),
    color(0xffaabb),
    color(0x99ddff),
    color(0x44bb99),
    color(0xbbcc33),
    color(0xaaaa00),
];
/// Cycles per instruction below which each colour is used.
const CYCLES: [(f64, Color); 6] = [
    (0.5, color(0xfff7bc)),
    (1.0, color(0xfee391)),
    (2.0, color(0xfec44f)),
    (4.0, color(0xfe9929)),
    (8.0, color(0xec7014)),
    (f64::INFINITY, color(0xe0540f)),
];
/// Change of the share of all samples below which each colour is used: of more, and of less.
const CHANGES: [(f64, Color, Color); 3] = [
    (0.01, color(0xfdd0a2), color(0xc6dbef)),
    (0.05, color(0xfdae6b), color(0x9ecae1)),
    (f64::INFINITY, color(0xfd8d3c), color(0x6baed6)),
];
/// A bound of less than a cycle says nothing.
const TELLING_BOUND: f64 = 0.995;

/// Draws a tree of functions. With `inverted`, the innermost frames are at the root.
pub fn colored_flame_graph(flame: &Flame, by: FlameColor, inverted: bool) -> Result<Vec<u8>, ExchangeError> {
    let labels = Labels::new(flame, by);
    let mut options = options(&flame.epochs, inverted);
    let events: Vec<String> =
        flame.events.iter().map(|e| format!("{} samples of {}", e.samples, e.name)).collect();
    options.subtitle = Some(format!("{}. {}", events.join(", "), legend(by)));
    options.count_name.clone_from(&flame.unit);
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for (at, node) in (0u32..).zip(&flame.nodes).filter(|(_, node)| node.own > 0) {
        let up = |at: &u32| flame.nodes[*at as usize].parent;
        let mut frames: Vec<String> = std::iter::successors(Some(at), up)
            .map(|at| {
                let node = &flame.nodes[at as usize];
                labels.of(node.function, node.inlined, node.merged)
            })
            .collect();
        frames.reverse();
        *lines.entry(frames.join(";")).or_default() += node.own;
    }
    let mut palette = labels.palette();
    paint(&mut options, (by != FlameColor::Kind).then_some(&mut palette), lines)
}

/// Draws the stacks of two recordings: widths are those of B, colours say how the share of A's samples changed.
pub fn flame_diff_graph(diff: &FlameDiff) -> Result<Vec<u8>, ExchangeError> {
    let mut options = options(&diff.b.epochs, false);
    options.title = format!("Dwell: {} → {}", diff.a.epochs.join(" + "), diff.b.epochs.join(" + "));
    let gone: f64 = diff
        .nodes
        .iter()
        .filter(|node| {
            node.change.samples_b == 0.0
                && node.parent.is_none_or(|p| diff.nodes[p as usize].change.samples_b > 0.0)
        })
        .map(|node| node.change.samples_a)
        .fold(0.0, |sum, samples| sum + samples); // An empty sum would be shown as -0.0.
    options.subtitle = Some(format!(
        "widths: B ({} samples of {}); orange: a larger share than in A, blue: a smaller one, grey: may be chance; {:.1} % of A is gone",
        diff.samples_b,
        diff.b.event,
        100.0 * gone / diff.samples_a.max(1) as f64
    ));
    let mut palette = everything_grey();
    let names: Vec<String> = diff
        .nodes
        .iter()
        .map(|node| {
            let function = node.function.map(|at| &diff.functions[at as usize]);
            let name =
                format!("{}{}", diff_name(function, node.inlined, node.merged), change_text(&node.change));
            palette.insert(&name, changed(&node.change));
            name
        })
        .collect();
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    let mut own: Vec<f64> = diff.nodes.iter().map(|node| node.change.samples_b).collect();
    for node in &diff.nodes {
        if let Some(parent) = node.parent {
            own[parent as usize] -= node.change.samples_b;
        }
    }
    for (at, samples) in (0u32..).zip(&own).filter(|(_, samples)| **samples > 0.5) {
        let up = |at: &u32| diff.nodes[*at as usize].parent;
        let mut frames: Vec<&str> =
            std::iter::successors(Some(at), up).map(|at| names[at as usize].as_str()).collect();
        frames.reverse();
        *lines.entry(frames.join(";")).or_default() += samples.round() as u64;
    }
    paint(&mut options, Some(&mut palette), lines)
}

/// Returns a palette with the colour of the root, which stands for everything.
fn everything_grey() -> PaletteMap {
    let mut palette = PaletteMap::default();
    palette.insert("", GREY);
    palette
}

fn paint<'a>(
    options: &mut Options<'a>,
    palette: Option<&'a mut PaletteMap>,
    lines: BTreeMap<String, u64>,
) -> Result<Vec<u8>, ExchangeError> {
    options.palette_map = palette;
    draw(options, lines)
}

/// Names of functions, and the colour of each name.
struct Labels<'f> {
    flame: &'f Flame,
    by: FlameColor,
    /// Names that functions of several binaries have.
    shared: BTreeSet<&'f str>,
    /// Binaries that have a colour.
    images: Vec<&'f str>,
}

impl<'f> Labels<'f> {
    fn new(flame: &'f Flame, by: FlameColor) -> Self {
        let (mut seen, mut shared) = (BTreeMap::new(), BTreeSet::new());
        let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
        for function in flame.functions.iter().filter(|f| f.kind == FlameKind::Function) {
            *sums.entry(&function.image).or_default() += function.own;
            if seen.insert(&*function.name, &*function.image).is_some_and(|image| image != function.image) {
                shared.insert(&*function.name);
            }
        }
        let mut images: Vec<(&str, u64)> = sums.into_iter().collect();
        images.sort_by_key(|(_, own)| std::cmp::Reverse(*own));
        let images = images.into_iter().map(|(image, _)| image).take(BINARIES.len()).collect();
        Labels { flame, by, shared, images }
    }

    /// Returns the name of a frame. Frames of one name have one colour.
    fn of(&self, function: Option<u32>, inlined: bool, merged: u64) -> String {
        let Some(function) = function.map(|at| &self.flame.functions[at as usize]) else {
            return small_frames(merged);
        };
        let name = folded::plain(&function.name);
        match (self.by, function.kernel, inlined) {
            (FlameColor::Kind, true, _) => name + KERNEL_MARK,
            (FlameColor::Kind, _, true) => name + "_[i]",
            (FlameColor::Kind, ..) => name,
            (_, _, inlined) => name + &self.detail(function) + if inlined { " (inlined)" } else { "" },
        }
    }

    /// Returns what stands after the name of a function.
    fn detail(&self, function: &FlameFunction) -> String {
        let is_shared = self.shared.contains(&*function.name) && function.kind == FlameKind::Function;
        let image = if is_shared { format!(" [{}]", folded::plain(&function.image)) } else { String::new() };
        let analysis = function.analysis.as_ref();
        image
            + &match self.by {
                FlameColor::Kind | FlameColor::Binary => String::new(),
                FlameColor::Cpi => analysis.and_then(cycles).unwrap_or_default(),
                FlameColor::Cause => analysis.map(waits).unwrap_or_default(),
            }
    }

    fn palette(&self) -> PaletteMap {
        let mut palette = everything_grey();
        for node in &self.flame.nodes {
            let function = node.function.map(|at| &self.flame.functions[at as usize]);
            let color = function.map_or(GREY, |function| self.color(function));
            palette.insert(self.of(node.function, node.inlined, node.merged), color);
        }
        palette
    }

    fn color(&self, function: &FlameFunction) -> Color {
        let analysis = function.analysis.as_ref();
        match self.by {
            FlameColor::Kind => GREY,
            FlameColor::Binary => {
                let is_of = |image: &&str| **image == *function.image && function.kind == FlameKind::Function;
                self.images.iter().position(is_of).map_or(GREY, |at| BINARIES[at])
            }
            FlameColor::Cpi => analysis.and_then(|a| a.cpi).map_or(GREY, |cpi| step(&CYCLES, cpi)),
            FlameColor::Cause => analysis.map_or(GREY, cause_color),
        }
    }
}

fn step(steps: &[(f64, Color)], value: f64) -> Color {
    steps.iter().find(|(below, _)| value < *below).map_or(GREY, |(_, color)| *color)
}

/// Describes cycles per instruction, as far as they are known.
fn cycles(analysis: &FlameAnalysis) -> Option<String> {
    let bound = analysis.cpi_min.filter(|least| *least >= TELLING_BOUND);
    match analysis.cpi {
        Some(cpi) => Some(format!(" · CPI {cpi:.2}")),
        None => bound.map(|least| format!(" · CPI ≥ {least:.2}")),
    }
}

/// Describes the cause that may explain most of a function's own time, if it may explain more than execution does.
fn waits(analysis: &FlameAnalysis) -> String {
    match waits_most(analysis) {
        Some(cause) if analysis.execution.is_some() => {
            format!(" · {} ≤ {:.0} %", cause.label, 100.0 * cause.share_max)
        }
        // If it ran less often, more of its instructions waited, so that the share is no bound.
        Some(cause) => format!(" · {}", cause.label),
        None => " · executing".to_owned(),
    }
}

/// Least share of a cause that may explain the time of a function that may also have executed all the time.
const SHARE_TELLING: f64 = 0.05;

/// Returns the cause that may explain most of a function's own time, if it may explain more than execution does. If it is not
/// known how often the function ran, a cause that matters at all may be what it does most.
fn waits_most(analysis: &FlameAnalysis) -> Option<&FlameCause> {
    let least = analysis.execution.unwrap_or_else(|| analysis.execution_max.min(SHARE_TELLING));
    analysis.causes.first().filter(|cause| cause.share_max > least)
}

/// Returns the colour of the cause that may explain most, or that of several if they, or execution, may explain as much.
fn cause_color(analysis: &FlameAnalysis) -> Color {
    let Some(most) = waits_most(analysis) else { return BINARIES[0] };
    if analysis.execution_max >= most.share_max {
        return BINARIES[6];
    }
    let color = |cause: &FlameCause| match (cause.kind, cause.cause.as_str()) {
        (StallKind::Static, _) => BINARIES[4],
        (_, "d-cache-miss" | "dtlb-miss" | "write-buffer") => BINARIES[1],
        (_, "i-cache-miss" | "itlb-miss" | "branch-mispredict") => BINARIES[3],
        (_, "divider" | "multiplier") => BINARIES[5],
        (_, "unexplained") => UNEXPLAINED,
        _ => BINARIES[2],
    };
    let tied = |cause: &&FlameCause| cause.share_max >= most.share_max - 0.0005;
    let is_one = analysis.causes.iter().filter(tied).all(|cause| color(cause) == color(most));
    if is_one { color(most) } else { BINARIES[6] }
}

fn legend(by: FlameColor) -> &'static str {
    match by {
        FlameColor::Kind => "",
        FlameColor::Binary => "A color for each of the 8 binaries with most samples, grey for others",
        FlameColor::Cpi => {
            "Cycles per instruction from pale (below 0.5) over orange (below 4) to red (8 or more); grey: not known"
        }
        FlameColor::Cause => {
            "Orange: memory, pink: code and branches, mint: units, yellow: kernel, cyan: static stalls, blue: executing, violet: \
             unexplained, pear: several, grey: not analysed"
        }
    }
}

fn small_frames(frames: u64) -> String {
    format!("{frames} small frames")
}

fn diff_name(function: Option<&FlameDiffFunction>, inlined: bool, merged: u64) -> String {
    let Some(function) = function else { return small_frames(merged) };
    folded::plain(&function.name) + if inlined { " (inlined)" } else { "" }
}

/// Describes a change that is more than chance: ` +3.1 %`, of all samples.
fn change_text(change: &DiffChange) -> String {
    match (change.significant, change.ratio) {
        (false, _) => String::new(),
        (true, None) => format!(" new {:+.1} %", 100.0 * change.change_share),
        (true, Some(_)) => format!(" {:+.1} %", 100.0 * change.change_share),
    }
}

fn changed(change: &DiffChange) -> Color {
    let share = change.change_share.abs();
    let step = CHANGES.iter().find(|(below, ..)| share < *below).filter(|_| change.significant);
    step.map_or(GREY, |(_, more, less)| if change.change > 0.0 { *more } else { *less })
}
