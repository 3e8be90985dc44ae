//! Verdicts → plain-text tables: the means of each set, then every program.

use std::fmt::Write;

use dwell_analysis::Cause;

use crate::{
    culprits::{self, Scores},
    metrics::{self, Shares, Within},
    reliability::Reliability,
    sensitivity::Sensitivity,
    verdict::{Reliabilities, Verdict},
};

/// Renders all tables.
pub fn render(verdicts: &[Verdict]) -> String {
    let mut text = String::new();
    for set in sets(verdicts) {
        let members: Vec<&Verdict> = verdicts.iter().filter(|v| v.set == set).collect();
        let _ = writeln!(
            text,
            "== {set}: mean over {} programs, % within 5, 10, 15 and 45 %; (n): mean over n programs ==",
            members.len()
        );
        let _ = writeln!(text, "{}", heading());
        for name in estimators(&members) {
            let (instructions, edges) = means(&members, name);
            let programs = members.iter().filter(|v| v.estimators.iter().any(|e| e.name == name)).count();
            let few = if programs < members.len() { format!(" ({programs})") } else { String::new() };
            let _ = writeln!(text, "{}", line(&format!("{name}{few}"), &instructions, &edges));
        }
        reliability(&mut text, &members);
        culprits(&mut text, &members);
        sensitivity(&mut text, &members);
        let _ = writeln!(text);
        for verdict in &members {
            let unjudged = verdict.unjudged_share * 100.0;
            let _ = writeln!(
                text,
                "-- {}: {} samples, {unjudged:.1}% of them without a known truth --",
                verdict.program, verdict.samples
            );
            for e in &verdict.estimators {
                let _ = writeln!(text, "{}", line(e.name, &e.instructions, &e.edges));
            }
            if let Some(scores) = &verdict.culprits {
                let _ = writeln!(text, "   culprits: {}", score(scores));
            }
            if let Some(expected) = &verdict.expected {
                let met = expected.all - expected.unmet.len();
                let _ =
                    writeln!(text, "   expected: {met} of {} found{}", expected.all, unmet(&expected.unmet));
            }
            for note in &verdict.notes {
                let _ = writeln!(text, "   note: {note}");
            }
        }
        let _ = writeln!(text);
    }
    text
}

fn unmet(expected: &[String]) -> String {
    if expected.is_empty() { String::new() } else { format!("; not {}", expected.join(", ")) }
}

fn sensitivity(text: &mut String, members: &[&Verdict]) {
    let _ =
        writeln!(text, "\nsensitivity: {}", heading().trim_start().trim_end_matches("edges10:abs prog func"));
    let changes: Vec<&'static str> = members[0].sensitivity.iter().map(|s| s.change).collect();
    for (index, change) in changes.into_iter().enumerate() {
        for (name, of) in
            [("dwell", (|s| s.dwell) as fn(&Sensitivity) -> Shares), ("clusters", |s| s.clusters)]
        {
            let all: Vec<Shares> = members.iter().map(|v| of(&v.sensitivity[index])).collect();
            let mean = metrics::mean(&all);
            let _ = writeln!(
                text,
                "{:30}{} {} {}",
                format!("{change}: {name}"),
                four(mean.abs),
                four(Some(mean.prog)),
                four(Some(mean.func))
            );
        }
    }
}

fn reliability(text: &mut String, members: &[&Verdict]) {
    let own: Vec<&Reliabilities> = members.iter().map(|v| &v.reliability).collect();
    let counted: Vec<&Reliabilities> =
        members.iter().filter_map(|v| v.reliability_counted.as_ref()).collect();
    levels(text, "reliability", &own);
    if !counted.is_empty() {
        levels(text, "reliability with samples of instructions", &counted);
    }
}

/// Renders the share of samples of each level, and how many of those are right.
fn levels(text: &mut String, title: &str, programs: &[&Reliabilities]) {
    let kinds: [(&str, Vec<Reliability>); 3] = [
        ("absolute", programs.iter().filter_map(|r| r.abs).collect()),
        ("prog", programs.iter().map(|r| r.prog).collect()),
        ("func", programs.iter().map(|r| r.func).collect()),
    ];
    let _ = writeln!(text, "\n{title}: % of the samples, and the % of these within 10 and 15 %");
    for (kind, all) in kinds.iter().filter(|(_, all)| !all.is_empty()) {
        let mean = Reliability::mean(all);
        let mut line = format!("{kind:10}");
        for (name, level) in ["low", "medium", "high"].iter().zip(mean.0) {
            let of = |x: f64| if level.samples > 0.0 { x / level.samples * 100.0 } else { f64::NAN };
            let _ = write!(
                line,
                "  {name} {:3.0}: {:5.1} {:5.1}",
                level.samples * 100.0,
                of(level.within_10),
                of(level.within_15)
            );
        }
        let low = mean.wrong_that_are_low().map_or("-".into(), |x| format!("{:.0}%", x * 100.0));
        let _ = writeln!(text, "{line}   of those wrong by > 15%, {low} are low");
    }
}

