//! Renders `dwell list FILE`: a source file with the cost of each line (DCPI's dcpilist).

use std::{fmt::Write, path::Path};

use dwell_query::answer::{FileCosts, LineCost, LineCulprit};

use crate::text::{BOLD, DIM, SOURCE, fit, heat, paint, seconds, times};

/// Number of lines without a cost that are shown before and after a line with a cost, unless all lines are shown.
const AROUND: usize = 3;
/// Number of columns before the text of a line.
const COLUMNS: usize = 6 + 1 + 2 + 7 + 1 + 7 + 2;

/// Renders the text of the file, each line with its costs. If `full` is set, lines far from any cost are shown too.
pub fn render(costs: &FileCosts, text: &str, full: bool, width: usize) -> String {
    let mut out = String::new();
    let mut say = |line: String| writeln!(out, "{}", line.trim_end()).expect("a String takes every text");
    let share: f64 = costs.lines.iter().map(|l| l.share).sum();
    say(paint(BOLD, format!("{}: {:.1}% of the samples", costs.file, 100.0 * share)));
    say(paint(BOLD, format!("{:>6}    {:>7} {:>7}", "line", "share", "time")));
    let lines: Vec<&str> = text.lines().collect();
    let near = |n: usize| costs.lines.iter().any(|l| n.abs_diff(l.line as usize) <= AROUND);
    let mut folded = 0;
    for (n, text) in (1..).zip(&lines) {
        if !full && !near(n) {
            folded += 1;
            continue;
        }
        if std::mem::take(&mut folded) > 0 {
            say(paint(DIM, format!("{:>6}", "…")));
        }
        let cost = costs.lines.iter().find(|l| l.line as usize == n);
        say(line(n, cost, text, &costs.file, width));
    }
    costs.notes.iter().for_each(|n| say(paint(DIM, format!("note: {n}"))));
    out
}

fn line(n: usize, cost: Option<&LineCost>, text: &str, file: &str, room: usize) -> String {
    let text = text.replace('\t', "    ");
    let Some(cost) = cost else {
        let room = room.saturating_sub(COLUMNS);
        return format!("{} {:17}  {}", paint(DIM, format!("{n:>6}")), "", fit(&text, room));
    };
    let told = told(cost, file);
    let text_room = room.saturating_sub(COLUMNS + told.chars().count() + 3).max(20);
    format!(
        "{n:>6} {:<2}{} {:>7}  {}   {}",
        bar(cost.share),
        paint(heat(cost.share), format!("{:>6.2}%", 100.0 * cost.share)),
        seconds(cost.seconds),
        paint(SOURCE, fit(&text, text_room)),
        paint(DIM, told),
    )
}

/// Describes the causes that explain most of a line, and the cycles per instruction if they are known: `waits for memory
/// (D-cache or DTLB miss) ← :41 · 66 cycles/instr (ideal 1.3)`.
fn told(cost: &LineCost, file: &str) -> String {
    let cause = cost.ties.first().map(|tie| {
        let culprit = tie.culprits.first().map(|&c| &cost.culprits[c]);
        format!("{}{}", tie.text, culprit.map_or(String::new(), |c| place(c, cost.line, file)))
    });
    let ideal = cost.best_case_cpi.map_or(String::new(), |best| format!(" (ideal {})", each(best)));
    let cycles = match cost.cpi {
        Some(cpi) => Some(format!("{} cycles/instr{ideal}", each(cpi))),
        // A bound is worth showing only if it is well above the ideal and belongs to an instruction that waits.
        None if cost.cpi_min >= 1.0 && cost.best_case_cpi.is_none_or(|best| cost.cpi_min > 1.5 * best) => {
            Some(format!("≥ {} cycles/instr{ideal}", each(cost.cpi_min)))
        }
        None => None,
    };
    let ratio = cost.per_entry.as_ref().filter(|r| cost.cpi.is_none() && (r.executions - 1.0).abs() >= 0.05);
    let entries = ratio.map(|r| format!("{} per entry of the {}", times(r.executions), r.of.name()));
    cause.into_iter().chain(cycles).chain(entries).collect::<Vec<String>>().join(" · ")
}

/// Returns the place of the instruction to blame, unless that is the line itself: ` ← :41`, ` ← hash.h:12`.
fn place(culprit: &LineCulprit, own: u32, file: &str) -> String {
    let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    match (&culprit.file, culprit.line) {
        (Some(of), Some(line)) if name(of) != name(file) => format!(" ← {}:{line}", name(of)),
        (_, Some(line)) if line != own => format!(" ← :{line}"),
        _ => String::new(),
    }
}

/// Formats cycles per instruction: `66`, `1.3`, `0.50`.
fn each(cycles: f64) -> String {
    match cycles {
        c if c >= 9.95 => format!("{c:.0}"),
        c if c >= 0.995 => format!("{c:.1}"),
        c => format!("{c:.2}"),
    }
}

/// Draws a share as a bar of two columns in steps of an eighth. Half of the time fills one column, since a line rarely has
/// more.
fn bar(share: f64) -> String {
    const PARTS: [&str; 9] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"];
    let eighths = (16.0 * share.clamp(0.0, 1.0)).round() as usize;
    let (whole, rest) = (eighths / 8, eighths % 8);
    format!("{}{}", "█".repeat(whole), PARTS[rest])
}

/// Reads the current text of the file.
pub fn read(path: &Path) -> anyhow::Result<String> {
    use anyhow::Context;
    let bytes = std::fs::read(path).with_context(|| format!("list: {}", path.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
