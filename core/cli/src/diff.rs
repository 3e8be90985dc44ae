//! Renders `dwell diff` as text: what became slower or faster, and whether because it ran more often or took longer each
//! time. That is said only if the evidence of both sides tells it, in the words of the language server (`verdict.ts`).

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
        let what = words(total, &DiffFactors::default());
        let what = if total.significant { format!(", {what}") } else { String::new() };
        self.say(format!(
            "in all {}{what}{verdict} (p = {})",
            paint(style(total), ratio),
            probability(total.p)
        ));
        self.say("");
    }

    fn procedures(&mut self, diff: &Diff) {
        self.say(paint(BOLD, format!("{}  procedure", self.titles())));
        for row in &diff.procedures {
            let doubt = if row.confidence == Confidence::Low { "~" } else { " " };
            let room = self.width.saturating_sub(self.titles().len() + 4 + row.image.len());
            let name = format!("{}  {}", fit(&row.demangled, room.max(20)), paint(DIM, &row.image));
            self.say(format!("{}  {name}", self.columns(&row.change, &row.factors, doubt)));
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
        self.say(paint(BOLD, format!("{}  line", self.titles())));
        for row in &diff.lines {
            let name =
                Path::new(&row.file).file_name().map_or(row.file.clone(), |n| n.to_string_lossy().into());
            let place = match (row.line_a, row.line_b) {
                (Some(a), Some(b)) if a == b => format!("{name}:{a}"),
                (Some(a), Some(b)) => format!("{name}:{a} → {b}"),
                (Some(a), None) => format!("{name}:{a} (only in A)"),
                (None, b) => format!("{name}:{} (only in B)", b.unwrap_or(0)),
            };
            self.say(format!("{}  {place}", self.columns(&row.change, &row.factors, " ")));
        }
        self.say("");
    }

    fn instructions(&mut self, rows: &[DiffInstruction]) {
        self.say(paint(BOLD, format!("{}    instruction", self.titles())));
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
            let room = self.width.saturating_sub(self.titles().len() + 4).max(30);
            self.say(format!(
                "{}  {sign} {}",
                self.columns(&row.change, &row.factors, " "),
                fit(&text, room)
            ));
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

    /// Returns whether a row has room for its samples. Otherwise the ratio stands for them.
    fn has_samples(&self) -> bool {
        self.width >= 100
    }

    fn titles(&self) -> String {
        let samples = if self.has_samples() { format!(" {:>9} {:>9}", "A", "B") } else { String::new() };
        let last = format!("{:>7} {:>6} {:>6} {:>7}  {:<14}", "ratio", "count", "CPI", "p", "what changed");
        format!("{:>8}{samples} {last}", "change")
    }

    /// Formats a row below [`Page::titles`]. Ratios of count and CPI are shown only if the evidence tells them apart.
    fn columns(&self, change: &DiffChange, factors: &DiffFactors, doubt: &str) -> String {
        let times = |ratio: Option<f64>, doubt: &str| {
            ratio.map_or("–".to_owned(), |r| format!("{}×{r:.2}", doubt.trim()))
        };
        let told = |ratio: Option<f64>| times(ratio.filter(|_| factors.tells_apart), doubt);
        let count = |samples: f64| grouped(samples.round() as u64);
        let samples = match self.has_samples() {
            true => format!(" {:>9} {:>9}", count(change.samples_a), count(change.samples_b)),
            false => String::new(),
        };
        format!(
            "{}{samples} {:>7} {:>6} {:>6} {:>7}  {:<14}",
            paint(style(change), format!("{:>8}", signed_percent(change.change_share))),
            times(change.ratio, ""),
            told(factors.count_ratio),
            told(factors.cost_ratio),
            probability(change.p),
            words(change, factors),
        )
    }

    fn say(&mut self, line: impl std::fmt::Display) {
        writeln!(self.out, "{}", line.to_string().trim_end()).expect("a String takes every text");
    }
}

/// Formats a signed share: `+1.25%`. A change that rounds to zero has no sign.
fn signed_percent(share: f64) -> String {
    let text = percent(share, 2);
    if share < 0.0 || text == "0.00%" { text } else { format!("+{text}") }
}

/// Samples are whole numbers, so fewer than this are none.
const SAMPLES_SEEN: f64 = 0.5;

/// Names a change by the factor that changed more, in the direction of the change. If the evidence of both sides does not tell
/// count from cost, it is more or less time.
fn words(change: &DiffChange, factors: &DiffFactors) -> &'static str {
    let ratios = factors.count_ratio.zip(factors.cost_ratio).filter(|_| factors.tells_apart);
    match (change.change > 0.0, ratios) {
        _ if !change.significant => "no change",
        _ if change.samples_a < SAMPLES_SEEN => "new",
        _ if change.samples_b < SAMPLES_SEEN => "gone",
        (true, None) => "more time",
        (false, None) => "less time",
        (true, Some((count, cost))) if count > cost => "ran more often",
        (true, Some(_)) => "slower",
        (false, Some((count, cost))) if count < cost => "ran less often",
        (false, Some(_)) => "faster",
    }
}

/// Returns the style of a change: red if slower, green if faster, none if the change may be chance.
fn style(change: &DiffChange) -> Style {
    match change {
        c if !c.significant => Style::new(),
        c if c.change > 0.0 => HOT,
        _ => FASTER,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_named_after_what_the_evidence_tells() {
        let check = |change: f64, count: f64, cost: f64, tells_apart: bool, expected: &str| {
            let change = DiffChange {
                samples_a: 100.0,
                samples_b: 100.0,
                change,
                significant: true,
                ..Default::default()
            };
            let ratios = (Some(count), Some(cost));
            let factors = DiffFactors {
                count_ratio: ratios.0,
                cost_ratio: ratios.1,
                tells_apart,
                ..Default::default()
            };
            assert_eq!(words(&change, &factors), expected);
            let row = Page { out: String::new(), width: 80 }.columns(&change, &factors, " ");
            assert_eq!(row.contains(&format!("×{count:.2}")), tells_apart, "{row}");
        };
        check(300.0, 4.0, 1.01, true, "ran more often");
        check(300.0, 1.01, 4.0, true, "slower");
        check(300.0, 2.72, 1.69, false, "more time");
        check(-50.0, 0.51, 0.99, true, "ran less often");
        check(-50.0, 0.99, 0.51, true, "faster");
        check(-50.0, 0.71, 0.72, false, "less time");
        let chance = DiffChange { samples_a: 9.0, samples_b: 10.0, change: 1.0, ..Default::default() };
        assert_eq!(words(&chance, &DiffFactors::default()), "no change");
        let new = DiffChange { samples_b: 90.0, change: 90.0, significant: true, ..Default::default() };
        assert_eq!(words(&new, &DiffFactors::default()), "new");
        let gone = DiffChange { samples_a: 90.0, change: -90.0, significant: true, ..Default::default() };
        assert_eq!(words(&gone, &DiffFactors::default()), "gone");
    }

    #[test]
    fn rows_are_as_wide_as_their_titles() {
        for width in [80, 120] {
            let page = Page { out: String::new(), width };
            let change = DiffChange { ratio: Some(1.5), ..Default::default() };
            let row = page.columns(&change, &DiffFactors::default(), " ");
            // An insignificant change has no color.
            assert_eq!(row.chars().count(), page.titles().chars().count());
        }
    }
}
