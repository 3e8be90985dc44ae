//! Verdicts of one set → pictures: the counterparts of DCPI's Figures 8 to 10, and some that the paper does not have.

use dwell_analysis::Cause;

use super::svg::{Anchor, Panel, Svg};
use crate::{
    culprits::Scores,
    metrics::{BUCKETS_PERCENT, CURVE_PERCENT_MAX},
    reliability::Reliability,
    report::text::estimators,
    sensitivity::Sensitivity,
    verdict::{EstimatorVerdict, Reliabilities, Verdict},
};

const WIDTH: f64 = 980.0;
const SCALINGS: [&str; 3] = ["absolute", "up to one scale per program", "up to one scale per function"];

/// Returns the file names (without the set) and pictures of one set.
pub fn all(set: &str, members: &[&Verdict]) -> Vec<(&'static str, String)> {
    let scaling = if members.iter().any(|v| has_absolute(v)) { 0 } else { 2 };
    let mut pictures = vec![
        ("frequencies", frequencies(set, members)),
        ("errors", errors(set, members, scaling)),
        ("reliability", reliability(set, members)),
    ];
    if members.iter().all(|v| !v.sensitivity.is_empty()) {
        pictures.push(("sensitivity", sensitivity(set, members)));
    }
    let scores = Scores::mean(members.iter().filter_map(|v| v.culprits.as_ref()));
    if scores.stalled > 0.0 {
        pictures.push(("culprits", culprits(set, &scores)));
        pictures.push(("stalls", stalls(set, &scores)));
    }
    pictures
}

fn has_absolute(verdict: &Verdict) -> bool {
    verdict.estimators.iter().any(|e| e.instructions.abs.is_some())
}

fn percents(values: &[i32]) -> Vec<(f64, String)> {
    values.iter().map(|&v| (f64::from(v), format!("{v}%"))).collect()
}

fn shares() -> Vec<(f64, String)> {
    [0, 25, 50, 75, 100].iter().map(|&v| (f64::from(v) / 100.0, format!("{v}%"))).collect()
}

