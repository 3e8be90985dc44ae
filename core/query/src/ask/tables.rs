//! Requests of `dwell sql`: rows of tables that need images or the analysis.
//!
//! Input: image records or an epoch, and what a statement selects. Output: rows of one image or one procedure at a
//! time, so that a caller stops when it has enough. This module knows no SQL. Cost: that of `top` for names and lines,
//! that of `annotate` for each listing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dwell_image::{Image, ImageAddress};
use dwell_profile::{
    Event, ImageId, ImageKind, ImageOffset, ImagePlace, ImageRecord, ImageSymbol, path_to_text,
};
use rustc_hash::FxHashMap;

use crate::{
    Cancel, Query, QueryError, SampleFilter,
    analyse::{
        costs::ProcedureCosts,
        listing,
        procedures::{self, NamesByAddress, ProcedureSamples},
        stored,
    },
    answer::Listing,
    load::{merge::Places, samples::ImageSamples, selection::Selection},
    parallel::in_parallel,
    query::View,
};

/// A range of offsets in an image whose innermost procedure is the same one. Ranges of an image do not overlap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcedureRange {
    /// Offset of the first byte.
    pub start: u64,
    /// Offset after the last byte.
    pub end: u64,
    /// Linkage (mangled) name, as `top` has it.
    pub name: String,
}

/// Returns a linkage name as the source code spells it.
pub fn demangle(name: &str) -> String {
    dwell_image::demangle(name)
}

/// A sampled offset with its source line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampledLine {
    /// Offset in the image.
    pub offset: u64,
    /// Source file of the innermost inlined call, as the debug information spells it.
    pub file: Arc<str>,
    /// Line in the file, from 1.
    pub line: u32,
}

/// The samples of one event in one procedure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcedureCount {
    /// Id of the image.
    pub image: ImageId,
    /// Linkage (mangled) name; `None` for samples that no procedure covers.
    pub procedure: Option<Arc<str>>,
    /// The sampled event.
    pub event: Event,
    /// Number of samples.
    pub count: u64,
}

/// Names that were read for one epoch and are needed for the next one, by image.
#[derive(Default)]
pub struct KnownNames(Mutex<FxHashMap<ImageId, NamesByAddress>>);

impl KnownNames {
    fn lock(&self) -> MutexGuard<'_, FxHashMap<ImageId, NamesByAddress>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A procedure that has samples in an epoch, for [`Query::listings_of_sampled`].
#[derive(Clone)]
pub struct SampledProcedure {
    view: Arc<View>,
    procedure: ProcedureSamples,
}

/// An analysed procedure, to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnalysedProcedure {
    /// Id of the epoch.
    pub epoch: String,
    /// Id of its image.
    pub image: ImageId,
    /// The linkage name that the procedure has.
    pub procedure: String,
    /// Offset of its first byte in the image.
    pub start: ImageOffset,
    /// The analysis as text.
    pub analysis: String,
}

/// Returns the path of an image as `top --by image` names it: the id for code that was generated in memory.
pub fn image_path(record: &ImageRecord) -> String {
    match record.kind {
        ImageKind::Jit => record.id.to_string(),
        _ => path_to_text(&record.path).into_owned(),
    }
}

