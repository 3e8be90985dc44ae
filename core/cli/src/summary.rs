//! Renders `dwell summary` as text in the layout of DCPI's Figure 4. The printed numbers add up exactly if the scale is
//! absolute. Otherwise they are ranges.

use std::fmt::Write;

use dwell_query::answer::{Summary, SummaryPart, SummaryUnder};

use crate::text::{self, BOLD, DIM, counted, grouped, heat, paint, si};

/// Renders the table.
pub fn render(summary: &Summary) -> String {
    let mut page = Page { out: String::new() };
    page.head(summary);
    for row in &summary.dynamic {
        page.range(row.label, row.share_min, row.share_max);
        if matches!(row.cause.as_str(), "synchronization" | "other") {
            page.say("***");
        }
    }
    page.range("Unexplained stall", summary.unexplained_stall_min, summary.unexplained_stall_max);
    match Tenths::new(summary) {
        Some(tenths) => page.sums(summary, &tenths),
        None => page.ranges(summary),
    }
    let tallied = grouped(summary.samples_tallied.round() as u64);
    let of = if summary.under.is_some() { "those under it" } else { "all" };
    page.say(format!("***   ({tallied} samples, {:.1}% of {of})", 100.0 * summary.tallied_share));
    page.foot(summary);
    page.out
}

struct Page {
    out: String,
}

impl Page {
    fn head(&mut self, s: &Summary) {
        let name = match &*s.scope.kind {
            "epoch" => "whole recording".to_owned(),
            "under" => format!("under {}", s.scope.name),
            _ => s.scope.name.clone(),
        };
        self.say(paint(BOLD, format!("*** {name}")));
        // If the clock rate is unknown, samples replace cycles: their ratios are the same.
        let instructions = s.instructions.or_else(|| s.cpi.map(|cpi| s.samples_tallied / cpi));
        for (what, cpi, least) in [("Best-case", s.best_case_cpi, None), ("Actual", s.cpi, s.cpi_min)] {
            let ratio = match (cpi, instructions, least) {
                (Some(cpi), Some(n), _) => format!("{} / {} = {cpi:.2} CPI", si(cpi * n), si(n)),
                (Some(cpi), None, _) => format!("{cpi:.2} CPI"),
                (None, _, Some(least)) => format!("≥ {least:.2} CPI; how often the code ran is not known"),
                (None, _, None) => "no estimate".to_owned(),
            };
            self.say(format!("*** {what:<12}{ratio}"));
        }
        self.say("***");
    }

    /// Adds the rows of a summary whose scale is absolute: numbers that add up.
    fn sums(&mut self, s: &Summary, tenths: &Tenths) {
        let gain = s.unexplained_gain.unwrap_or(0.0);
        self.range("Unexplained gain", gain, gain);
        self.sum("Subtotal dynamic", percent(tenths.dynamic));
        self.say("***");
        for (part, share) in s.r#static.iter().zip(&tenths.statics) {
            self.part(part.label, *share);
        }
        self.sum("Subtotal static", percent(tenths.statics.iter().sum()));
        self.say("***");
        self.sum("Total stall", percent(tenths.dynamic + tenths.statics.iter().sum::<i64>()));
        self.sum("Execution", percent(tenths.execution));
        self.sum("Net sampling error", percent(tenths.error));
        self.say("***");
        self.sum("Total tallied", percent(tenths.total));
    }

    /// Adds the rows of a summary without an absolute scale: what is possible.
    fn ranges(&mut self, s: &Summary) {
        let range =
            |min: f64, max: f64| format!("{:>7} to {:>7}", text::percent(min, 1), text::percent(max, 1));
        self.sum("Subtotal dynamic", range(s.subtotal_dynamic_min, s.subtotal_dynamic_max));
        self.say("***");
        s.r#static.iter().for_each(|part| self.range(part.label, part.share_min, part.share_max));
        self.sum("Subtotal static", range(s.subtotal_static_min, s.subtotal_static_max));
        self.say("***");
        self.sum("Total stall", range(s.total_stall_min, s.total_stall_max));
        self.sum("Execution", range(s.execution_min, s.execution_max));
        self.say("***");
    }

    fn range(&mut self, title: &str, least: f64, most: f64) {
        let most_percent = paint(heat(most), format!("{:>7}", text::percent(most, 1)));
        self.say(format!("***   {title:<31}{:>7} to {most_percent}", text::percent(least, 1)));
    }

    fn part(&mut self, title: &str, tenths: i64) {
        self.say(format!("***   {title:<31}{:>25}", percent(tenths)));
    }

    fn sum(&mut self, title: &str, share: String) {
        self.say(format!("*** {title:<33}{}", paint(BOLD, format!("{share:>32}"))));
    }

    fn foot(&mut self, s: &Summary) {
        let left_out = match s.procedures_left_out {
            0 => String::new(),
            n => format!(", {} left out: no instructions or too few samples", grouped(n as u64)),
        };
        self.say(paint(
            DIM,
            format!(
                "{} analysed{left_out}; machine model {}",
                counted(s.procedures, "function"),
                s.machine_model
            ),
        ));
        if let Some(under) = &s.under {
            self.say(paint(DIM, under_told(under)));
        }
        s.notes.iter().for_each(|n| self.say(paint(DIM, format!("note: {n}"))));
    }

    fn say(&mut self, line: impl std::fmt::Display) {
        writeln!(self.out, "{line}").expect("a String takes every text");
    }
}

