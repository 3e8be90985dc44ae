//! `file_costs`: what each line of one source file costs, wherever its code ended up.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use dwell_analysis::{Confidence, PerEntry};
use dwell_image::{Image, ImageAddress};
use dwell_profile::text_to_path;
use rustc_hash::FxHashMap;

use crate::{
    Cancel, QueryError,
    answer::{LineCost, ProcedureCost, StaleLine},
    costs::ProcedureCosts,
    images::{Found, ImageStore},
    line_culprits::LineCulprits,
    listing::{bounded, confidence_name, is_told, per_entry},
    procedures::{ProcedureSamples, begin_of},
    scales::in_parallel,
    selection::{CountsByEvent, ImageSamples, Selection, add_counts},
    source::{LineMap, SourceMap},
    top::LINES_SHARE_MIN,
    totals::Totals,
    words::scale_name,
};

/// Which procedures have sampled instructions from source files of one name. (All files at once would need every line of
/// every image, for the sake of the one that is open.)
#[derive(Default)]
pub struct FileIndex {
    /// File as the debug information spells it → indices of procedures, ascending.
    files: FxHashMap<Arc<str>, BTreeSet<usize>>,
    /// File → procedures that begin in it, with the line.
    begins: FxHashMap<Arc<str>, Vec<(u32, usize)>>,
}

/// What a procedure has of the files of a name.
struct Parts {
    procedure: usize,
    files: Vec<Arc<str>>,
    begin: Option<(Arc<str>, u32)>,
}

impl FileIndex {
    /// Looks up the lines of the procedures whose units list a file called `name`; on all processors.
    pub fn build(
        selection: &Selection,
        store: &ImageStore,
        procedures: &[ProcedureSamples],
        name: &str,
        cancel: &Cancel,
    ) -> Result<Self, QueryError> {
        let mut images: FxHashMap<usize, Arc<Found>> = FxHashMap::default();
        for p in procedures {
            images.entry(p.image).or_insert_with(|| store.find(&selection.images[p.image].record));
        }
        // In the order of their addresses, so that the lines of a unit are read once and may then be forgotten.
        let mut order: Vec<usize> = (0..procedures.len()).collect();
        order.sort_unstable_by_key(|p| (procedures[*p].image, procedures[*p].address));
        let runs: Vec<&[usize]> = order.chunks(PROCEDURES_AT_ONCE).collect();
        let found = in_parallel(&runs, |run| {
            cancel.check().ok()?;
            let parts = run.iter().filter_map(|p| match &images[&procedures[*p].image].image {
                Ok(image) => parts_of(selection, &procedures[*p], *p, image, name),
                Err(_) => named_parts_of(selection, &procedures[*p], *p, name),
            });
            Some(parts.collect::<Vec<_>>())
        });
        cancel.check()?;
        let mut index = FileIndex::default();
        let mut found: Vec<Parts> = found.into_iter().flatten().collect();
        found.sort_unstable_by_key(|parts| parts.procedure);
        for Parts { procedure, files, begin } in found {
            for file in files {
                index.files.entry(file).or_default().insert(procedure);
            }
            if let Some((file, line)) = begin {
                index.begins.entry(file).or_default().push((line, procedure));
            }
        }
        Ok(index)
    }