impl Query {
    /// Returns the instruction set of an image; `None` if the image is not on this machine.
    pub fn image_arch(&self, record: &ImageRecord) -> Option<&'static str> {
        Some(self.store.find(record).image.as_ref().ok()?.arch().name())
    }

    /// Returns why the code of an image cannot be listed; `None` if it can, or if it has none.
    pub fn image_note(&self, record: &ImageRecord) -> Option<String> {
        self.store.find(record).note.clone()
    }

    /// Returns the procedures of an image by ascending offset, sampled or not. If the image is not on this machine,
    /// these are the procedures that the profile names.
    pub fn procedure_ranges(&self, record: &ImageRecord) -> Vec<ProcedureRange> {
        let found = self.store.find(record);
        match &found.image {
            Ok(image) => ranges_of_image(image),
            Err(_) => ranges_of_profile(record, found.symbols(record)),
        }
    }

    /// Returns the symbols of an image that is on this machine, for readers who do not have it: ascending, without overlaps.
    pub fn symbols(&self, record: &ImageRecord) -> Option<Vec<ImageSymbol>> {
        let found = self.store.find(record);
        let symbol = |range: ProcedureRange| ImageSymbol {
            offset: ImageOffset(range.start),
            size_bytes: range.end - range.start,
            name: range.name,
        };
        Some(ranges_of_image(found.image.as_ref().ok()?).into_iter().map(symbol).collect())
    }

    /// Returns the sampled offsets of an image that have a source line, ascending. The samples of all the epochs are
    /// merged.
    pub fn sampled_lines(
        &self,
        epochs: &[String],
        image: &ImageId,
        cancel: &Cancel,
    ) -> Result<Vec<SampledLine>, QueryError> {
        let view = self.view(epochs)?;
        let Some(samples) = view.selection.images.iter().find(|samples| samples.record.id == *image) else {
            return Ok(Vec::new());
        };
        let record = &samples.record;
        let found = self.store.find(record);
        let image = found.image.as_deref().ok();
        let line_at = |offset| match image {
            Some(image) => image.address_of(offset).and_then(|address| image.line_at(address)),
            None => record.places.at(offset).and_then(ImagePlace::line),
        };
        let mut lines = Vec::new();
        for (offset, _) in samples.points.iter() {
            cancel.check()?;
            lines.extend(line_at(offset).map(|(file, line)| SampledLine { offset: offset.0, file, line }));
        }
        Ok(lines)
    }

    /// Returns the samples of each procedure in one epoch, for the images that `wanted` accepts. Derived events are
    /// left out. The result is not cached, since it is as large as the epoch.
    pub fn procedure_counts(
        &self,
        epoch: &str,
        wanted: &dyn Fn(&ImageRecord) -> bool,
        known: &KnownNames,
        cancel: &Cancel,
    ) -> Result<Vec<ProcedureCount>, QueryError> {
        let epoch = self.database.resolve(epoch)?;
        let filter = self.narrowed(&SampleFilter::default());
        let selection = Selection::read(&self.database, &[epoch], &filter, Places::Each)?;
        let takes = |samples: &ImageSamples| !samples.points.is_empty() && wanted(&samples.record);
        let images: Vec<usize> =
            (0..selection.images.len()).filter(|at| takes(&selection.images[*at])).collect();
        let found = in_parallel(&images, |&at| {
            cancel.check().ok()?;
            let mut counts = Vec::new();
            let id = &selection.images[at].record.id;
            let mut names = known.lock().remove(id).unwrap_or_default();
            let sums = procedures::sums(&selection, &self.store, at, &mut names);
            known.lock().insert(id.clone(), names);
            for (name, samples) in sums {
                let sampled = selection.events.iter().zip(samples);
                for (event, count) in sampled.filter(|(event, count)| *count > 0 && !event.is_derived()) {
                    let image = selection.images[at].record.id.clone();
                    counts.push(ProcedureCount {
                        image,
                        procedure: name.clone(),
                        event: event.clone(),
                        count,
                    });
                }
            }
            Some(counts)
        });
        cancel.check()?;
        Ok(found.into_iter().flatten().collect())
    }

    /// Returns the procedures with samples in one epoch that `wanted` accepts by image, linkage name and demangled
    /// name, the most sampled first.
    pub fn sampled_procedures(
        &self,
        epoch: &str,
        wanted: &dyn Fn(&ImageRecord, &str, &str) -> bool,
        cancel: &Cancel,
    ) -> Result<Vec<SampledProcedure>, QueryError> {
        let view = self.view(&[epoch.to_owned()])?;
        let all = self.procedures(&view, cancel)?;
        let accepts =
            |p: &&ProcedureSamples| wanted(&view.selection.images[p.image].record, &p.name, &p.demangled);
        let found: Vec<_> = all.iter().filter(accepts).cloned().collect();
        Ok(found.into_iter().map(|procedure| SampledProcedure { view: view.clone(), procedure }).collect())
    }

    /// Returns the analyses of sampled procedures, for [`StoredAnalysis`](dwell_profile::StoredAnalysis). Those whose image is not on this
    /// machine are left out. Cost: as of [`Query::listings_of_sampled`].
    pub fn analyses_of_sampled(&self, sampled: &[SampledProcedure]) -> Vec<AnalysedProcedure> {
        in_parallel(sampled, |SampledProcedure { view, procedure }| {
            let costs = self.costs_once(view, procedure)?;
            let start = costs.image.as_ref()?.offset_of(procedure.address?)?;
            Some(AnalysedProcedure {
                epoch: view.selection.name(),
                image: view.selection.images[procedure.image].record.id.clone(),
                procedure: procedure.name.clone(),
                start,
                analysis: stored::write(&costs),
            })
        })
    }

    /// Returns the listings of sampled procedures without source texts, in their order. Those that have no instructions
    /// to list are left out. The analysis is that of `annotate`; it runs on all processors and is not cached.
    pub fn listings_of_sampled(&self, sampled: &[SampledProcedure]) -> Vec<Listing> {
        in_parallel(sampled, |SampledProcedure { view, procedure }| {
            let places = || ProcedureCosts::of_places(&view.selection, procedure).map(Arc::new);
            let costs = self.costs_once(view, procedure).or_else(places)?;
            Some(listing::listing(&view.selection, procedure, &costs))
        })
    }
}

