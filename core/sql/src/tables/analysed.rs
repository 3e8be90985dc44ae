//! Tables of analysed procedures: `instructions`, `stalls`, `blocks`, `edges`, `analyses`. Each row is a part of what `dwell
//! annotate` returns, or all that it is made from.
//!
//! Cost: the analysis of each sampled procedure that the statement selects, a few at a time.

use std::{cell::RefCell, collections::BTreeMap, sync::Arc, vec};

use dwell_profile::{ImageId, ImageRecord};
use dwell_query::{
    AnalysedProcedure, Cancel, Query, SampledProcedure,
    answer::{Listing, ListingInstruction, ListingStall},
};

use super::{Context, address, count, double, text};
use crate::{
    duckdb::{Cell, CellRows, Column},
    selected::Selection,
};

/// Number of procedures that are analysed at once, on all processors.
const BATCH: usize = 64;

pub const INSTRUCTIONS: &[(&str, Column)] = &[
    ("epoch", Column::Text),
    ("image", Column::Text),
    ("procedure", Column::Text),
    ("address", Column::Integer),
    ("text", Column::Text),
    ("samples", Column::Integer),
    ("executions", Column::Double),
    ("executions_min", Column::Double),
    ("executions_max", Column::Double),
    ("cpi", Column::Double),
    ("cpi_min", Column::Double),
    ("cpi_max", Column::Double),
    ("executions_relative", Column::Double),
    ("head_samples", Column::Double),
    ("issue_cycles_min", Column::Double),
    ("confidence", Column::Text),
    ("scale", Column::Text),
    ("demangled", Column::Text),
    ("file", Column::Text),
    ("line", Column::Integer),
];

pub fn instructions(
    context: &Arc<Context>,
    selections: Vec<Selection>,
    cancel: Cancel,
    _: &[bool],
) -> Result<CellRows, String> {
    Ok(each_procedure(context, selections, cancel, "instructions", |query, sampled| {
        rows_of_listings(query, sampled, |listing| {
            let key = key(&listing);
            let (demangled, scale) =
                (text(&listing.procedure.demangled), text(kebab(format!("{:?}", listing.scale.kind))));
            let row = |i: &ListingInstruction| {
                let values = [
                    address(i.address),
                    text(&i.text),
                    count(i.samples.get(&listing.time_event).copied().unwrap_or(0)),
                    double(i.executions),
                    double(i.executions_min),
                    double(i.executions_max),
                    double(i.cpi),
                    Cell::Double(i.cpi_min),
                    double(i.cpi_max),
                    double(i.executions_relative),
                    Cell::Double(i.head_samples),
                    Cell::Double(i.issue_cycles_min),
                    text(kebab(format!("{:?}", i.confidence))),
                    scale.clone(),
                    demangled.clone(),
                    i.file.as_ref().map_or(Cell::Null, text),
                    i.line.map_or(Cell::Null, |line| Cell::Integer(line.into())),
                ];
                key.iter().cloned().chain(values).collect()
            };
            listing.instructions.iter().map(row).collect()
        })
    }))
}

pub const STALLS: &[(&str, Column)] = &[
    ("epoch", Column::Text),
    ("image", Column::Text),
    ("procedure", Column::Text),
    ("address", Column::Integer),
    ("kind", Column::Text),
    ("cause", Column::Text),
    ("cycles_min", Column::Double),
    ("cycles_max", Column::Double),
    ("share_min", Column::Double),
    ("share_max", Column::Double),
    ("culprit", Column::Integer),
];

