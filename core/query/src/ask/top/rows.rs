//! Rows of a table of samples: by procedure, image, line, application or dimension.
//!
//! Input: merged samples, and procedures with their samples and costs. Output: rows, sorted and trimmed.

use std::{collections::BTreeMap, sync::Arc};

use dwell_analysis::{MachineModel, machine::Order};
use dwell_profile::{Dimension, Event, ImageKind, ImagePlace, ImageRecord, path_to_text};

use super::{
    dimensions,
    request::{TopBy, TopRequest},
};
use crate::{
    Cancel, QueryError,
    analyse::{
        costs::{LINES_SHARE_MIN, ProcedureCosts},
        listing::bounded,
        procedures::ProcedureSamples,
        totals::Totals,
    },
    answer::{Top, TopRow},
    load::{
        images::ImageStore,
        samples::{CountsByEvent, ImageSamples, add_counts},
        selection::Selection,
    },
};

/// A row before the table is trimmed.
pub struct Candidate {
    /// The row, without shares.
    pub row: TopRow,
    /// Samples of the row by event.
    counts: CountsByEvent,
    /// Samples of the primary event. If rows are lines, samples count for the line of the instruction that was waited for.
    primary: f64,
    /// The procedure, if the row is one.
    pub procedure: Option<ProcedureSamples>,
}

impl Candidate {
    fn new(row: TopRow, counts: CountsByEvent) -> Self {
        let primary = primary(&counts);
        Candidate { row, counts, primary, procedure: None }
    }
}

/// Sorts, trims and completes the rows.
pub fn answer(
    selection: &Selection,
    mut rows: Vec<Candidate>,
    limit: Option<usize>,
) -> (Top, Vec<Candidate>) {
    rows.retain(|c| is_worth_a_row(selection, c.primary, &c.counts));
    rows.sort_by(|a, b| {
        let most = b.primary.total_cmp(&a.primary).then_with(|| b.counts.cmp(&a.counts));
        most.then_with(|| row_key(&a.row).cmp(&row_key(&b.row)))
    });
    let omitted_rows = rows.len() - limit.unwrap_or(rows.len()).min(rows.len());
    rows.truncate(rows.len() - omitted_rows);
    let mut cumulative = 0.0;
    for c in &mut rows {
        cumulative += c.primary;
        complete(selection, &mut c.row, &c.counts, c.primary, cumulative);
    }
    (without_rows(selection, omitted_rows), rows)
}

/// Returns whether a row is shown. A line costs nothing if its samples waited for an instruction of another line, but its
/// other events still count.
fn is_worth_a_row(selection: &Selection, primary: f64, counts: &CountsByEvent) -> bool {
    let others = counts.iter().zip(&selection.events).skip(1);
    primary >= 0.5 || others.filter(|(_, e)| !e.is_derived()).any(|(n, _)| *n > 0)
}

/// Fills in the columns that follow from the counts; `cumulative` is the sum of `primary` up to and including this row.
fn complete(selection: &Selection, row: &mut TopRow, counts: &CountsByEvent, primary: f64, cumulative: f64) {
    let total = selection.primary_total().max(1) as f64;
    row.samples = selection.named(counts);
    row.share = primary / total;
    row.cumulative_share = cumulative / total;
    row.cycles = selection.period_cycles().map(|p| p * primary);
    row.seconds = selection.period_seconds().map(|p| p * primary);
}

fn without_rows(selection: &Selection, omitted_rows: usize) -> Top {
    Top {
        schema: 1,
        epochs: selection.epochs.iter().map(|e| e.id.to_string()).collect(),
        total: selection.named(&selection.total),
        rows: Vec::new(),
        omitted_rows,
        notes: selection.notes.clone(),
    }
}

/// Returns the procedures of the requested images, most costly first. They are not rows yet, since there may be a hundred
/// thousand and only one page is shown.
pub fn ranked<'p>(
    selection: &Selection,
    procedures: &'p [ProcedureSamples],
    request: &TopRequest,
) -> Vec<&'p ProcedureSamples> {
    let wanted = request.wanted_images(selection);
    let wanted = procedures.iter().filter(|p| wanted[p.image]);
    let mut ranked: Vec<_> =
        wanted.filter(|p| is_worth_a_row(selection, primary(&p.counts), &p.counts)).collect();
    let path = |p: &ProcedureSamples| &selection.images[p.image].record.path;
    ranked.sort_by(|a, b| {
        let most = b.counts.cmp(&a.counts);
        most.then_with(|| a.name.cmp(&b.name)).then_with(|| path(a).cmp(path(b)))
    });
    ranked
}

