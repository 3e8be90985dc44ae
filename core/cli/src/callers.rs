//! Renders callers, callees and inclusive samples as text.

use std::fmt::Write;

use dwell_query::answer::{Callers, CallersRow, Inclusive, IncompleteStacks};

use crate::text::{BOLD, DIM, fit, grouped, heat, paint};

/// Renders the callers or callees of a function as a tree.
pub fn render(callers: &Callers, title: &str, width: usize) -> String {
    let mut out = String::new();
    let share = callers.samples as f64 / callers.total.max(1) as f64;
    say(
        &mut out,
        format!(
            "{} {}: {:.2}% of {} samples with a call stack, {:.2}% in the function itself",
            paint(BOLD, &callers.function),
            paint(DIM, &callers.image),
            100.0 * share,
            grouped(callers.total),
            100.0 * callers.own as f64 / callers.total.max(1) as f64,
        ),
    );
    say(&mut out, paint(BOLD, format!("{:>8} {:>10}  {title}", "share", "samples")));
    if callers.rows.is_empty() {
        say(&mut out, paint(DIM, format!("{:>8} {:>10}  (none)", "", "")));
    }
    callers.rows.iter().for_each(|row| say_row(&mut out, row, 0, width));
    say_foot(&mut out, &callers.incomplete, callers.total, &callers.notes);
    out
}

fn say_row(out: &mut String, row: &CallersRow, level: usize, width: usize) {
    let site = row.sites.first().map_or(String::new(), |site| {
        let more = if row.sites.len() > 1 { format!(" +{}", row.sites.len() - 1) } else { String::new() };
        let file = site.file.rsplit('/').next().unwrap_or_default();
        format!("  {file}:{}{more}", site.line)
    });
    let inlined = if row.inlined { " (inlined)" } else { "" };
    let room =
        width.saturating_sub(21 + 2 * level + row.image.len() + site.len() + inlined.len() + 2).max(20);
    say(
        out,
        format!(
            "{} {:>10}  {:indent$}{}{inlined}  {}{}",
            paint(heat(row.share), format!("{:>7.2}%", 100.0 * row.share)),
            grouped(row.samples),
            "",
            fit(&row.function, room),
            paint(DIM, &row.image),
            paint(DIM, site),
            indent = 2 * level,
        ),
    );
    row.rows.iter().for_each(|inner| say_row(out, inner, level + 1, width));
}

/// Renders functions by their inclusive samples.
pub fn render_inclusive(answer: &Inclusive, width: usize) -> String {
    let mut out = String::new();
    say(
        &mut out,
        paint(
            DIM,
            format!(
                "{} of {} samples of {} have a call stack",
                grouped(answer.samples),
                grouped(answer.all_samples),
                answer.event
            ),
        ),
    );
    let head = format!("{:>9} {:>8} {:>10} {:>10}  {}", "inclusive", "own", "samples", "own", "procedure");
    say(&mut out, paint(BOLD, head));
    let room = (width.saturating_sub(44) * 2 / 3).clamp(20, 60);
    for row in &answer.rows {
        let own = row.own as f64 / answer.samples.max(1) as f64;
        say(
            &mut out,
            format!(
                "{} {:>7.2}% {:>10} {:>10}  {:<room$}  {}",
                paint(heat(row.share), format!("{:>8.2}%", 100.0 * row.share)),
                100.0 * own,
                grouped(row.samples),
                grouped(row.own),
                fit(&row.function, room),
                paint(DIM, &row.image),
            ),
        );
    }
    if answer.others > 0 {
        say(&mut out, paint(DIM, format!("… {} more: -n 0 shows all", grouped(answer.others as u64))));
    }
    say_foot(&mut out, &answer.incomplete, answer.samples, &answer.notes);
    out
}

fn say_foot(out: &mut String, incomplete: &[IncompleteStacks], total: u64, notes: &[String]) {
    for line in incomplete_lines(incomplete, total) {
        say(out, paint(DIM, format!("note: {line}")));
    }
    notes.iter().for_each(|note| say(out, paint(DIM, format!("note: {note}"))));
}

/// Describes incomplete stacks: `3.1% of the stacks end in code without unwind information: libfoo.so, libbar.so`.
pub fn incomplete_lines(incomplete: &[IncompleteStacks], total: u64) -> Vec<String> {
    const NAMED: usize = 3;
    let mut causes: Vec<&str> = incomplete.iter().map(|row| &*row.cause).collect();
    causes.sort_unstable();
    causes.dedup();
    let line = |cause: &str| {
        let rows: Vec<&IncompleteStacks> = incomplete.iter().filter(|row| row.cause == cause).collect();
        let samples: u64 = rows.iter().map(|row| row.samples).sum();
        let named: Vec<&str> = rows.iter().take(NAMED).map(|row| &*row.image).collect();
        let more = if rows.len() > NAMED { ", …" } else { "" };
        let share = 100.0 * samples as f64 / total.max(1) as f64;
        format!("{share:.1}% of the stacks {}: {}{more}", cause_text(cause), named.join(", "))
    };
    causes.into_iter().map(line).collect()
}

fn cause_text(cause: &str) -> &str {
    match cause {
        "no-unwind-information" => "end in code without unwind information",
        "no-image" => "end in code whose file could not be read",
        "cut" => "are deeper than the bytes that are recorded of a stack",
        "too-deep" => "have more frames than are recorded",
        "other-stack" => "continue on a stack that was not recorded",
        "broken" => "end where no caller was found",
        "no-registers" => "are of 32-bit code, which is not unwound",
        "no-frame-pointer" => "end in code without frame pointers, by which they were recorded",
        _ => "end for a cause that this version does not know",
    }
}

fn say(out: &mut String, line: String) {
    writeln!(out, "{}", line.trim_end()).expect("a String takes every text");
}