pub fn stalls(
    context: &Arc<Context>,
    selections: Vec<Selection>,
    cancel: Cancel,
    _: &[bool],
) -> Result<CellRows, String> {
    Ok(each_procedure(context, selections, cancel, "stalls", |query, sampled| {
        rows_of_listings(query, sampled, |listing| {
            let key = key(&listing);
            let row = |(at, stall): (u64, &ListingStall)| {
                let values = [
                    address(at),
                    text(kebab(format!("{:?}", stall.kind))),
                    text(&stall.cause),
                    Cell::Double(stall.cycles_min),
                    Cell::Double(stall.cycles_max),
                    Cell::Double(stall.share_min),
                    Cell::Double(stall.share_max),
                    stall.culprit_address.map_or(Cell::Null, address),
                ];
                key.iter().cloned().chain(values).collect()
            };
            let stalls = listing.instructions.iter().flat_map(|i| i.stalls.iter().map(|s| (i.address, s)));
            stalls.map(row).collect()
        })
    }))
}

pub const BLOCKS: &[(&str, Column)] = &[
    ("epoch", Column::Text),
    ("image", Column::Text),
    ("procedure", Column::Text),
    ("address", Column::Integer),
    ("executions", Column::Double),
    ("executions_min", Column::Double),
    ("executions_max", Column::Double),
    ("executions_relative", Column::Double),
    ("cpi", Column::Double),
    ("cpi_min", Column::Double),
    ("cpi_max", Column::Double),
    ("best_case_cpi", Column::Double),
    ("confidence", Column::Text),
];

pub fn blocks(
    context: &Arc<Context>,
    selections: Vec<Selection>,
    cancel: Cancel,
    _: &[bool],
) -> Result<CellRows, String> {
    Ok(each_procedure(context, selections, cancel, "blocks", |query, sampled| {
        rows_of_listings(query, sampled, |listing| {
            let key = key(&listing);
            let row = |block: &dwell_query::answer::ListingBlock| {
                let values = [
                    address(block.address),
                    double(block.executions),
                    double(block.executions_min),
                    double(block.executions_max),
                    double(block.executions_relative),
                    double(block.cpi),
                    Cell::Double(block.cpi_min),
                    double(block.cpi_max),
                    Cell::Double(block.best_case_cpi),
                    text(kebab(format!("{:?}", block.confidence))),
                ];
                key.iter().cloned().chain(values).collect()
            };
            listing.blocks.iter().map(row).collect()
        })
    }))
}

pub const EDGES: &[(&str, Column)] = &[
    ("epoch", Column::Text),
    ("image", Column::Text),
    ("procedure", Column::Text),
    ("from_address", Column::Integer),
    ("to_address", Column::Integer),
    ("executions", Column::Double),
    ("executions_relative", Column::Double),
];

pub fn edges(
    context: &Arc<Context>,
    selections: Vec<Selection>,
    cancel: Cancel,
    _: &[bool],
) -> Result<CellRows, String> {
    Ok(each_procedure(context, selections, cancel, "edges", |query, sampled| {
        rows_of_listings(query, sampled, |listing| {
            let key = key(&listing);
            let mut rows = Vec::new();
            for block in &listing.blocks {
                for edge in &block.successors {
                    let values = [
                        address(block.address),
                        address(edge.to),
                        double(edge.executions),
                        double(edge.executions_relative),
                    ];
                    rows.push(key.iter().cloned().chain(values).collect());
                }
            }
            rows
        })
    }))
}

pub const ANALYSES: &[(&str, Column)] = &[
    ("epoch", Column::Text),
    ("image", Column::Text),
    ("procedure", Column::Text),
    ("start", Column::Integer),
    ("analysis", Column::Text),
];

pub fn analyses(
    context: &Arc<Context>,
    selections: Vec<Selection>,
    cancel: Cancel,
    _: &[bool],
) -> Result<CellRows, String> {
    Ok(each_procedure(context, selections, cancel, "analyses", |query, sampled| {
        let row = |of: AnalysedProcedure| {
            vec![
                text(of.epoch),
                text(of.image.as_str()),
                text(of.procedure),
                address(of.start.0),
                text(of.analysis),
            ]
        };
        query.analyses_of_sampled(sampled).into_iter().map(row).collect()
    }))
}

