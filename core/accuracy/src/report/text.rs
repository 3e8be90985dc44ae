//! Verdicts → a plain-text table: means of each set, then every program.

use std::fmt::Write;

use crate::{
    metrics::{self, Shares, Within},
    verdict::Verdict,
};

/// All tables.
pub fn render(verdicts: &[Verdict]) -> String {
    let mut text = String::new();
    for set in sets(verdicts) {
        let members: Vec<&Verdict> = verdicts.iter().filter(|v| v.set == set).collect();
        let _ = writeln!(text, "== {set}: mean over {} programs, % within 5 10 15 45 % ==", members.len());
        let _ = writeln!(text, "{}", heading());
        for name in estimators(&members) {
            let (instructions, edges) = means(&members, name);
            let _ = writeln!(text, "{}", line(name, &instructions, &edges));
        }
        let _ = writeln!(text);
        for verdict in &members {
            let unjudged = verdict.unjudged_share * 100.0;
            let _ = writeln!(
                text,
                "-- {}: {} samples, {unjudged:.1}% of them without a truth --",
                verdict.program, verdict.samples
            );
            for e in &verdict.estimators {
                let _ = writeln!(text, "{}", line(e.name, &e.instructions, &e.edges));
            }
            for note in &verdict.notes {
                let _ = writeln!(text, "   note: {note}");
            }
        }
        let _ = writeln!(text);
    }
    text
}

/// Names of the sets, sorted.
pub fn sets(verdicts: &[Verdict]) -> Vec<String> {
    let mut sets: Vec<String> = verdicts.iter().map(|v| v.set.clone()).collect();
    sets.sort();
    sets.dedup();
    sets
}

/// Names of the estimators that judged any of `members`, in their own order.
pub fn estimators(members: &[&Verdict]) -> Vec<&'static str> {
    let mut names: Vec<&'static str> = Vec::new();
    for name in members.iter().flat_map(|v| &v.estimators).map(|e| e.name) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Mean shares of one estimator over the programs that it could judge: instructions, edges.
pub fn means(members: &[&Verdict], name: &str) -> (Shares, Shares) {
    let of = || members.iter().flat_map(|v| &v.estimators).filter(|e| e.name == name);
    let instructions: Vec<Shares> = of().map(|e| e.instructions).collect();
    let edges: Vec<Shares> = of().map(|e| e.edges).collect();
    (metrics::mean(&instructions), metrics::mean(&edges))
}

fn heading() -> String {
    format!(
        "{:24}{:>16} {:>16} {:>16}   {:>10} {:>4} {:>4}",
        "", "absolute", "prog", "func", "edges10:abs", "prog", "func"
    )
}

fn line(name: &str, instructions: &Shares, edges: &Shares) -> String {
    let ten = |w: Option<Within>| w.map_or("-".to_owned(), |w| format!("{:.0}", w.0[1] * 100.0));
    format!(
        "{name:24}{} {} {}   {:>10} {:>4} {:>4}",
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
