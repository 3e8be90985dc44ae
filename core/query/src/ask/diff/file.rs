//! Compares one source file on both sides of a change, by the lines of its current text.
//!
//! Input: a file. Output: its lines and procedures with their changes, as an editor shows them beside the text. Both sides
//! use line numbers of the current text, so a line that moved between the builds is one line. A line of either side that is
//! not in the current text is left out. Cost: the analysis of the procedures that the file was compiled into.

use std::{collections::BTreeMap, path::Path};

use super::sides::{DiffRequest, Row, Sides, name_of};
use crate::{
    Cancel, Query, QueryError,
    analyse::{
        significance::{Comparison, false_discovery_rates},
        totals::Totals,
    },
    answer::{FileChanges, LineChange, ProcedureChange},
    ask::stats::Name,
};

/// Totals of a line on both sides, and the comparison of the line's procedure that varies most between runs.
#[derive(Default)]
struct LineSums {
    totals: [Option<Totals>; 2],
    whole: Option<Comparison>,
}

impl Query {
    /// Returns what changed from A to B in the source file at `path`. Only the sides and the normalization of `request` are
    /// used.
    pub fn file_changes(
        &self,
        request: &DiffRequest,
        path: &Path,
        cancel: &Cancel,
    ) -> Result<FileChanges, QueryError> {
        let sides = self.sides(request, cancel)?;
        Ok(FileChanges {
            schema: 1,
            a: sides.a.answer(),
            b: sides.b.answer(),
            exposure: sides.exposure,
            lines: self.changed_lines(&sides, path, cancel)?,
            procedures: self.changed_procedures(&sides, path, cancel)?,
            notes: sides.notes(&self.store),
        })
    }

    fn changed_lines(
        &self,
        sides: &Sides,
        path: &Path,
        cancel: &Cancel,
    ) -> Result<Vec<LineChange>, QueryError> {
        let mut sums: BTreeMap<u32, LineSums> = BTreeMap::new();
        for (which, side) in [&sides.a, &sides.b].into_iter().enumerate() {
            let procedures = self.procedures(&side.view, cancel)?;
            let file = self.source_file(&side.view, path, cancel)?;
            for (p, of, costs) in file.analysed(self, &side.view, procedures, cancel)? {
                let name = name_of(&side.view, &procedures[p]);
                let compared = sides.change(sides.a.counts(&name), sides.b.counts(&name)).1;
                for (i, place) in costs.lines.iter().enumerate() {
                    let here = place.as_ref().filter(|(file, _)| **file == *of.file);
                    let Some(line) = here.and_then(|(_, built)| of.map.now(*built)) else { continue };
                    let sum = sums.entry(line).or_default();
                    sum.totals[which].get_or_insert_default().add(&costs.totals([i]));
                    let steadier = sum.whole.is_some_and(|c| c.dispersion >= compared.dispersion);
                    sum.whole = if steadier { sum.whole } else { Some(compared) };
                }
            }
        }
        let seen = |t: &Option<Totals>| t.is_some_and(|t| t.head_samples >= 0.5);
        sums.retain(|_, s| s.totals.iter().any(seen));
        let mut lines: Vec<LineChange> =
            sums.into_iter().map(|(line, s)| line_change(sides, line, &s)).collect();
        let p: Vec<f64> = lines.iter().map(|l| l.change.p).collect();
        lines.iter_mut().zip(false_discovery_rates(&p)).for_each(|(l, rate)| l.change.judge(rate));
        Ok(lines)
    }

    fn changed_procedures(
        &self,
        sides: &Sides,
        path: &Path,
        cancel: &Cancel,
    ) -> Result<Vec<ProcedureChange>, QueryError> {
        let mut begins: BTreeMap<Name, u32> = BTreeMap::new();
        for side in [&sides.a, &sides.b] {
            let procedures = self.procedures(&side.view, cancel)?;
            for (line, p) in self.source_file(&side.view, path, cancel)?.begins {
                // Where both sides know the line, that of B is used.
                begins.insert(name_of(&side.view, &procedures[p]), line);
            }
        }
        let mut procedures = Vec::new();
        for (name, line) in begins {
            cancel.check()?;
            let sampled = [sides.a.procedures.get(&name), sides.b.procedures.get(&name)];
            let mut row = Row::new(sides, name, sampled[0], sampled[1]);
            row.analyse(self, sides);
            let answer = row.answer(sides);
            procedures.push(ProcedureChange {
                procedure: answer.procedure,
                line,
                change: answer.change,
                factors: answer.factors,
            });
        }
        let p: Vec<f64> = procedures.iter().map(|l| l.change.p).collect();
        procedures.iter_mut().zip(false_discovery_rates(&p)).for_each(|(l, rate)| l.change.judge(rate));
        procedures.sort_by_key(|p| p.line);
        Ok(procedures)
    }
}

fn line_change(sides: &Sides, line: u32, sums: &LineSums) -> LineChange {
    let [a, b] = &sums.totals;
    let samples = |t: &Option<Totals>| t.map_or(0.0, |t| t.head_samples);
    let whole = sums.whole.unwrap_or(Comparison { ratio: None, dispersion: None, p: 1.0 });
    LineChange {
        line,
        change: sides.change_of_part(samples(a), samples(b), &whole),
        factors: sides.factors(a.as_ref(), b.as_ref()),
    }
}
