//! `dwell list FILE`: a source file with what each of its lines costs (DCPI's dcpilist).

use std::{fmt::Write, path::Path};

use dwell_query::answer::{FileCosts, LineCost};

use crate::text::{BOLD, DIM, SOURCE, cause, cpi, fit, heat, paint, si_or_dash};

/// Lines without a cost that are shown around one with a cost, unless all are.
const AROUND: usize = 3;
/// Columns before a line's text.
const COLUMNS: usize = 6 + 1 + 7 + 1 + 9 + 1 + 9 + 1 + 6 + 2;

/// The file's text, each line with its costs; `full` shows lines far from any cost too.
pub fn render(costs: &FileCosts, text: &str, full: bool, width: usize) -> String {
    let mut out = String::new();
    let mut say = |line: String| writeln!(out, "{}", line.trim_end()).expect("a String takes every text");
    let share: f64 = costs.lines.iter().map(|l| l.share).sum();
    say(paint(BOLD, format!("{}: {:.1}% of the samples", costs.file, 100.0 * share)));
    say(paint(BOLD, format!("{:>6} {:>7} {:>9} {:>9} {:>6}", "line", "share", "cycles", "executed", "CPI")));
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
        say(line(n, cost, text, width.saturating_sub(COLUMNS)));
    }
    costs.notes.iter().for_each(|n| say(paint(DIM, format!("note: {n}"))));
    out
}

fn line(n: usize, cost: Option<&LineCost>, text: &str, room: usize) -> String {
    let text = text.replace('\t', "    ");
    let Some(cost) = cost else {
        return format!(
            "{} {}",
            paint(DIM, format!("{n:>6}")),
            format_args!("{:36}{}", "", fit(&text, room))
        );
    };
    let culprit = cost.culprits.first().map_or(String::new(), |c| format!("   ← {}", cause(&c.cause).1));
    format!(
        "{n:>6} {} {:>9} {:>9} {:>6}  {}{}",
        paint(heat(cost.share), format!("{:>6.2}%", 100.0 * cost.share)),
        si_or_dash(cost.cycles),
        si_or_dash(cost.executions),
        cpi(cost.cpi),
        paint(SOURCE, fit(&text, room.saturating_sub(culprit.chars().count()).max(20))),
        paint(DIM, culprit),
    )
}

/// The file as it is now.
pub fn read(path: &Path) -> anyhow::Result<String> {
    use anyhow::Context;
    let bytes = std::fs::read(path).with_context(|| format!("list: {}", path.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
