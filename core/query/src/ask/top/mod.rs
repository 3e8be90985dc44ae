//! Request `top`: where the time goes, by procedure, image, line, application, dimension or data.

mod data;
mod dimensions;
mod request;
mod rows;

use dwell_image::ImageAddress;
use dwell_profile::ImageRecord;

pub use request::{Detail, Domain, TopBy, TopRequest};
pub(crate) use rows::image_notes;

use crate::{
    Cancel, Query, QueryError,
    analyse::procedures::{self, ProcedureSamples},
    answer::{Top, TopRow},
    ask::summary,
    load::merge::Places,
    parallel::in_parallel,
    query::{RowCost, View},
};

/// Number of ranked procedures whose analysis stays in the cache, since the user is likely to look at them next. The
/// analyses of a longer list would use too much memory.
const ROWS_KEPT: usize = 200;
impl Query {
    /// Returns where the time goes.
    pub fn top(&self, request: &TopRequest, cancel: &Cancel) -> Result<Top, QueryError> {
        let are_apart = matches!(request.by, TopBy::Instance | TopBy::Dimension(_));
        let places = match request.by {
            TopBy::Procedure | TopBy::Line | TopBy::Data => Places::Each,
            TopBy::Image | TopBy::App | TopBy::Instance | TopBy::Dimension(_) => Places::None,
        };
        let view = self.view_with(&request.epochs, &request.filter, are_apart, places)?;
        let selection = &view.selection;
        let candidates = match request.by {
            TopBy::Procedure => return self.top_procedures(&view, request, cancel),
            TopBy::Data => return data::top(selection, &self.store, request, cancel),
            TopBy::Image => rows::by_image(selection, request),
            TopBy::App => rows::by_app(selection, request, false),
            TopBy::Instance => rows::by_app(selection, request, true),
            TopBy::Dimension(dimension) => rows::by_dimension(selection, request, dimension)?,
            TopBy::Line => {
                let procedures = self.procedures(&view, cancel)?;
                let costs_of = |p: &ProcedureSamples| self.costs(&view, p);
                rows::by_line(selection, &self.store, procedures, request, &costs_of, cancel)?
            }
        };
        let end = request.limit.map(|n| n.saturating_add(request.offset));
        let (mut top, candidates) = rows::answer(selection, candidates, end);
        top.rows = candidates.into_iter().skip(request.offset).map(|candidate| candidate.row).collect();
        top.notes.extend(rows::image_notes(selection, &self.store, request));
        Ok(top)
    }

    fn top_procedures(&self, view: &View, request: &TopRequest, cancel: &Cancel) -> Result<Top, QueryError> {
        if let (Detail::Hottest | Detail::HottestWithCpi, Some(limit)) = (request.detail, request.limit) {
            return self.hottest_procedures(view, request, limit, cancel);
        }
        let ranked = rows::ranked(&view.selection, self.procedures(view, cancel)?, request);
        let (mut top, page) = rows::page(&view.selection, &ranked, request);
        let split = request.detail == Detail::FullWithCycles;
        top.rows = match request.detail {
            Detail::Samples => page.into_iter().map(|(.., row)| row).collect(),
            _ => in_parallel(&page, |(at, procedure, row)| {
                cancel.check().ok()?;
                Some(self.row_with_cost(view, procedure, row.clone(), *at < ROWS_KEPT, split))
            }),
        };
        cancel.check()?;
        top.notes.extend(rows::image_notes(&view.selection, &self.store, request));
        top.notes.extend(view.stored.note());
        Ok(top)
    }

    /// Returns the rows of a table that is read once. Only the images' symbols and the names of the rows are read for it.
    fn hottest_procedures(
        &self,
        view: &View,
        request: &TopRequest,
        limit: usize,
        cancel: &Cancel,
    ) -> Result<Top, QueryError> {
        let takes = |record: &ImageRecord| request.takes(record);
        let hottest = procedures::hottest(&view.selection, &self.store, &takes, limit, cancel)?;
        let candidate = |p| rows::by_procedure(&view.selection, p);
        let candidates = hottest.procedures.into_iter().map(candidate).collect();
        let (mut top, candidates) = rows::answer(&view.selection, candidates, Some(limit));
        top.omitted_rows += hottest.others;
        let with_cpi = request.detail == Detail::HottestWithCpi || rows::tells_executions(&view.selection);
        for (at, candidate) in candidates.into_iter().enumerate() {
            cancel.check()?;
            top.rows.push(match candidate.procedure.filter(|_| with_cpi) {
                Some(procedure) => self.row_with_cost(view, &procedure, candidate.row, at < ROWS_KEPT, false),
                None => candidate.row,
            });
        }
        top.notes.extend(hottest.notes);
        top.notes.extend(view.stored.note());
        Ok(top)
    }

    /// Adds the columns that need an analysis: the line that the procedure begins at, its CPI and, if requested, its cycles
    /// by cause. If `keep` is set, the analysis stays in the cache.
    fn row_with_cost(
        &self,
        view: &View,
        procedure: &ProcedureSamples,
        row: TopRow,
        keep: bool,
        split: bool,
    ) -> TopRow {
        let Some(address) = procedure.address else { return row };
        let key = (procedure.image, address.0);
        let cost = view.rows.get(&key, || self.row_cost(view, procedure, address, keep), |_| 1);
        let (file, line) = cost.place.as_ref().map_or((None, None), |(f, l)| (Some(f.to_string()), Some(*l)));
        let row = TopRow { file, line, split: cost.split.filter(|_| split), ..row };
        rows::with_cpi(row, cost.totals.as_ref())
    }

    fn row_cost(
        &self,
        view: &View,
        procedure: &ProcedureSamples,
        address: ImageAddress,
        keep: bool,
    ) -> RowCost {
        let costs = if keep { self.costs(view, procedure) } else { self.costs_once(view, procedure) };
        let found = self.store.find(&view.selection.images[procedure.image].record);
        let place = match &found.image {
            Ok(image) => image.procedure_line(address),
            Err(_) => procedure.points.first().and_then(|&point| {
                let samples = &view.selection.images[procedure.image];
                procedures::begin_of(&samples.record, samples.points.offset(point as usize))
            }),
        };
        // Of a stored analysis the first instruction tells the place.
        let stored = costs.as_ref().filter(|costs| costs.image.is_none());
        let place = place.or_else(|| stored?.lines.first()?.clone());
        let totals = costs.as_ref().map(|c| c.all_totals());
        RowCost { place, totals, split: costs.and_then(|c| summary::split(&c)) }
    }
}
