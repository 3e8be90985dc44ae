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
    let (text, told) = fitted(&text, &causes(cost, file), &estimates(cost), room.saturating_sub(COLUMNS));
    let told = if told.is_empty() { told } else { format!("{:GAP$}{}", "", paint(DIM, told)) };
    format!(
        "{n:>6} {:<2}{} {:>7}  {}{told}",
        bar(cost.share),
        paint(heat(cost.share), format!("{:>6.2}%", 100.0 * cost.share)),
        seconds(cost.seconds),
        paint(SOURCE, text),
    )
}

/// Number of columns between the text of a line and what is known of it.
const GAP: usize = 3;

/// Fits the text of a line, its causes (the longest words first) and its estimates into `room` columns. The estimates are left
/// out first, then the causes get shorter words, and the text is cut last.
fn fitted(text: &str, causes: &[String], estimates: &str, room: usize) -> (String, String) {
    let wide = |text: &str| text.chars().count();
    let all = causes.first().map(String::as_str).into_iter().chain([estimates]);
    let all = all.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" · ");
    let fits = |told: &&String| wide(text) + GAP + wide(told) <= room;
    let told = [&all].into_iter().chain(causes).find(fits).or(causes.last()).cloned().unwrap_or_default();
    let gap = if told.is_empty() { 0 } else { GAP };
    (fit(text, room.saturating_sub(wide(&told) + gap)), told)
}

/// Describes the causes that explain most of a line: `waits for memory (D-cache or DTLB miss) ← :41`, then in ever fewer words, at
/// last `memory`. Returns nothing if there is no cause.
pub fn causes(cost: &LineCost, file: &str) -> Vec<String> {
    let Some(tie) = cost.ties.first() else { return Vec::new() };
    let place = tie.culprits.first().map_or(String::new(), |&c| place(&cost.culprits[c], cost.line, file));
    let bare = tie.text.trim_start_matches("waits for ");
    let outside = |part: &str| part.split_once(')').map_or(part, |(_, rest)| rest).to_owned();
    let general: String = bare.split(" (").map(outside).collect();
    vec![format!("{}{place}", tie.text), format!("{bare}{place}"), bare.to_owned(), general]
}

/// Describes the cycles per instruction if they are known, otherwise what is known instead: `66 cycles/instr (ideal 1.3)`.
fn estimates(cost: &LineCost) -> String {
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
    cycles.into_iter().chain(entries).collect::<Vec<String>>().join(" · ")
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::line_cost;

    #[test]
    fn where_room_is_short_the_cpi_goes_first_then_causes_shrink_and_the_source_is_cut_last() {
        let check = |room: usize, expected: [&str; 2]| {
            let cost = line_cost();
            let (text, told) =
                fitted("  sum += p->value;", &causes(&cost, "walk.c"), &estimates(&cost), room);
            assert_eq!([text.as_str(), told.as_str()], expected, "{room}");
            assert!(text.chars().count() + GAP + told.chars().count() <= room);
        };
        let source = "  sum += p->value;";
        let causes = "waits for memory (D-cache or DTLB miss) ← :41";
        check(96, [source, &format!("{causes} · 66 cycles/instr (ideal 1.3)")]);
        check(95, [source, causes]);
        check(66, [source, causes]);
        check(65, [source, "memory (D-cache or DTLB miss) ← :41"]);
        check(55, [source, "memory (D-cache or DTLB miss)"]);
        check(49, [source, "memory"]);
        check(27, [source, "memory"]);
        check(20, ["  sum += p…", "memory"]);
    }
}
