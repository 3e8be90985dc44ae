//! Renders `dwell diff` as text: what became slower or faster, and whether because it ran more often or took longer each
//! time.

use std::{fmt::Write, path::Path};

use anstyle::{AnsiColor, Style};
use dwell_query::answer::{Confidence, Diff, DiffChange, DiffFactors, DiffInstruction, DiffPlace, DiffSide};

use crate::{
    stats::probability,
    text::{BOLD, DIM, HOT, counted, fit, grouped, paint, percent},
};

const FASTER: Style = AnsiColor::Green.on_default().bold();

/// Renders the tables, `width` columns wide.
pub fn render(diff: &Diff, width: usize) -> String {
    let mut page = Page { out: String::new(), width };
    page.head(diff);
    if !diff.instructions.is_empty() {
        page.procedures(diff);
        page.instructions(&diff.instructions);
    } else {
        page.procedures(diff);
        page.lines(diff);
    }
    page.foot(diff);
    page.out
}

struct Page {
    out: String,
    width: usize,
}

impl Page {
    fn head(&mut self, diff: &Diff) {
        let side =
            |s: &DiffSide| format!("{} samples of {}, {}", grouped(s.samples), s.event, s.epochs.join("+"));
        self.say(paint(DIM, format!("A  {}", side(&diff.a))));
        self.say(paint(DIM, format!("B  {}", side(&diff.b))));
        let by = match diff.normalized_by.as_str() {
            "run" => "as runs of the same work",
            "time" => "by time",
            "samples" => "by all samples",
            procedure => procedure,
        };
        self.say(paint(DIM, format!("compared {by}: B's samples divided by {:.4}", diff.exposure)));
        let total = &diff.total;
        let verdict = if total.significant { "" } else { ", which may be chance" };
        let ratio = total.ratio.map_or("new".to_owned(), |r| format!("×{r:.3}"));
        self.say(format!("in all {}{verdict} (p = {})", paint(style(total), ratio), probability(total.p)));
        self.say("");
    }

    fn procedures(&mut self, diff: &Diff) {
        self.say(paint(BOLD, format!("{}  procedure", titles())));
        for row in &diff.procedures {
            let doubt = if row.confidence == Confidence::Low { "~" } else { " " };
            let room = self.width.saturating_sub(COLUMNS + 2 + row.image.len());
            let name = format!("{}  {}", fit(&row.demangled, room.max(20)), paint(DIM, &row.image));
            self.say(format!("{}  {name}", columns(&row.change, &row.factors, doubt)));
        }
        if diff.procedures.is_empty() {
            self.say("no function changed by more than chance");
        }
        self.say("");
    }

    fn lines(&mut self, diff: &Diff) {
        if diff.lines.is_empty() {
            return;
        }
        self.say(paint(BOLD, format!("{}  line", titles())));
        for row in &diff.lines {
            let name =
                Path::new(&row.file).file_name().map_or(row.file.clone(), |n| n.to_string_lossy().into());
            let place = match (row.line_a, row.line_b) {
                (Some(a), Some(b)) if a == b => format!("{name}:{a}"),
                (Some(a), Some(b)) => format!("{name}:{a} → {b}"),
                (Some(a), None) => format!("{name}:{a} (only in A)"),
                (None, b) => format!("{name}:{} (only in B)", b.unwrap_or(0)),
            };
            self.say(format!("{}  {place}", columns(&row.change, &row.factors, " ")));
        }
        self.say("");
    }

    fn instructions(&mut self, rows: &[DiffInstruction]) {
        self.say(paint(BOLD, format!("{}    instruction", titles())));
        for row in rows {
            let sign = match row.kind.as_str() {
                "added" => "+",
                "removed" => "-",
                "edited" => "~",
                _ => " ",
            };
            let text = |p: &Option<DiffPlace>| {
                p.as_ref().map_or(String::new(), |p| format!("{:x} {}", p.address, p.text))
            };
            let text = match row.kind.as_str() {
                "edited" => format!("{}  ←  {}", text(&row.b), text(&row.a)),
                "removed" => text(&row.a),
                _ => text(&row.b),
            };
            let room = self.width.saturating_sub(COLUMNS + 4).max(30);
            self.say(format!("{}  {sign} {}", columns(&row.change, &row.factors, " "), fit(&text, room)));
        }
        self.say("");
    }

    fn foot(&mut self, diff: &Diff) {
        let (procedures, lines) = (diff.insignificant_procedures, diff.insignificant_lines);
        if procedures + lines > 0 && diff.instructions.is_empty() {
            let what = format!("{} and {}", counted(procedures, "function"), counted(lines, "line"));
            self.say(paint(DIM, format!("{what} changed by no more than chance: show them with --all")));
        }
        if diff.omitted_rows > 0 {
            self.say(paint(DIM, format!("… {}: -n 0 shows all", counted(diff.omitted_rows, "more row"))));
        }
        diff.notes.iter().for_each(|n| self.say(paint(DIM, format!("note: {n}"))));
    }

    fn say(&mut self, line: impl std::fmt::Display) {
        writeln!(self.out, "{}", line.to_string().trim_end()).expect("a String takes every text");
    }
}

/// Number of columns that [`columns`] takes.
const COLUMNS: usize = 8 + 1 + 9 + 1 + 9 + 1 + 7 + 1 + 7 + 1 + 7 + 1 + 7;

fn titles() -> String {
    format!("{:>8} {:>9} {:>9} {:>7} {:>7} {:>7} {:>7}", "change", "A", "B", "ratio", "count", "CPI", "p")
}

/// Formats a signed share: `+1.25%`. A change that rounds to zero has no sign.
fn signed_percent(share: f64) -> String {
    let text = percent(share, 2);
    if share < 0.0 || text == "0.00%" { text } else { format!("+{text}") }
}

fn columns(change: &DiffChange, factors: &DiffFactors, doubt: &str) -> String {
    let times = |ratio: Option<f64>, doubt: &str| {
        ratio.map_or("–".to_owned(), |r| format!("{}×{r:.2}", doubt.trim()))
    };
    let count = |samples: f64| grouped(samples.round() as u64);
    format!(
        "{} {:>9} {:>9} {:>7} {:>7} {:>7} {:>7}",
        paint(style(change), format!("{:>8}", signed_percent(change.change_share))),
        count(change.samples_a),
        count(change.samples_b),
        times(change.ratio, ""),
        times(factors.count_ratio, doubt),
        times(factors.cost_ratio, doubt),
        probability(change.p),
    )
}

/// Returns the style of a change: red if slower, green if faster, none if the change may be chance.
fn style(change: &DiffChange) -> Style {
    match change {
        c if !c.significant => Style::new(),
        c if c.change > 0.0 => HOT,
        _ => FASTER,
    }
}