/// Computes the rows of some procedures.
type RowsOf = fn(&Query, &[SampledProcedure]) -> Vec<Vec<Cell>>;

fn rows_of_listings(
    query: &Query,
    sampled: &[SampledProcedure],
    rows_of: impl FnMut(Listing) -> Vec<Vec<Cell>>,
) -> Vec<Vec<Cell>> {
    query.listings_of_sampled(sampled).into_iter().flat_map(rows_of).collect()
}

/// Returns the cells that name a procedure: epoch, image, linkage name.
fn key(listing: &Listing) -> [Cell; 3] {
    [text(&listing.epoch), text(&listing.image.build_id), text(&listing.procedure.name)]
}

/// Returns the name of a variant as JSON spells it.
fn kebab(variant: String) -> String {
    variant.to_lowercase()
}

/// Returns the rows of each procedure that any of the selections takes.
fn each_procedure(
    context: &Arc<Context>,
    selections: Vec<Selection>,
    cancel: Cancel,
    table: &'static str,
    rows_of: RowsOf,
) -> CellRows {
    let epochs = context.epochs_taken(&selections);
    Box::new(AnalysedRows {
        context: context.clone(),
        selections,
        cancel,
        table,
        rows_of,
        epochs: epochs.into_iter(),
        procedures: Vec::new().into_iter(),
        rows: Vec::new().into_iter(),
    })
}

/// The rows of a scan: those of the last batch, and the procedures and epochs that follow.
struct AnalysedRows {
    context: Arc<Context>,
    selections: Vec<Selection>,
    cancel: Cancel,
    /// The table, whose stored rows are left out.
    table: &'static str,
    rows_of: RowsOf,
    epochs: vec::IntoIter<usize>,
    procedures: vec::IntoIter<SampledProcedure>,
    rows: vec::IntoIter<Vec<Cell>>,
}

impl Iterator for AnalysedRows {
    type Item = Result<Vec<Cell>, String>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(row) = self.rows.next() {
                return Some(Ok(row));
            }
            if let Err(error) = self.cancel.check() {
                return Some(Err(error.to_string()));
            }
            let batch: Vec<SampledProcedure> = self.procedures.by_ref().take(BATCH).collect();
            if batch.is_empty() {
                let epoch = self.epochs.next()?;
                match self.procedures_of(epoch) {
                    Ok(procedures) => self.procedures = procedures.into_iter(),
                    Err(error) => return Some(Err(error)),
                }
                continue;
            }
            self.rows = (self.rows_of)(&self.context.query, &batch).into_iter();
        }
    }
}

impl AnalysedRows {
    fn procedures_of(&self, at: usize) -> Result<Vec<SampledProcedure>, String> {
        let epoch = &self.context.epochs[at];
        let is_latest = Some(at) == super::latest(&self.context.epochs);
        let own: Vec<&Selection> =
            self.selections.iter().filter(|s| s.takes_epoch(epoch, is_latest)).collect();
        // The images without stored rows that any of the selections takes: without the code, no procedure may have the wanted name.
        let images: RefCell<BTreeMap<ImageId, Option<ImageRecord>>> = RefCell::default();
        let takes = |record: &ImageRecord, name: &str, demangled: &str| {
            let mut images = images.borrow_mut();
            let is_taken = || {
                let is_wanted = own.iter().any(|s| s.takes_image(record));
                (is_wanted && !self.context.stored.has(self.table, &epoch.id, &record.id))
                    .then(|| record.clone())
            };
            let taken = images.entry(record.id.clone()).or_insert_with(is_taken);
            taken.is_some() && own.iter().any(|s| s.takes_procedure(name, demangled) && s.takes_image(record))
        };
        let found = self.context.query.sampled_procedures(&epoch.id.0, &takes, &self.cancel);
        images.into_inner().values().flatten().for_each(|record| self.context.note_on(record));
        self.context.if_taken(found)
    }
}