/// Returns the ranges of an image's symbols. A procedure that contains others is cut into the parts around them.
fn ranges_of_image(image: &Image) -> Vec<ProcedureRange> {
    let mut parts = Parts { image, open: Vec::new(), from: 0, ranges: Vec::new() };
    for procedure in image.procedures().iter() {
        parts.close_until(procedure.address.0);
        parts.from = procedure.address.0;
        parts.open.push((procedure.end().0, procedure.name().into_owned()));
    }
    parts.close_until(u64::MAX);
    parts.ranges.sort_by_key(|range| range.start);
    parts.ranges
}

/// Procedures while they are cut, by ascending address.
struct Parts<'i> {
    image: &'i Image,
    /// End and name of the procedures that contain the address `from`; the last one is the innermost.
    open: Vec<(u64, String)>,
    /// Address up to which ranges are made.
    from: u64,
    ranges: Vec<ProcedureRange>,
}

impl Parts<'_> {
    /// Makes the ranges up to an address, and drops the procedures that end before it.
    fn close_until(&mut self, until: u64) {
        while let Some((end, name)) = self.open.pop() {
            let stop = end.min(until);
            if self.from < stop {
                self.push(self.from, stop, &name);
                self.from = stop;
            }
            if end > until {
                self.open.push((end, name));
                return;
            }
        }
    }

    fn push(&mut self, start: u64, end: u64, name: &str) {
        if let Some(ImageOffset(offset)) = self.image.offset_of(ImageAddress(start)) {
            let end = offset.saturating_add(end - start);
            self.ranges.push(ProcedureRange { start: offset, end, name: name.to_owned() });
        }
    }
}

/// Returns the ranges that the profile names: symbols first, and single places outside of them.
fn ranges_of_profile(record: &ImageRecord, symbols: &[ImageSymbol]) -> Vec<ProcedureRange> {
    let range = |symbol: &ImageSymbol| ProcedureRange {
        start: symbol.offset.0,
        end: symbol.offset.0.saturating_add(symbol.size_bytes.max(1)),
        name: symbol.name.clone(),
    };
    let mut ranges: Vec<ProcedureRange> = symbols.iter().map(range).collect();
    ranges.sort_by_key(|range| range.start);
    // Where the sources of symbols disagree, a range ends where the next one begins, as in a look-up.
    for next in 1..ranges.len() {
        let start = ranges[next].start;
        ranges[next - 1].end = ranges[next - 1].end.min(start);
    }
    let is_named = |ranges: &[ProcedureRange], offset: u64| {
        let after = ranges.partition_point(|range| range.start <= offset);
        ranges[..after].last().is_some_and(|range| offset < range.end)
    };
    let mut places = Vec::new();
    for place in &record.places.all {
        let Some(procedure) = place.procedure() else { continue };
        let (start, name) = (place.offset.0, procedure.linkage.as_ref().unwrap_or(&procedure.function));
        if !is_named(&ranges, start) {
            places.push(ProcedureRange { start, end: start.saturating_add(1), name: name.to_string() });
        }
    }
    ranges.extend(places);
    ranges.sort_by_key(|range| range.start);
    ranges.retain(|range| range.start < range.end);
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_a_profile_do_not_overlap() {
        let mut record = ImageRecord::new(ImageId::named("jit:a"), ImageKind::Jit, "//anon");
        let symbol = |offset, size_bytes, name: &str| ImageSymbol {
            offset: ImageOffset(offset),
            size_bytes,
            name: name.to_owned(),
        };
        record.symbols = vec![symbol(0, 30, "outer"), symbol(10, 5, "inner"), symbol(40, 0, "empty")];
        let found: Vec<_> = ranges_of_profile(&record, &record.symbols)
            .into_iter()
            .map(|r| (r.start, r.end, r.name))
            .collect();
        let expected = [(0, 10, "outer"), (10, 15, "inner"), (40, 41, "empty")];
        assert_eq!(found, expected.map(|(start, end, name)| (start, end, name.to_owned())));
        assert_eq!(image_path(&record), "jit:a");
    }

    #[test]
    fn ranges_of_an_image_agree_with_look_ups() {
        let image = Image::open(std::env::current_exe().unwrap()).unwrap();
        let ranges = ranges_of_image(&image);
        assert!(ranges.len() > 100, "{}", ranges.len());
        for pair in ranges.windows(2) {
            assert!(pair[0].end <= pair[1].start, "{pair:?}");
        }
        for range in ranges.iter().step_by(7) {
            for offset in [range.start, range.end - 1] {
                let at = image.address_of(ImageOffset(offset)).and_then(|a| image.procedure_at(a));
                assert_eq!(at.map(|p| p.name().into_owned()).as_ref(), Some(&range.name), "{range:?}");
            }
        }
    }
}