/// Returns the rows from `offset` on, at most `limit`, each with its position in the ranking and its procedure.
pub fn page<'p>(
    selection: &Selection,
    ranked: &[&'p ProcedureSamples],
    request: &TopRequest,
) -> (Top, Vec<(usize, &'p ProcedureSamples, TopRow)>) {
    let start = request.offset.min(ranked.len());
    let end = request.limit.map_or(ranked.len(), |n| n.saturating_add(start).min(ranked.len()));
    let mut cumulative: f64 = ranked[..start].iter().map(|p| primary(&p.counts)).sum();
    let row = |(at, p): (usize, &&'p ProcedureSamples)| {
        cumulative += primary(&p.counts);
        let mut row = procedure_row(selection, p);
        complete(selection, &mut row, &p.counts, primary(&p.counts), cumulative);
        (start + at, *p, row)
    };
    let rows = ranked[start..end].iter().enumerate().map(row).collect();
    (without_rows(selection, ranked.len() - end), rows)
}

fn primary(counts: &CountsByEvent) -> f64 {
    counts.first().copied().unwrap_or(0) as f64
}

fn row_key(row: &TopRow) -> impl Ord + use<'_> {
    let dimensions = (&row.thread, row.cpu, &row.cgroup);
    (&row.procedure, &row.image, &row.file, row.line, &row.app, row.instance, dimensions)
}

fn procedure_row(selection: &Selection, p: &ProcedureSamples) -> TopRow {
    TopRow {
        procedure: Some(p.name.clone()),
        demangled: Some(p.demangled.clone()),
        id: Some(p.id.clone()).filter(|id| !id.is_empty()),
        ..image_row(&selection.images[p.image].record)
    }
}

/// Returns the row of a procedure.
pub fn by_procedure(selection: &Selection, p: ProcedureSamples) -> Candidate {
    let row = procedure_row(selection, &p);
    let counts = p.counts.clone();
    Candidate { procedure: Some(p), ..Candidate::new(row, counts) }
}

/// Returns whether there is evidence of executions besides time. On out-of-order processors, time alone is weak evidence.
pub fn tells_executions(selection: &Selection) -> bool {
    let model = |e: &dwell_profile::Epoch| MachineModel::for_cpu(&e.cpu);
    let in_order = selection.epochs.last().is_some_and(|e| model(e).order == Order::InOrder);
    in_order
        || !selection.transfers.is_empty()
        || !selection.execution_counts.is_empty()
        || selection.events.iter().any(|e| e.is_derived() || e.base_name() == Event::INSTRUCTIONS.name())
}

/// Adds to the row what is known of its cycles per instruction.
pub fn with_cpi(row: TopRow, totals: Option<&Totals>) -> TopRow {
    let Some((totals, scale)) = totals.and_then(|t| Some((t, t.scale?))) else { return row };
    TopRow {
        cpi: totals.cpi(),
        cpi_min: Some(totals.cpi_interval().min),
        cpi_max: bounded(totals.cpi_interval()),
        scale: Some(scale),
        ..row
    }
}

pub(crate) fn image_row(record: &ImageRecord) -> TopRow {
    TopRow {
        image: Some(match record.kind {
            ImageKind::Jit => record.id.to_string(),
            _ => path_to_text(&record.path).into_owned(),
        }),
        build_id: Some(record.id.to_string()),
        ..TopRow::default()
    }
}

/// Returns a row for each image, unsorted.
pub fn by_image(selection: &Selection, request: &TopRequest) -> Vec<Candidate> {
    let images = selection.images.iter().filter(|i| request.takes(&i.record));
    images.map(|i| Candidate::new(image_row(&i.record), i.total.clone())).collect()
}

/// Returns a row for each application, or for each of its instances, unsorted. A sum over several instances has instance 0;
/// an application with only one instance keeps its number.
pub fn by_app(selection: &Selection, request: &TopRequest, per_instance: bool) -> Vec<Candidate> {
    let wanted = request.wanted_images(selection);
    let mut sums: BTreeMap<(&Arc<str>, u32), CountsByEvent> = BTreeMap::new();
    for ((app, instance, _), counts) in selection.apps.iter().filter(|((.., image), _)| wanted[*image]) {
        add_counts(sums.entry((app, *instance)).or_default(), counts);
    }
    if !per_instance {
        let mut whole: BTreeMap<(&Arc<str>, u32), CountsByEvent> = BTreeMap::new();
        for ((app, instance), counts) in &sums {
            let only = sums.range((*app, 0)..=(*app, u32::MAX)).count() == 1;
            add_counts(whole.entry((app, if only { *instance } else { 0 })).or_default(), counts);
        }
        sums = whole;
    }
    let row = |app: &str, instance: u32| TopRow {
        app: Some(app.to_owned()),
        instance: Some(instance),
        ..TopRow::default()
    };
    sums.into_iter().map(|((app, i), counts)| Candidate::new(row(app, i), counts)).collect()
}