/// Describes what a summary of the samples under a function rests on.
fn under_told(under: &SummaryUnder) -> String {
    let incomplete = match under.incomplete {
        0 => String::new(),
        n => format!("; the outer frames of {} are not known, it may be among them", grouped(n)),
    };
    format!(
        "{} of the recording are under it: {} of {} samples with a call stack ({} samples in all), {} in itself{incomplete}",
        text::percent(under.share, 1),
        grouped(under.samples),
        grouped(under.stack_samples),
        grouped(under.all_samples),
        grouped(under.own),
    )
}

/// Numbers that are added up, in tenths of a percent.
#[derive(Debug, PartialEq)]
struct Tenths {
    dynamic: i64,
    statics: Vec<i64>,
    execution: i64,
    error: i64,
    total: i64,
}

impl Tenths {
    /// Returns `None` unless the scale is absolute.
    fn new(s: &Summary) -> Option<Tenths> {
        let total = 1000;
        let parts = [s.subtotal_dynamic?, s.subtotal_static?, s.execution?, s.net_sampling_error?];
        let [dynamic, fixed, execution, error] = apportioned(total, parts);
        let shares: Vec<f64> = s.r#static.iter().filter_map(|p: &SummaryPart| p.share).collect();
        Some(Tenths { dynamic, statics: apportion(fixed, &shares), execution, error, total })
    }
}

fn apportioned<const N: usize>(total: i64, shares: [f64; N]) -> [i64; N] {
    apportion(total, &shares).try_into().expect("one for each share")
}

/// Rounds shares to thousandths that add up to `total`. All are rounded down first; then those with the largest remainders
/// are rounded up.
fn apportion(total: i64, shares: &[f64]) -> Vec<i64> {
    let exact: Vec<f64> = shares.iter().map(|s| 1000.0 * s).collect();
    let mut rounded: Vec<i64> = exact.iter().map(|e| e.floor() as i64).collect();
    let mut by_loss: Vec<usize> = (0..shares.len()).collect();
    by_loss.sort_by(|&a, &b| (exact[b] - exact[b].floor()).total_cmp(&(exact[a] - exact[a].floor())));
    let missing = total - rounded.iter().sum::<i64>();
    for &i in by_loss.iter().take(usize::try_from(missing).unwrap_or(0)) {
        rounded[i] += 1;
    }
    rounded
}

fn percent(tenths: i64) -> String {
    let sign = if tenths < 0 { "-" } else { "" };
    format!("{sign}{}.{}%", tenths.abs() / 10, tenths.abs() % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_parts_add_up() {
        assert_eq!(apportion(1000, &[0.4412, 0.0481, 0.5116, -0.0009]), [441, 48, 512, -1]);
        let thirds = apportion(1000, &[1.0 / 3.0; 3]);
        assert_eq!((thirds.iter().sum::<i64>(), thirds.len()), (1000, 3));
        assert_eq!(apportion(0, &[0.0, 0.0]), [0, 0]);
        assert_eq!([-1, 0, 441, 1000].map(percent), ["-0.1%", "0.0%", "44.1%", "100.0%"]);
    }
}
