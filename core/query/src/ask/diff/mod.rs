//! Request `diff`: what changed between two profiles, by procedure, line and instruction (DCPI §3, dcpidiff).
//!
//! Input: two sets of epochs. Output: how samples changed, whether the change is more than chance (see
//! [`significance`](crate::analyse::significance)), and cost (CPI) separate from count (executions). A change that noise may
//! explain is never shown as a change. Cost: the analysis of the procedures that changed, on both sides.

mod align;
mod file;
mod instructions;
mod lines;
mod sides;

use crate::{Cancel, Query, QueryError, analyse::procedure_names, answer::Diff, ask::stats::Normalize};

pub use sides::DiffRequest;
use sides::{ComparedProfile, Row, Sides, name_of};

/// Number of procedures, those that changed most, whose lines are compared.
const PROCEDURES_WITH_LINES_MAX: usize = 50;

impl Query {
    /// Returns what changed from A to B.
    pub fn diff(&self, request: &DiffRequest, cancel: &Cancel) -> Result<Diff, QueryError> {
        let sides = self.sides(request, cancel)?;
        let mut rows = match &request.procedure {
            Some(name) => vec![self.row_of(&sides, name)?],
            None => sides.rows(),
        };
        let insignificant_procedures =
            keep_significant(&mut rows, request.all || request.procedure.is_some());
        let mut lines = lines::Lines::new(&sides);
        for row in rows.iter_mut().take(request.limit.unwrap_or(usize::MAX).max(PROCEDURES_WITH_LINES_MAX)) {
            cancel.check()?;
            row.analyse(self, &sides);
            lines.add(row);
        }
        let (mut lines, insignificant_lines) = lines.finish(self, request.all);
        let instructions = match &request.procedure {
            Some(_) => instructions::compare_instructions(&sides, &rows[0]),
            None => Vec::new(),
        };
        let limit = request.limit.unwrap_or(usize::MAX);
        let omitted_rows = rows.len().saturating_sub(limit) + lines.len().saturating_sub(limit);
        rows.truncate(limit);
        lines.truncate(limit);
        Ok(Diff {
            schema: 1,
            a: sides.a.answer(),
            b: sides.b.answer(),
            normalized_by: match &request.normalize {
                Normalize::Run => "run".to_owned(),
                Normalize::Time => "time".to_owned(),
                Normalize::Samples => "samples".to_owned(),
                Normalize::Procedure(name) => name.clone(),
            },
            exposure: sides.exposure,
            total: sides.change(sides.a.totals(), sides.b.totals()).0,
            procedures: rows.iter().map(|r| r.answer(&sides)).collect(),
            lines,
            instructions,
            insignificant_procedures,
            insignificant_lines,
            omitted_rows,
            notes: sides.notes(&self.store),
        })
    }

    /// Returns the row of one procedure. Its name on either side finds it on both sides.
    fn row_of(&self, sides: &Sides, name: &str) -> Result<Row, QueryError> {
        let find = |side: &ComparedProfile| {
            let all = self.procedures(&side.view, &Cancel::new())?;
            procedure_names::by_name(&side.view.selection, &self.store, all, name)
        };
        let (a, b) = (find(&sides.a), find(&sides.b));
        let (a, b) = match (a, b) {
            (Err(QueryError::NoProcedure { .. }), Ok(b)) => (None, Some(b)),
            (Ok(a), Err(QueryError::NoProcedure { .. })) => (Some(a), None),
            (a, b) => (Some(a?), Some(b?)),
        };
        let key = b.as_ref().map(|p| name_of(&sides.b.view, p));
        let key = key.or_else(|| a.as_ref().map(|p| name_of(&sides.a.view, p)));
        let key = key.expect("one of them was found");
        Ok(Row::new(sides, key, a.as_ref(), b.as_ref()))
    }
}

/// Removes the rows that may be chance, unless `all` is set. Returns the number of such rows in both cases.
fn keep_significant(rows: &mut Vec<Row>, all: bool) -> usize {
    let before = rows.iter().filter(|r| !r.change.significant).count();
    if !all {
        rows.retain(|r| r.change.significant);
    }
    before
}