    /// How the debug information spells `path`, which has the index's name and lies where `sources` puts it: the same text
    /// and every spelling of the same file; else, where the recorded file is not on this machine, the only one that ends in
    /// the same two or more components.
    pub fn spellings(&self, path: &Path, sources: &SourceMap) -> Vec<Arc<str>> {
        let canonical = path.canonicalize().ok();
        let is_same =
            |file: &Path| file == path || canonical.is_some() && file.canonicalize().ok() == canonical;
        let candidates: Vec<&Arc<str>> = self.files.keys().collect();
        let mut same: Vec<Arc<str>> = candidates
            .iter()
            .filter(|f| is_same(&sources.here(&text_to_path(f))))
            .map(|f| (*f).clone())
            .collect();
        same.sort();
        if !same.is_empty() {
            return same;
        }
        let elsewhere = candidates.into_iter().filter(|f| !text_to_path(f).exists());
        let mut ranked: Vec<_> = elsewhere.map(|f| (common_tail(&text_to_path(f), path), f)).collect();
        ranked.sort_by_key(|(n, _)| std::cmp::Reverse(*n));
        match ranked[..] {
            [(n, file)] if n >= 2 => vec![file.clone()],
            [(n, file), (next, _), ..] if n >= 2 && n > next => vec![file.clone()],
            _ => Vec::new(),
        }
    }

    /// Procedures with sampled instructions from `file`.
    pub fn procedures_in(&self, file: &str) -> impl Iterator<Item = usize> {
        self.files.get(file).into_iter().flatten().copied()
    }

    /// Procedures that begin in `file`, each with its line.
    pub fn procedures_beginning_in(&self, file: &str) -> impl Iterator<Item = (u32, usize)> {
        self.begins.get(file).into_iter().flatten().copied()
    }
}

fn common_tail(a: &Path, b: &Path) -> usize {
    a.components().rev().zip(b.components().rev()).take_while(|(x, y)| x == y).count()
}

/// So many neighbours are looked at by one processor.
const PROCEDURES_AT_ONCE: usize = 64;

/// What `procedure` has of files called `name`, if anything.
fn parts_of(
    selection: &Selection,
    procedure: &ProcedureSamples,
    index: usize,
    image: &Image,
    name: &str,
) -> Option<Parts> {
    let samples = &selection.images[procedure.image];
    let landed =
        || procedure.points.iter().filter_map(|&i| image.address_of(samples.points.offset(i as usize)));
    let may_be = match procedure.address {
        Some(start) => image.may_be_of(start, procedure.size_bytes.max(1), name),
        None => landed().any(|address| image.may_be_of(address, 1, name)),
    };
    if !may_be {
        return None;
    }
    let matters = selection.share(&procedure.counts) >= LINES_SHARE_MIN;
    let files: Vec<Arc<str>> = match procedure.address {
        Some(start) if matters && procedure.size_bytes <= WHOLE_BYTES_MAX => {
            image.files_within(start, procedure.size_bytes)
        }
        Some(_) if matters => {
            landed().flat_map(|a| image.files_within(before(a), a.0 - before(a).0 + 1)).collect()
        }
        _ => image.lines_at(landed()).into_iter().flatten().map(|(file, _)| file).collect(),
    };
    parts(index, files, procedure.address.and_then(|a| image.procedure_line(a)), name)
}

/// The same of an image that is not at hand, by what its profile says.
fn named_parts_of(
    selection: &Selection,
    procedure: &ProcedureSamples,
    index: usize,
    name: &str,
) -> Option<Parts> {
    let ImageSamples { points, record, .. } = &selection.images[procedure.image];
    if record.places.all.is_empty() {
        return None;
    }
    let offsets = || procedure.points.iter().map(|&point| points.offset(point as usize));
    let files = offsets().filter_map(|offset| Some(record.places.at(offset)?.line()?.0)).collect();
    parts(index, files, offsets().next().and_then(|offset| begin_of(record, offset)), name)
}

/// Those of the files, and of where the procedure begins, that are called `name`.
fn parts(
    procedure: usize,
    mut files: Vec<Arc<str>>,
    begin: Option<(Arc<str>, u32)>,
    name: &str,
) -> Option<Parts> {
    let is_called = |file: &str| Path::new(file).file_name() == Some(name.as_ref());
    files.retain(|file| is_called(file));
    files.sort_unstable();
    files.dedup();
    let begin = begin.filter(|(file, _)| is_called(file));
    (!files.is_empty() || begin.is_some()).then_some(Parts { procedure, files, begin })
}

