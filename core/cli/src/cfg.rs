//! Renders `dwell cfg`: the control-flow graph of a procedure with frequencies, CPI and stalls, as SVG or for Graphviz
//! (DCPI's dcpi2ps).
//!
//! Blocks are stacked by ascending address, so that the picture reads like the listing: the fall-through block is directly
//! below, forward jumps are drawn on the right, loops on the left. The width of an edge shows its frequency.

use std::fmt::Write;

use dwell_query::answer::{Listing, ListingBlock, ListingInstruction, StallKind};

use crate::text::{cycles_each, cycles_of, executed};

/// Largest number of instructions of a block that are shown. Of the others, only the number is shown.
const INSTRUCTIONS_MAX: usize = 24;
const CHARACTER_WIDTH: f64 = 7.25;
const LINE_HEIGHT: f64 = 16.0;
const BLOCK_WIDTH: f64 = 640.0;
const GAP: f64 = 34.0;
const LANE_WIDTH: f64 = 12.0;

/// A block with its text.
struct Drawn<'a> {
    block: &'a ListingBlock,
    head: String,
    lines: Vec<String>,
    /// Share of the procedure's time, 0 to 1.
    share: f64,
}

fn drawn(listing: &Listing) -> Vec<Drawn<'_>> {
    let all: f64 = listing.instructions.iter().map(|i| i.head_samples).sum();
    let ends = listing.blocks.iter().skip(1).map(|b| b.address).chain([u64::MAX]);
    let blocks = listing.blocks.iter().zip(ends);
    blocks
        .map(|(block, end)| {
            let from = listing.instructions.partition_point(|i| i.address < block.address);
            let to = listing.instructions.partition_point(|i| i.address < end);
            let own = &listing.instructions[from..to];
            let share = own.iter().map(|i| i.head_samples).sum::<f64>() / all.max(1.0);
            let head = format!(
                "{:.1}%   {}   CPI {} (best {:.2})   {} confidence",
                100.0 * share,
                executed(listing, block, own),
                cycles_each(block.cpi, block.frequency.map(|_| block.cpi_min)),
                block.best_case_cpi,
                block.confidence.name()
            );
            let mut lines: Vec<String> = own.iter().take(INSTRUCTIONS_MAX).map(line).collect();
            if own.len() > INSTRUCTIONS_MAX {
                lines.push(format!("… {} more instructions", own.len() - INSTRUCTIONS_MAX));
            }
            Drawn { block, head, lines, share }
        })
        .collect()
}

fn line(i: &ListingInstruction) -> String {
    let cpi = match i.head_samples >= 0.5 && i.executions_relative.is_some() {
        true => cycles_of(i),
        false => String::new(),
    };
    let worst = i
        .stalls
        .iter()
        .filter(|s| s.kind == StallKind::Dynamic)
        .max_by(|a, b| a.share_max.total_cmp(&b.share_max));
    let why = worst.map_or(String::new(), |s| format!("  {}", s.label));
    format!("{:>8x}  {:<44} {cpi:>8}{why}", i.address, crate::text::fit(&i.text, 44))
}