/// Returns the mean over the programs that have a value; empty if none has.
fn mean<'a>(
    members: &[&'a Verdict],
    name: &str,
    of: impl Fn(&'a EstimatorVerdict) -> &'a Vec<f64>,
) -> Vec<f64> {
    let estimators = members.iter().flat_map(|v| &v.estimators).filter(|e| e.name == name);
    let all: Vec<&Vec<f64>> = estimators.map(of).filter(|c| !c.is_empty()).collect();
    let len = all.first().map_or(0, |c| c.len());
    (0..len).map(|i| all.iter().map(|c| c[i]).sum::<f64>() / all.len() as f64).collect()
}

/// Draws the share of samples by the largest error allowed: a curve for each estimator, a panel for each scaling.
fn frequencies(set: &str, members: &[&Verdict]) -> String {
    let title =
        format!("{set}: samples with a frequency within this error, mean of {} programs", members.len());
    let mut svg = Svg::new(WIDTH, 392.0, &title);
    let names = estimators(members);
    for (scaling, heading) in SCALINGS.iter().enumerate() {
        let panel = Panel {
            x: 52.0 + scaling as f64 * 314.0,
            y: 66.0,
            width: 270.0,
            height: 236.0,
            across: (0.0, CURVE_PERCENT_MAX as f64),
            up: (0.0, 1.0),
        };
        panel.axes(&mut svg, heading, &percents(&[5, 10, 15, 30, 45]), &shares());
        let mut drawn = false;
        for (colour, name) in names.iter().enumerate().rev() {
            let curve = mean(members, name, |e| &e.pictures.curves[scaling]);
            let points: Vec<_> = curve.iter().enumerate().map(|(i, &s)| panel.at(i as f64, s)).collect();
            if !points.is_empty() {
                svg.line(colour, "", &points);
                drawn = true;
            }
        }
        if !drawn {
            let (x, y) = panel.at(22.5, 0.5);
            svg.text(x, y, Anchor::Middle, "faint", "the clock is not known");
        }
    }
    let legend: Vec<(usize, &str)> = names.iter().copied().enumerate().collect();
    svg.legend((52.0, 346.0), &legend);
    svg.finish()
}

/// Draws the counterparts of Figures 8 and 9: signed errors of instructions and of edges, Dwell's beside the clusters'.
fn errors(set: &str, members: &[&Verdict], scaling: usize) -> String {
    let title = format!("{set}: distribution of errors, {} (DCPI's Figures 8 and 9)", SCALINGS[scaling]);
    let mut svg = Svg::new(WIDTH, 372.0, &title);
    for (index, heading) in ["instructions, by samples", "edges, by executions"].iter().enumerate() {
        let both = ["dwell", "clusters"].map(|name| match index {
            0 => mean(members, name, |e| &e.pictures.instructions[scaling]),
            _ => mean(members, name, |e| &e.pictures.edges[scaling]),
        });
        let top = both.iter().flatten().fold(0.0, |a: f64, &b| a.max(b)).max(0.1);
        let panel = Panel {
            x: 52.0 + index as f64 * 472.0,
            y: 66.0,
            width: 430.0,
            height: 236.0,
            across: (0.0, 20.0),
            up: (0.0, (top * 10.0).ceil() / 10.0),
        };
        let ticks: Vec<(f64, String)> = [1usize, 5, 9, 13, 17]
            .iter()
            .map(|&i| (i as f64 + 0.5, format!("{}…{}", BUCKETS_PERCENT[i - 1], BUCKETS_PERCENT[i])))
            .chain([(19.5, ">45%".to_owned())])
            .collect();
        let up: Vec<(f64, String)> = (0..=(panel.up.1 * 10.0).round() as i32)
            .map(|v| (f64::from(v) / 10.0, format!("{}%", v * 10)))
            .collect();
        panel.axes(&mut svg, heading, &ticks, &up);
        for (colour, histogram) in both.iter().enumerate() {
            for (bucket, &share) in histogram.iter().enumerate() {
                let (left, y) = panel.at(bucket as f64 + 0.1 + 0.4 * colour as f64, share);
                let width = panel.width / 20.0 * 0.4;
                svg.area(colour, "", (left, y), (width, panel.y + panel.height - y));
            }
        }
    }
    svg.legend((52.0, 346.0), &[(0, "dwell"), (1, "clusters, as in the paper")]);
    svg.finish()
}

/// Draws, for the samples at each level, the share within 10% (full) and 15% (pale).
fn reliability(set: &str, members: &[&Verdict]) -> String {
    let mut svg = Svg::new(WIDTH, 372.0, &format!("{set}: how often samples of each confidence are right"));
    let kinds: [fn(&Reliabilities) -> Option<Reliability>; 3] =
        [|r| r.abs, |r| Some(r.prog), |r| Some(r.func)];
    for (index, of) in kinds.iter().enumerate() {
        let all: Vec<Reliability> = members.iter().filter_map(|v| of(&v.reliability)).collect();
        if all.is_empty() {
            continue;
        }
        let mean = Reliability::mean(&all);
        let panel = Panel {
            x: 52.0 + index as f64 * 314.0,
            y: 66.0,
            width: 270.0,
            height: 220.0,
            across: (0.0, 3.0),
            up: (0.0, 1.0),
        };
        panel.axes(&mut svg, SCALINGS[index], &[], &shares());
        for (i, (name, level)) in ["low", "medium", "high"].iter().zip(mean.0).enumerate() {
            let bottom = panel.y + panel.height;
            for (class, part) in [("pale", level.within_15), ("", level.within_10)] {
                let (x, y) = panel.at(i as f64 + 0.2, part / level.samples.max(f64::MIN_POSITIVE));
                svg.area([6, 5, 3][i], class, (x, y), (panel.width / 3.0 * 0.6, bottom - y));
            }
            let (x, _) = panel.at(i as f64 + 0.5, 0.0);
            svg.text(x, bottom + 16.0, Anchor::Middle, "", name);
            let share = format!("{:.0}% of samples", level.samples * 100.0);
            svg.text(x, bottom + 31.0, Anchor::Middle, "faint small", &share);
        }
    }
    svg.text(52.0, 352.0, Anchor::Start, "faint", "full: within 10% of the truth; pale: within 15%");
    svg.finish()
}

/// Draws the share within 10%: as sampled, and after each change.
fn sensitivity(set: &str, members: &[&Verdict]) -> String {
    let mut svg =
        Svg::new(WIDTH, 372.0, &format!("{set}: samples with a frequency within 10%, after a change"));
    let scaling = if members.iter().any(|v| has_absolute(v)) { 0 } else { 2 };
    let panel =
        Panel { x: 52.0, y: 66.0, width: WIDTH - 92.0, height: 226.0, across: (0.0, 5.0), up: (0.0, 1.0) };
    panel.axes(&mut svg, SCALINGS[scaling], &[], &shares());
    let ten =
        |s: &crate::metrics::Shares| if scaling == 0 { s.abs.map(|w| w.0[1]) } else { Some(s.func.0[1]) };
    let average = |values: Vec<f64>| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let base = |name: &str| {
        let of = members.iter().flat_map(|v| &v.estimators).filter(|e| e.name == name);
        average(of.filter_map(|e| ten(&e.instructions)).collect())
    };
    let changed = |i: usize, of: fn(&Sensitivity) -> &crate::metrics::Shares| {
        average(members.iter().filter_map(|v| ten(of(v.sensitivity.get(i)?))).collect())
    };
    let mut groups = vec![("unchanged", [base("dwell"), base("clusters")])];
    for (i, s) in members[0].sensitivity.iter().enumerate() {
        groups.push((s.change, [changed(i, |s| &s.dwell), changed(i, |s| &s.clusters)]));
    }
    for (i, (name, both)) in groups.iter().enumerate() {
        for (colour, &share) in both.iter().enumerate() {
            let (x, y) = panel.at(i as f64 + 0.2 + 0.3 * colour as f64, share);
            svg.area(colour, "", (x, y), (panel.width / 5.0 * 0.28, panel.y + panel.height - y));
            let middle = x + panel.width / 5.0 * 0.14;
            svg.text(middle, y - 4.0, Anchor::Middle, "small", &format!("{:.0}", share * 100.0));
        }
        let (x, bottom) = panel.at(i as f64 + 0.5, 0.0);
        svg.text(x, bottom + 17.0, Anchor::Middle, "", name);
    }
    svg.legend((52.0, 350.0), &[(0, "dwell"), (1, "clusters, as in the paper")]);
    svg.finish()
}

/// Draws, of the cycles that each cause truly took, the shares for which it is listed, with its culprit, and with a
/// correct range.
fn culprits(set: &str, scores: &Scores) -> String {
    let mut causes: Vec<_> = scores.causes.iter().collect();
    causes.sort_by(|a, b| b.1.stalled.total_cmp(&a.1.stalled));
    let title = format!(
        "{set}: true causes of stalled cycles found; {:.2} causes listed, {:.1}% of all cycles unexplained",
        scores.of_stalled(scores.causes_times),
        scores.unexplained_of_cycles() * 100.0
    );
    let height = 116.0 + 44.0 * (causes.len() + 1) as f64;
    let mut svg = Svg::new(WIDTH, height, &title);
    let panel = Panel {
        x: 250.0,
        y: 62.0,
        width: WIDTH - 290.0,
        height: height - 120.0,
        across: (0.0, 1.0),
        up: (0.0, 1.0),
    };
    panel.axes(&mut svg, "", &shares(), &[]);
    let total =
        ("all".to_owned(), scores.stalled, [scores.cause_listed, scores.culprit_listed, scores.range_right]);
    let rows = causes
        .into_iter()
        .map(|(name, c)| (name.clone(), c.stalled, [c.cause_listed, c.culprit_listed, c.range_right]));
    for (i, (name, stalled, parts)) in std::iter::once(total).chain(rows).enumerate() {
        let y = 66.0 + 44.0 * i as f64;
        svg.text(236.0, y + 14.0, Anchor::End, "", &spaced(&name));
        let of = format!("{:.1}% of stalled cycles", scores.of_stalled(stalled) * 100.0);
        svg.text(236.0, y + 28.0, Anchor::End, "faint small", &of);
        for (k, part) in parts.iter().enumerate() {
            let share = part / stalled.max(f64::MIN_POSITIVE);
            svg.area([0, 2, 3][k], "", (panel.x, y + 11.0 * k as f64), (panel.width * share, 9.0));
        }
    }
    let legend = [(0, "cause listed"), (2, "with the true culprit"), (3, "its range contains the truth")];
    svg.legend((250.0, height - 16.0), &legend);
    svg.finish()
}

/// Splits a name into words: `DCacheMiss` → `D cache miss`.
fn spaced(name: &str) -> String {
    let mut words = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.extend(if words.is_empty() { vec![c] } else { c.to_lowercase().collect() });
    }
    words
}