/// What was waited for may be an earlier instruction than the one where a sample landed, of another file, inlined: in a
/// procedure that matters so many bytes before are looked at. A loop's first instruction may wait for its last, so where
/// such a procedure is small enough (most are) all of it is.
const WHOLE_BYTES_MAX: u64 = 4096;
const BEFORE_BYTES: u64 = 32;

fn before(address: ImageAddress) -> ImageAddress {
    ImageAddress(address.0.saturating_sub(BEFORE_BYTES))
}

/// One line's sums over all procedures.
struct LineSum {
    counts: CountsByEvent,
    totals: Totals,
    confidence: Confidence,
    culprits: LineCulprits,
    /// Of its most executed instruction: frequency and ratio.
    per_entry: Option<(f64, PerEntry)>,
    procedures: Vec<(f64, usize)>,
}

/// Sums lines of one file over procedures.
pub struct LineSums<'a> {
    selection: &'a Selection,
    /// As the asker spells it.
    path: &'a str,
    lines: BTreeMap<u32, LineSum>,
    /// Time samples of lines that were edited since, where they stand now.
    edited: BTreeMap<u32, f64>,
}

/// One file as one image knows it.
#[derive(Clone, Copy)]
pub struct FileOfImage<'a> {
    /// As the debug information spells it.
    pub file: &'a str,
    /// Where its lines are now.
    pub map: &'a LineMap,
}

impl<'a> LineSums<'a> {
    /// No line yet.
    pub fn new(selection: &'a Selection, path: &'a str) -> Self {
        LineSums { selection, path, lines: BTreeMap::new(), edited: BTreeMap::new() }
    }

    /// Adds the instructions that were written in this file, where their lines are now.
    pub fn add(&mut self, index: usize, costs: &ProcedureCosts, of: &FileOfImage<'_>) {
        let mut by_line: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (i, line) in costs.lines.iter().enumerate() {
            let Some((_, line)) = line.as_ref().filter(|(f, _)| **f == *of.file) else { continue };
            if let Some(now) = of.map.now(*line) {
                by_line.entry(now).or_default().push(i);
            } else if let Some(now) = of.map.edited(*line) {
                *self.edited.entry(now).or_default() += costs.analysis.instructions[i].head_samples;
            }
        }
        for (line, instructions) in by_line {
            self.add_line(line, index, costs, &instructions, of);
        }
    }

    fn add_line(
        &mut self,
        line: u32,
        index: usize,
        costs: &ProcedureCosts,
        instructions: &[usize],
        of: &FileOfImage<'_>,
    ) {
        let sum = self.lines.entry(line).or_insert_with(|| LineSum {
            counts: CountsByEvent::from_elem(0, self.selection.events.len()),
            totals: Totals::default(),
            confidence: Confidence::High,
            culprits: LineCulprits::default(),
            per_entry: None,
            procedures: Vec::new(),
        });
        instructions.iter().for_each(|&i| add_counts(&mut sum.counts, &costs.samples[i]));
        let totals = costs.totals(instructions.iter().copied());
        sum.procedures.push((totals.head_samples, index));
        sum.totals.add(&totals);
        sum.per_entry =
            sum.per_entry.into_iter().chain(most_executed(costs, instructions)).max_by(by_frequency);
        for &i in instructions {
            let cost = &costs.analysis.instructions[i];
            if cost.head_samples > 0.0 {
                sum.confidence = sum.confidence.min(cost.confidence);
            }
            sum.culprits.add(costs, i, |(file, line)| match *file == *of.file {
                // A culprit in this file moves with it; one whose line was edited keeps its file only.
                true => (self.path.into(), of.map.now(line)),
                false => (file, Some(line)),
            });
        }
    }

    /// The lines that were edited since, ascending.
    pub fn stale(&self) -> Vec<StaleLine> {
        let total = self.selection.primary_total().max(1) as f64;
        let sampled = self.edited.iter().filter(|(_, samples)| **samples >= 0.5);
        sampled.map(|(&line, samples)| StaleLine { line, share: samples / total }).collect()
    }