/// Returns a row for each source line, unsorted.
pub fn by_line(
    selection: &Selection,
    store: &ImageStore,
    procedures: &[ProcedureSamples],
    request: &TopRequest,
    costs_of: &dyn Fn(&ProcedureSamples) -> Option<Arc<ProcedureCosts>>,
    cancel: &Cancel,
) -> Result<Vec<Candidate>, QueryError> {
    let wanted = request.wanted_images(selection);
    let mut lines = Lines { selection, store, costs_of, sums: BTreeMap::new() };
    for procedure in procedures.iter().filter(|p| wanted[p.image]) {
        cancel.check()?;
        lines.add(procedure);
    }
    Ok(lines.finish())
}

/// Returns a row for each thread name, CPU or control group, unsorted.
pub fn by_dimension(
    selection: &Selection,
    request: &TopRequest,
    dimension: Dimension,
) -> Result<Vec<Candidate>, QueryError> {
    let rows = dimensions::by_dimension(selection, &request.wanted_images(selection), dimension)?;
    Ok(rows.into_iter().map(|(row, counts)| Candidate::new(row, counts)).collect())
}

/// Source file and line, if the debug information has them.
type SourceLine = Option<(Arc<str>, u32)>;

/// Sums samples by source line. Code without debug information is one row for each image, without a file.
struct Lines<'a> {
    selection: &'a Selection,
    store: &'a ImageStore,
    costs_of: &'a dyn Fn(&ProcedureSamples) -> Option<Arc<ProcedureCosts>>,
    sums: BTreeMap<(SourceLine, usize), (CountsByEvent, f64)>,
}

impl<'a> Lines<'a> {
    fn add(&mut self, procedure: &ProcedureSamples) {
        let matters = self.selection.share(&procedure.counts) >= LINES_SHARE_MIN;
        match matters.then(|| (self.costs_of)(procedure)).flatten() {
            Some(costs) => {
                for (i, line) in costs.lines.iter().enumerate() {
                    let head = costs.analysis.instructions[i].head_samples;
                    self.add_to(line.clone(), procedure.image, &costs.samples[i], head);
                }
            }
            None => self.add_where_landed(procedure),
        }
    }

    fn add_where_landed(&mut self, procedure: &ProcedureSamples) {
        let samples = &self.selection.images[procedure.image];
        let found = self.store.find(&samples.record);
        let image = found.image.as_ref().ok();
        for point in procedure.points.iter().map(|&p| p as usize) {
            let (offset, counts) = (samples.points.offset(point), samples.points.counts(point));
            let line = match image {
                Some(image) => image.address_of(offset).and_then(|address| image.line_at(address)),
                None => samples.record.places.at(offset).and_then(ImagePlace::line),
            };
            self.add_to(line, procedure.image, counts, counts.first().copied().unwrap_or(0) as f64);
        }
    }

    fn add_to(&mut self, line: SourceLine, image: usize, counts: &[u64], primary: f64) {
        let sum = self.sums.entry((line, image)).or_default();
        add_counts(&mut sum.0, counts);
        sum.1 += primary;
    }

    fn finish(self) -> Vec<Candidate> {
        let row = |line: SourceLine, image: usize| {
            let (file, line) = line.map_or((None, None), |(f, l)| (Some(f.to_string()), Some(l)));
            TopRow { file, line, ..image_row(&self.selection.images[image].record) }
        };
        let sums = self.sums.into_iter();
        sums.map(|((line, image), (counts, primary))| Candidate {
            primary,
            ..Candidate::new(row(line, image), counts)
        })
        .collect()
    }
}

/// Returns notes on images that matter (at least 1% of the samples) but lack something that the rows need.
pub fn image_notes(selection: &Selection, store: &ImageStore, request: &TopRequest) -> Vec<String> {
    let lines = match request.by {
        TopBy::Procedure => false,
        TopBy::Line => true,
        TopBy::Dimension(dimension) => return dimensions::note(selection, dimension).into_iter().collect(),
        // These rows need nothing of an image, so none is opened: it may be in a bucket.
        TopBy::Image | TopBy::App | TopBy::Instance | TopBy::Data => return Vec::new(),
    };
    let matters = |i: &&ImageSamples| request.takes(&i.record) && selection.share(&i.total) >= 0.01;
    let notes = selection.images.iter().filter(matters).filter_map(|i| {
        let found = store.find(&i.record);
        let note = found.note.clone().or_else(|| found.lines_note().filter(|_| lines))?;
        Some(format!("{note} ({:.1}% of the samples)", 100.0 * selection.share(&i.total)))
    });
    notes.collect()
}
