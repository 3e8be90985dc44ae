//! Renders `dwell stats` as text in the layout of DCPI's Figure 3. If two groups are compared, there is a column for each
//! group, one for their ratio and one for its certainty.

use std::fmt::Write;

use dwell_query::answer::{Stats, StatsComparison, StatsRow};

use crate::text::{BOLD, DIM, HOT, counted, fit, grouped, paint};

/// Renders the table, `width` columns wide.
pub fn render(stats: &Stats, width: usize) -> String {
    let mut out = String::new();
    let mut say = |line: String| writeln!(out, "{}", line.trim_end()).expect("a String takes every text");
    say(paint(DIM, format!("Number of samples of type {}", stats.event)));
    for (i, set) in stats.sets.iter().enumerate() {
        let name = set.name.as_ref().map_or(String::new(), |n| format!(" '{n}'"));
        let against = if set.against { ", compared against" } else { "" };
        say(paint(
            DIM,
            format!("set {} = {:>12}   epoch {}{name}{against}", i + 1, grouped(set.samples), set.epoch),
        ));
    }
    say(paint(DIM, format!("TOTAL {:>12}", grouped(stats.total))));
    let compared = stats.rows.iter().any(|r| r.comparison.is_some());
    say(paint(BOLD, if compared { compared_title() } else { title(width) }));
    for row in &stats.rows {
        say(match &row.comparison {
            Some(comparison) => compared_line(row, comparison, width),
            None => line(row, width),
        });
    }
    if stats.omitted_rows > 0 {
        let more = counted(stats.omitted_rows, "more function");
        say(paint(DIM, format!("… {more}: -n 0 --min-share 0 shows all")));
    }
    stats.notes.iter().for_each(|n| say(paint(DIM, format!("note: {n}"))));
    out
}

/// Width below which the counts have no decimals, so that a row of Figure 3 fits one line.
const WIDE: usize = 116;

fn title(width: usize) -> String {
    if width < WIDE {
        return format!(
            "{:>7} {:>9} {:>7} {:>3} {:>9} {:>8} {:>8} {:>8}  procedure",
            "range%", "sum", "sum%", "N", "mean", "std-dev", "min", "max"
        );
    }
    format!(
        "{:>7} {:>14} {:>7} {:>3} {:>13} {:>12} {:>13} {:>13}  procedure",
        "range%", "sum", "sum%", "N", "mean", "std-dev", "min", "max"
    )
}

fn line(row: &StatsRow, width: usize) -> String {
    if width < WIDE {
        return format!(
            "{:>6.2}% {:>9} {:>6.2}% {:>3} {:>9.1} {:>8.1} {:>8} {:>8}  {}",
            100.0 * row.range_share,
            row.sum,
            100.0 * row.sum_share,
            row.n,
            row.mean,
            row.std_dev,
            row.min,
            row.max,
            fit(&row.demangled, width.saturating_sub(68).max(12)),
        );
    }
    format!(
        "{:>6.2}% {:>14.2} {:>6.2}% {:>3} {:>13.2} {:>12.2} {:>13.2} {:>13.2}  {}",
        100.0 * row.range_share,
        row.sum as f64,
        100.0 * row.sum_share,
        row.n,
        row.mean,
        row.std_dev,
        row.min as f64,
        row.max as f64,
        name(row, width.saturating_sub(94 + row.image.len())),
    )
}

fn compared_title() -> String {
    format!(
        "{:>8} {:>8} {:>10} {:>7} {:>13} {:>13}  procedure",
        "ratio", "p", "false rate", "sum%", "mean", "against"
    )
}

fn compared_line(row: &StatsRow, c: &StatsComparison, width: usize) -> String {
    let ratio = c.ratio.map_or("new".to_owned(), |r| format!("×{r:.3}"));
    let ratio = format!("{ratio:>8}");
    format!(
        "{} {:>8} {:>10} {:>6.2}% {:>13.1} {:>13.1}  {}",
        if c.significant { paint(HOT, ratio) } else { paint(DIM, ratio) },
        probability(c.p),
        probability(c.false_discovery_rate),
        100.0 * row.sum_share,
        c.mean,
        c.mean_against,
        name(row, width.saturating_sub(67 + row.image.len())),
    )
}

/// Formats a probability with three decimals, or with a power of ten if these would be zeros. A value that underflowed is
/// not shown as zero.
pub fn probability(p: f64) -> String {
    match p {
        p if p >= 0.001 => format!("{p:.3}"),
        p if p >= 1e-99 => format!("{p:.0e}"),
        _ => "<1e-99".to_owned(),
    }
}

fn name(row: &StatsRow, width: usize) -> String {
    format!("{}  {}", fit(&row.demangled, width.max(12)), paint(DIM, &row.image))
}