    /// The lines with samples, ascending.
    pub fn finish(self, procedures: &[ProcedureSamples]) -> Vec<LineCost> {
        let selection = self.selection;
        let costs_time = |s: &LineSum| s.totals.head_samples >= 0.5 || s.counts.iter().any(|n| *n > 0);
        let sampled = self.lines.into_iter().filter(|(_, sum)| costs_time(sum));
        sampled.map(|(line, sum)| sum.into_cost(selection, line, procedures)).collect()
    }
}

/// Frequency and ratio of the most executed of these instructions.
fn most_executed(costs: &ProcedureCosts, instructions: &[usize]) -> Option<(f64, PerEntry)> {
    let of_block = |&i: &usize| {
        let blocks = &costs.analysis.blocks;
        let block = &blocks[blocks.partition_point(|b| b.instructions.end <= i)];
        Some((block.frequency?, block.per_entry?))
    };
    instructions.iter().filter_map(of_block).max_by(by_frequency)
}

fn by_frequency(a: &(f64, PerEntry), b: &(f64, PerEntry)) -> std::cmp::Ordering {
    a.0.total_cmp(&b.0)
}

impl LineSum {
    fn into_cost(self, selection: &Selection, line: u32, procedures: &[ProcedureSamples]) -> LineCost {
        let period = selection.period_cycles();
        let mut owners = self.procedures;
        owners.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let totals = &self.totals;
        let head_samples = totals.head_samples;
        let most = totals.most.filter(|_| totals.is_absolute()).zip(period);
        let interval = most.and_then(|((_, interval), p)| Some((interval?, p)));
        let (culprits, ties) = self.culprits.finish(head_samples, period);
        LineCost {
            line,
            samples: selection.named(&self.counts),
            share: head_samples / selection.primary_total().max(1) as f64,
            cycles: period.map(|p| p * head_samples),
            seconds: selection.period_seconds().map(|p| p * head_samples),
            scale: scale_name(totals.scale.unwrap_or_default()).to_owned(),
            executions: most.filter(|((_, i), _)| is_told(*i)).map(|((frequency, _), p)| frequency * p),
            executions_min: interval.map(|(i, p)| i.min * p),
            executions_max: interval.map(|(i, p)| i.max * p),
            per_entry: self.per_entry.map(|(_, ratio)| per_entry(ratio)),
            cpi: totals.cpi(),
            cpi_min: totals.cpi_interval().min,
            cpi_max: bounded(totals.cpi_interval()),
            best_case_cpi: totals.best_case_cpi(),
            confidence: confidence_name(self.confidence).to_owned(),
            culprits,
            ties,
            procedures: owners.iter().map(|(_, p)| procedures[*p].id.clone()).collect(),
        }
    }
}

/// The cost of a procedure that begins at `line`.
pub fn procedure_cost(
    selection: &Selection,
    procedure: &ProcedureSamples,
    line: u32,
    costs: Option<&ProcedureCosts>,
) -> ProcedureCost {
    let totals = costs.map(ProcedureCosts::all_totals).unwrap_or_default();
    let samples = procedure.counts.first().copied().unwrap_or(0) as f64;
    ProcedureCost {
        id: procedure.id.clone(),
        demangled: procedure.demangled.clone(),
        line,
        samples: selection.named(&procedure.counts),
        share: selection.share(&procedure.counts),
        cycles: selection.period_cycles().map(|p| p * samples),
        seconds: selection.period_seconds().map(|p| p * samples),
        scale: scale_name(totals.scale.unwrap_or_default()).to_owned(),
        cpi: totals.cpi(),
        cpi_min: totals.cpi_interval().min,
        cpi_max: bounded(totals.cpi_interval()),
        best_case_cpi: totals.best_case_cpi(),
    }
}