/// Renders the graph in Graphviz's dot language.
pub fn dot(listing: &Listing) -> String {
    let mut out = String::new();
    let mut say = |line: String| writeln!(out, "{line}").expect("a String takes every text");
    say(format!("digraph {} {{", quoted(&listing.procedure.demangled)));
    say("  node [shape=box, fontname=monospace, fontsize=10];".to_owned());
    for d in drawn(listing) {
        let text: String = std::iter::once(&d.head).chain(&d.lines).map(|l| escaped(l) + "\\l").collect();
        let fill = if d.share >= 0.01 {
            format!(", style=filled, fillcolor=\"{}\"", heat(d.share))
        } else {
            String::new()
        };
        say(format!("  b{:x} [label=\"{text}\"{fill}];", d.block.address));
        for s in &d.block.successors {
            let label =
                s.executions.map_or(String::new(), |e| format!(" [label=\"{}\"]", crate::text::si(e)));
            say(format!("  b{:x} -> b{:x}{label};", d.block.address, s.to));
        }
    }
    say("}".to_owned());
    out
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", escaped(text))
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

/// Returns a colour from white (0) to red (1).
fn heat(share: f64) -> String {
    let cold = (255.0 * (1.0 - share.clamp(0.0, 1.0).sqrt() * 0.6)) as u8;
    format!("#ff{cold:02x}{cold:02x}")
}

/// Renders the graph as an SVG picture.
pub fn svg(listing: &Listing) -> String {
    let blocks = drawn(listing);
    let mut tops = Vec::new();
    let mut y = 64.0;
    for d in &blocks {
        tops.push(y);
        y += height(d) + GAP;
    }
    let edges = edges(&blocks);
    let lanes =
        |left: bool| edges.iter().filter(|e| e.left == left).map(|e| e.lane + 1).max().unwrap_or(0) as f64;
    let x = 24.0 + LANE_WIDTH * lanes(true);
    let width = x + BLOCK_WIDTH + 24.0 + LANE_WIDTH * lanes(false);
    let mut out = String::new();
    let mut say = |line: String| writeln!(out, "{line}").expect("a String takes every text");
    say(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{y:.0}\" viewBox=\"0 0 {width:.0} {y:.0}\">"
    ));
    say("<style>svg{background:#fff}text{font:12px monospace;white-space:pre;fill:#222}.h{font-weight:bold}\
         .e{fill:none;stroke:#456}.b{stroke:#888}</style>"
        .to_owned());
    say("<defs><marker id=\"a\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"9\" markerHeight=\"9\" \
         markerUnits=\"userSpaceOnUse\" orient=\"auto\"><path d=\"M0 0 8 4 0 8z\" fill=\"#456\"/></marker></defs>"
        .to_owned());
    let title = format!("{}  {}", listing.procedure.demangled, listing.image.path);
    say(format!("<text class=\"h\" x=\"24\" y=\"28\">{}</text>", markup(&title)));
    for (d, top) in blocks.iter().zip(&tops) {
        say(format!(
            "<rect class=\"b\" x=\"{x:.0}\" y=\"{top:.0}\" width=\"{BLOCK_WIDTH}\" height=\"{:.0}\" fill=\"{}\"/>",
            height(d),
            heat(d.share)
        ));
        for (n, text) in std::iter::once(&d.head).chain(&d.lines).enumerate() {
            let class = if n == 0 { " class=\"h\"" } else { "" };
            let room = ((BLOCK_WIDTH - 16.0) / CHARACTER_WIDTH) as usize;
            let baseline = top + LINE_HEIGHT * (n as f64 + 1.0);
            let text = markup(&crate::text::fit(text, room));
            say(format!("<text{class} x=\"{:.0}\" y=\"{baseline:.0}\">{text}</text>", x + 8.0));
        }
    }
    let busiest = edges.iter().map(|e| e.executions).fold(1.0, f64::max);
    for e in &edges {
        let bottom = tops[e.from] + height(&blocks[e.from]);
        let thick = 1.0 + 4.0 * (e.executions / busiest).sqrt();
        let path = e.path(x, bottom, tops[e.to]);
        let told = if e.executions > 0.0 { crate::text::si(e.executions) } else { "not seen".to_owned() };
        say(format!(
            "<path class=\"e\" stroke-width=\"{thick:.1}\" marker-end=\"url(#a)\" d=\"{path}\"><title>{told}</title></path>"
        ));
    }
    say("</svg>".to_owned());
    out
}

fn height(d: &Drawn) -> f64 {
    LINE_HEIGHT * (d.lines.len() as f64 + 1.0) + 10.0
}

/// An edge between two blocks (indices). It is drawn in a lane on one side, unless it falls through.
struct DrawnEdge {
    from: usize,
    to: usize,
    executions: f64,
    left: bool,
    falls: bool,
    lane: usize,
}

fn edges(blocks: &[Drawn]) -> Vec<DrawnEdge> {
    let mut edges: Vec<DrawnEdge> = Vec::new();
    for (from, d) in blocks.iter().enumerate() {
        for s in &d.block.successors {
            let Ok(to) = blocks.binary_search_by_key(&s.to, |b| b.block.address) else { continue };
            let executions = s.executions_relative.or(s.frequency).unwrap_or(0.0);
            edges.push(DrawnEdge { from, to, executions, left: to <= from, falls: to == from + 1, lane: 0 });
        }
    }
    // Short edges are inside; each edge takes the first lane that is free along its whole length.
    edges.sort_by_key(|e| e.from.abs_diff(e.to));
    for i in 0..edges.len() {
        let (before, rest) = edges.split_at_mut(i);
        let own = &mut rest[0];
        let (low, high) = (own.from.min(own.to), own.from.max(own.to));
        let crosses = |e: &&DrawnEdge| {
            !e.falls && e.left == own.left && e.from.min(e.to) <= high && e.from.max(e.to) >= low
        };
        let taken: Vec<usize> = before.iter().filter(crosses).map(|e| e.lane).collect();
        own.lane = if own.falls { 0 } else { (0..).find(|lane| !taken.contains(lane)).unwrap_or(0) };
    }
    edges
}

impl DrawnEdge {
    fn path(&self, x: f64, bottom: f64, top: f64) -> String {
        if self.falls {
            let middle = x + BLOCK_WIDTH / 2.0;
            return format!("M{middle:.0} {bottom:.0}V{top:.0}");
        }
        let out = LANE_WIDTH * (self.lane as f64 + 1.0);
        let (side, lane) = if self.left { (x, x - out) } else { (x + BLOCK_WIDTH, x + BLOCK_WIDTH + out) };
        format!("M{side:.0} {:.0}H{lane:.0}V{:.0}H{side:.0}", bottom - 6.0, top + 8.0)
    }
}

fn markup(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
