//! Reports of verdicts: tables, pictures, JSON.

pub mod pictures;
pub mod svg;
pub mod text;

use serde::Serialize;

use crate::{metrics::Shares, verdict::Verdict};

/// Returns all verdicts and the means of their sets as one object.
pub fn json(verdicts: &[Verdict]) -> serde_json::Result<String> {
    let report = Report { schema: 1, means: means(verdicts), programs: verdicts };
    Ok(serde_json::to_string_pretty(&report)? + "\n")
}

#[derive(Serialize)]
struct Report<'a> {
    schema: u32,
    means: Vec<Mean>,
    programs: &'a [Verdict],
}

/// The mean of one estimator over a set.
#[derive(Serialize)]
struct Mean {
    set: String,
    estimator: &'static str,
    programs: usize,
    instructions: Shares,
    edges: Shares,
}

fn means(verdicts: &[Verdict]) -> Vec<Mean> {
    let mut means = Vec::new();
    for set in text::sets(verdicts) {
        let members: Vec<&Verdict> = verdicts.iter().filter(|v| v.set == set).collect();
        for estimator in text::estimators(&members) {
            let (instructions, edges) = text::means(&members, estimator);
            means.push(Mean { set: set.clone(), estimator, programs: members.len(), instructions, edges });
        }
    }
    means
}
