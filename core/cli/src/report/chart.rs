//! Charts of where cycles go. A template draws them; lengths are in thousandths of the picture's width.

use dwell_query::answer::{Listing, Summary};

use super::cause_class::class;
use crate::text::percent;

/// A part of a stacked bar.
pub struct Part {
    /// Class in the style sheet: `execution`, `static`, `dynamic` or `error`.
    pub class: &'static str,
    pub title: &'static str,
    pub x: f64,
    pub width: f64,
    pub percent: String,
}

/// A cause with its range.
pub struct Range {
    pub class: &'static str,
    pub title: String,
    pub least: f64,
    pub most: f64,
    pub told: String,
}

/// The bar of one instruction, or of several neighbours, in the skyline of a procedure.
pub struct Bar {
    pub class: &'static str,
    pub x: f64,
    pub width: f64,
    pub y: f64,
    pub height: f64,
    pub address: String,
    pub told: String,
}

/// Chart of a [`Summary`].
pub struct Causes {
    pub parts: Vec<Part>,
    pub dynamic: Vec<Range>,
    pub fixed: Vec<Range>,
    pub best: String,
    pub actual: String,
}

/// Least share that is shown. A smaller one rounds to zero.
const SHARE_SEEN: f64 = 0.0005;

impl Causes {
    pub fn new(summary: &Summary) -> Causes {
        let mut dynamic: Vec<Range> = summary
            .dynamic
            .iter()
            .filter(|r| r.share_max >= SHARE_SEEN)
            .map(|r| range(class(&r.cause), r.label, r.share_min, r.share_max))
            .collect();
        dynamic.sort_by(|a, b| b.most.total_cmp(&a.most));
        if summary.unexplained_stall_max >= SHARE_SEEN {
            let (least, most) = (summary.unexplained_stall_min, summary.unexplained_stall_max);
            dynamic.push(range("unknown", "Unexplained stall", least, most));
        }
        let mut fixed: Vec<Range> = summary
            .r#static
            .iter()
            .filter(|p| p.share_max >= SHARE_SEEN)
            .map(|p| range("fixed", p.label, p.share_min, p.share_max))
            .collect();
        fixed.sort_by(|a, b| b.most.total_cmp(&a.most));
        let cpi = |c: Option<f64>| c.map_or("–".to_owned(), |c| format!("{c:.2}"));
        Causes {
            parts: parts(summary),
            dynamic,
            fixed,
            best: cpi(summary.best_case_cpi),
            actual: crate::text::cycles_each(summary.cpi, summary.cpi_min),
        }
    }
}

/// Returns the parts that add up to the whole. A negative part (gain, sampling error) has no width. Without an absolute scale
/// they are the least that is possible, and one part is all the rest.
fn parts(s: &Summary) -> Vec<Part> {
    let least = [s.execution_min, s.subtotal_static_min, s.subtotal_dynamic_min];
    let rest = match s.net_sampling_error {
        Some(error) => ("error", "net sampling error", error),
        None => ("unknown", "execution or stalls: not known which", 1.0 - least.iter().sum::<f64>()),
    };
    let [execution, fixed, dynamic] = least;
    let shares = [
        ("execution", "execution", execution),
        ("fixed", "static stalls", fixed),
        ("dynamic", "dynamic stalls", dynamic),
        rest,
    ];
    let whole: f64 = shares.iter().map(|(_, _, share)| share.max(0.0)).sum::<f64>().max(1e-9);
    let mut x = 0.0;
    let part = |(class, title, share): (&'static str, &'static str, f64)| {
        let width = 1000.0 * share.max(0.0) / whole;
        x += width;
        Part { class, title, x: x - width, width, percent: percent(share, 1) }
    };
    shares.into_iter().filter(|(_, _, share)| share.abs() >= SHARE_SEEN).map(part).collect()
}

fn range(class: &'static str, title: &str, least: f64, most: f64) -> Range {
    let told = if 100.0 * (most - least) < 0.05 {
        percent(most, 1)
    } else {
        format!("{} – {}", percent(least, 1).trim_end_matches('%'), percent(most, 1))
    };
    let thousandths = |share: f64| 1000.0 * share.clamp(0.0, 1.0);
    Range { class, title: title.to_owned(), least: thousandths(least), most: thousandths(most), told }
}

/// Height of a skyline.
const SKYLINE: f64 = 100.0;
/// Largest number of bars in a skyline. If there are more instructions, neighbours share a bar.
const BARS_MAX: usize = 500;

/// Builds the skyline of a procedure from its first to its last instruction. It shows how long each instruction was waited
/// for; colours show the causes.
pub fn skyline(listing: &Listing) -> Vec<Bar> {
    let all = &listing.instructions;
    let each = all.len().div_ceil(BARS_MAX).max(1);
    let groups: Vec<_> = all.chunks(each).collect();
    let sum =
        |group: &[dwell_query::answer::ListingInstruction]| group.iter().map(|i| i.head_samples).sum::<f64>();
    let (most, total) = (groups.iter().map(|g| sum(g)).fold(1e-9, f64::max), sum(all).max(1e-9));
    let width = 1000.0 / groups.len().max(1) as f64;
    let bar = |(n, group): (usize, &&[dwell_query::answer::ListingInstruction])| {
        let samples = sum(group);
        let hottest = group.iter().max_by(|a, b| a.head_samples.total_cmp(&b.head_samples))?;
        let height = (SKYLINE * samples / most).max(1.5);
        let stall = super::listing::worst(&listing.scale, hottest);
        let why = stall.map_or(String::new(), |s| format!(" – {}", s.label));
        (samples >= 0.5).then(|| Bar {
            class: stall.map_or("execution", |s| class(&s.cause)),
            x: n as f64 * width,
            width: (width * 0.86).min(40.0),
            y: SKYLINE - height,
            height,
            address: format!("{:x}", hottest.address),
            told: format!("{:x} {}: {:.1}%{why}", hottest.address, hottest.text, 100.0 * samples / total),
        })
    };
    groups.iter().enumerate().filter_map(bar).collect()
}