/// Draws the counterpart of Figure 10: the true cycles that procedures lost to a cause, and the range attributed to it.
fn stalls(set: &str, scores: &Scores) -> String {
    let title = format!("{set}: lost cycles of functions, and the ranges in the analysis (DCPI's Figure 10)");
    let mut svg = Svg::new(WIDTH, 372.0, &title);
    let causes = [Cause::ICacheMiss, Cause::DCacheMiss, Cause::BranchMispredict];
    for (index, cause) in causes.into_iter().enumerate() {
        let of: Vec<_> =
            scores.attributed.iter().filter(|a| a.cause == cause && a.truth.max(a.high) >= FLOOR).collect();
        let largest = of.iter().fold(1e6, |m: f64, a| m.max(a.truth).max(a.high)).log10().ceil();
        let log = |x: f64| x.max(FLOOR).log10();
        let panel = Panel {
            x: 52.0 + index as f64 * 314.0,
            y: 66.0,
            width: 262.0,
            height: 240.0,
            across: (log(0.0), largest),
            up: (log(0.0), largest),
        };
        let ticks: Vec<(f64, String)> =
            (log(0.0) as i32..=largest as i32).map(|v| (f64::from(v), format!("10^{v}"))).collect();
        panel.axes(&mut svg, &spaced(&format!("{cause:?}")), &ticks, &ticks);
        svg.rule("axis", panel.at(log(0.0), log(0.0)), panel.at(largest, largest));
        for a in of {
            let (x, high) = panel.at(log(a.truth), log(a.high));
            let (_, low) = panel.at(log(a.truth), log(a.low));
            svg.line(index, "thin", &[(x, low.max(high + 1.0)), (x, high)]);
        }
    }
    let note = "horizontal: true cycles; vertical: range of attributed cycles; one line per function";
    svg.text(52.0, 352.0, Anchor::Start, "faint", note);
    svg.finish()
}

/// Values below this number of cycles are drawn on the axes.
const FLOOR: f64 = 1e3;
