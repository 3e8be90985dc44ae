//! Compares the instructions of one procedure on both sides of a change.
//!
//! Input: a procedure that was analysed on both sides. Output: its aligned instructions, each with its change.

use super::{
    align::align,
    sides::{Row, Sides},
};
use crate::{
    analyse::{costs::ProcedureCosts, significance::false_discovery_rates},
    answer::{DiffInstruction, DiffPlace},
};

/// Returns every instruction of both sides once, with its change.
pub fn compare_instructions(sides: &Sides, row: &Row) -> Vec<DiffInstruction> {
    let [a, b] = [0, 1].map(|i| row.costs[i].as_deref());
    let of = |costs: Option<&ProcedureCosts>| costs.map_or_else(Vec::new, |c| c.instructions.clone());
    let mut rows: Vec<DiffInstruction> = align(&of(a), &of(b))
        .into_iter()
        .map(|pair| {
            let (a, b) = (a.zip(pair.a), b.zip(pair.b));
            let samples = |at: Option<(&ProcedureCosts, usize)>| {
                at.map_or(0.0, |(c, i)| c.analysis.instructions[i].head_samples)
            };
            let totals = |at: Option<(&ProcedureCosts, usize)>| at.map(|(c, i)| c.totals([i]));
            let kind = match (pair.a, pair.b) {
                (Some(_), Some(_)) if pair.same => "same",
                (Some(_), Some(_)) => "edited",
                (Some(_), None) => "removed",
                (None, _) => "added",
            };
            DiffInstruction {
                a: a.map(|(c, i)| place(c, i)),
                b: b.map(|(c, i)| place(c, i)),
                kind: kind.to_owned(),
                change: sides.change_of_part(samples(a), samples(b), &row.compared),
                factors: sides.factors(totals(a).as_ref(), totals(b).as_ref()),
            }
        })
        .collect();
    let p: Vec<f64> = rows.iter().map(|r| r.change.p).collect();
    for (row, rate) in rows.iter_mut().zip(false_discovery_rates(&p)) {
        row.change.judge(rate);
    }
    rows
}

fn place(costs: &ProcedureCosts, i: usize) -> DiffPlace {
    let (file, line) = costs.lines[i].clone().map_or((None, None), |(f, l)| (Some(f.to_string()), Some(l)));
    DiffPlace {
        address: costs.instructions[i].address.0,
        text: costs.instructions[i].text.to_string(),
        file,
        line,
    }
}