fn culprits(text: &mut String, members: &[&Verdict]) {
    let kinds = [
        ("culprits", Scores::mean(members.iter().filter_map(|v| v.culprits.as_ref()))),
        (
            "culprits, with samples of misses",
            Scores::mean(members.iter().filter_map(|v| v.culprits_by_events.as_ref())),
        ),
    ];
    for (name, scores) in kinds.iter().filter(|(_, s)| s.stalled > 0.0) {
        let _ = writeln!(text, "\n{name}, % of dynamically stalled cycles: {}", score(scores));
        for (cause, of) in &scores.causes {
            let part = |x: f64| x / of.stalled.max(f64::MIN_POSITIVE) * 100.0;
            let _ = writeln!(
                text,
                "  {cause:18}{:5.1} of the cycles: cause listed {:5.1}, with culprit {:5.1}, range right {:5.1}",
                scores.of_stalled(of.stalled) * 100.0,
                part(of.cause_listed),
                part(of.culprit_listed),
                part(of.range_right),
            );
        }
        if scores.leveled > 0.0 {
            let (listed, times) =
                (scores.level_listed / scores.leveled, scores.levels_times / scores.leveled);
            let _ = writeln!(
                text,
                "  levels of data misses with culprit: listed {:.1}; levels {times:.2}",
                listed * 100.0
            );
        }
        for cause in [Cause::ICacheMiss, Cause::DCacheMiss, Cause::BranchMispredict] {
            if let Some((n, [low, high, middle])) = culprits::correlations(&scores.attributed, cause) {
                let _ = writeln!(
                    text,
                    "  {cause:?} cycles of {n} functions correlate with the lower bound {low:.2}, upper bound {high:.2}, middle {middle:.2}"
                );
            }
        }
    }
}

fn score(scores: &Scores) -> String {
    let percent = |sum: f64| scores.of_stalled(sum) * 100.0;
    format!(
        "cause listed {:.1}, with culprit {:.1}, range right {:.1}; causes {:.2}, suspects {:.2}; not reported {:.1}; \
         unexplained {:.1}% of all cycles; {:.1}% of stalled cycles left out",
        percent(scores.cause_listed),
        percent(scores.culprit_listed),
        percent(scores.range_right),
        scores.of_stalled(scores.causes_times),
        scores.of_stalled(scores.suspects_times),
        percent(scores.unreported),
        scores.unexplained_of_cycles() * 100.0,
        scores.left_out / (scores.left_out + scores.stalled).max(f64::MIN_POSITIVE) * 100.0,
    )
}

/// Returns the names of the sets, sorted.
pub fn sets(verdicts: &[Verdict]) -> Vec<String> {
    let mut sets: Vec<String> = verdicts.iter().map(|v| v.set.clone()).collect();
    sets.sort();
    sets.dedup();
    sets
}

/// Returns the names of the estimators that judged any of `members`, in the order of the program that lists most.
pub fn estimators(members: &[&Verdict]) -> Vec<&'static str> {
    let mut by_length: Vec<&&Verdict> = members.iter().collect();
    by_length.sort_by_key(|v| std::cmp::Reverse(v.estimators.len()));
    let mut names: Vec<&'static str> = Vec::new();
    for name in by_length.iter().flat_map(|v| &v.estimators).map(|e| e.name) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Returns the mean shares of one estimator over the programs that it could judge: instructions, edges.
pub fn means(members: &[&Verdict], name: &str) -> (Shares, Shares) {
    let of = || members.iter().flat_map(|v| &v.estimators).filter(|e| e.name == name);
    let instructions: Vec<Shares> = of().map(|e| e.instructions).collect();
    let edges: Vec<Shares> = of().map(|e| e.edges).collect();
    (metrics::mean(&instructions), metrics::mean(&edges))
}

fn heading() -> String {
    format!(
        "{:26}{:>16} {:>16} {:>16}   {:>10} {:>4} {:>4}",
        "", "absolute", "prog", "func", "edges10:abs", "prog", "func"
    )
}

fn line(name: &str, instructions: &Shares, edges: &Shares) -> String {
    let ten = |w: Option<Within>| w.map_or("-".to_owned(), |w| format!("{:.0}", w.0[1] * 100.0));
    format!(
        "{name:26}{} {} {}   {:>10} {:>4} {:>4}",
        four(instructions.abs),
        four(Some(instructions.prog)),
        four(Some(instructions.func)),
        ten(edges.abs),
        ten(Some(edges.prog)),
        ten(Some(edges.func)),
    )
}

fn four(within: Option<Within>) -> String {
    match within {
        Some(w) => w.0.iter().map(|x| format!("{:4.0}", x * 100.0)).collect(),
        None => format!("{:>16}", "-"),
    }
}
