//! Sums samples by procedure.
//!
//! Input: merged samples. Output: procedures with their samples. This module never reads debug information, nor the names of
//! procedures that are not in the answer. Cost: one pass over the sampled offsets and over the symbols of the sampled
//! images; as many images are processed at a time as there are processors.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    hash::Hash,
    sync::{Arc, Mutex, PoisonError},
};

use dwell_image::{ImageAddress, Procedure, ProcedureTable};
use dwell_profile::{ImageKind, ImageOffset, ImagePlace, ImageRecord, ImageSymbol, NamedFrame, name_to_text};
use rustc_hash::FxHashMap;

use crate::{
    Cancel, QueryError,
    load::{
        images::ImageStore,
        samples::{CountsByEvent, ImageSamples, add_counts},
        selection::Selection,
    },
    parallel::in_parallel,
};

/// Stands for the name of a procedure in samples that no symbol covers.
pub const NO_SYMBOL: &str = "[no symbol]";

/// A procedure with its samples.
#[derive(Clone, Debug)]
pub struct ProcedureSamples {
    /// Unique name that look-ups by name accept: `IMAGE:NAME`, or `IMAGE_ID:0xADDRESS` if that is ambiguous.
    pub id: String,
    /// Index into [`Selection::images`].
    pub image: usize,
    /// Linkage (mangled) name.
    pub name: String,
    /// Demangled name, as the source code spells it.
    pub demangled: String,
    /// Image address of the first byte; `None` for [`NO_SYMBOL`].
    pub address: Option<ImageAddress>,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Indices of the procedure's points in the image's points, ascending.
    pub points: Vec<u32>,
    /// Sum of the counts of `points`.
    pub counts: CountsByEvent,
}

/// Returns every procedure with samples, most samples of the primary event first (then by image and address).
pub fn sampled(
    selection: &Selection,
    store: &ImageStore,
    cancel: &Cancel,
) -> Result<Vec<ProcedureSamples>, QueryError> {
    let images: Vec<usize> =
        (0..selection.images.len()).filter(|&index| !selection.images[index].points.is_empty()).collect();
    let found = in_parallel(&images, |&index| {
        cancel.check().ok()?;
        Some(in_image(selection, store, index, |_| {}).procedures)
    });
    cancel.check()?;
    let mut all: Vec<ProcedureSamples> = found.into_iter().flatten().collect();
    all.sort_by_key(|p| (Reverse(p.counts.first().copied()), p.image, p.address));
    name_uniquely(selection, &mut all);
    Ok(all)
}

/// A selection from all procedures that have samples.
#[derive(Default)]
pub struct Hottest {
    /// The most sampled procedures of each image, up to the requested number; their ids are empty.
    pub procedures: Vec<ProcedureSamples>,
    /// Number of other procedures with samples.
    pub others: usize,
    /// Notes on the images that a reader needs.
    pub notes: Vec<String>,
}

/// Returns the `limit` most sampled procedures of each image that `takes` accepts.
pub fn hottest(
    selection: &Selection,
    store: &ImageStore,
    takes: &dyn Fn(&ImageRecord) -> bool,
    limit: usize,
    cancel: &Cancel,
) -> Result<Hottest, QueryError> {
    let wanted = |samples: &ImageSamples| takes(&samples.record) && !samples.points.is_empty();
    let mut wanted: Vec<usize> =
        (0..selection.images.len()).filter(|&index| wanted(&selection.images[index])).collect();
    // If the most sampled images come first, it is known early which procedures cannot be among the most sampled ones.
    wanted.sort_by(|a, b| selection.images[*b].total.cmp(&selection.images[*a].total));
    let threshold = Threshold { limit, largest: Mutex::default() };
    let mut parts = in_parallel(&wanted, |&index| {
        cancel.check().ok()?;
        Some((index, in_image(selection, store, index, |groups| threshold.keep_hottest(groups))))
    });
    cancel.check()?;
    parts.sort_by_key(|(index, _)| *index);
    let mut hottest = Hottest::default();
    for (_, part) in parts {
        hottest.procedures.extend(part.procedures);
        hottest.others += part.others;
        hottest.notes.extend(part.notes);
    }
    Ok(hottest)
}

/// Sample counts of the most sampled procedures of the images so far. A procedure with fewer samples is not shown, so the
/// time to look up its name can be saved.
struct Threshold {
    limit: usize,
    /// The `limit` largest counts of the primary event; the smallest of them is the threshold.
    largest: Mutex<BinaryHeap<Reverse<u64>>>,
}

impl Threshold {
    /// Drops the groups of an image that cannot be among the most sampled ones of all images.
    fn keep_hottest(&self, groups: &mut Vec<Group<'_>>) {
        groups.sort_unstable_by(|a, b| b.counts.cmp(&a.counts).then_with(|| a.address().cmp(&b.address())));
        groups.truncate(self.limit);
        let mut largest = self.largest.lock().unwrap_or_else(PoisonError::into_inner);
        for group in groups.iter() {
            largest.push(Reverse(group.samples()));
            if largest.len() > self.limit {
                largest.pop();
            }
        }
        let is_full = largest.len() >= self.limit;
        let least = largest.peek().filter(|_| is_full).map_or(0, |least| least.0);
        groups.retain(|group| group.samples() >= least);
    }
}

fn name_uniquely(selection: &Selection, procedures: &mut [ProcedureSamples]) {
    let mut uses: FxHashMap<String, usize> = FxHashMap::default();
    for p in procedures.iter_mut() {
        p.id = format!("{}:{}", image_name(&selection.images[p.image].record), p.name);
        *uses.entry(p.id.clone()).or_default() += 1;
    }
    for p in procedures.iter_mut().filter(|p| uses[&p.id] > 1) {
        let image = &selection.images[p.image].record.id;
        p.id = p.address.map_or_else(|| format!("{image}:{}", p.name), |a| format!("{image}:0x{a}"));
    }
}

/// Returns the file name of an image, or a name that stands for it.
pub fn image_name(record: &ImageRecord) -> String {
    if record.kind == ImageKind::Jit {
        return record.id.to_string(); // The code was not mapped from a file: `//anon` would say less than `jit:node`.
    }
    name_to_text(record.path.file_name().unwrap_or(record.path.as_os_str())).into_owned()
}

/// Returns the sampled procedures of one image (an index) that `choose` keeps, unsorted and without ids.
fn in_image(
    selection: &Selection,
    store: &ImageStore,
    index: usize,
    choose: impl FnOnce(&mut Vec<Group<'_>>),
) -> Hottest {
    let samples = &selection.images[index];
    with_groups(selection, store, index, |mut groups, notes| {
        let all = groups.len();
        choose(&mut groups);
        let others = all - groups.len();
        let procedures = groups.into_iter().map(|group| group.named(index, samples)).collect();
        Hottest { procedures, others, notes }
    })
}

/// Linkage names of an image's procedures by address. Reading a name takes longer than counting its samples.
pub type NamesByAddress = FxHashMap<u64, Arc<str>>;

/// Returns the linkage name and the samples of each sampled procedure of one image (an index), unsorted. The name is
/// `None` for samples that no procedure covers. `known` has names of the same image, and gets those that were read.
pub fn sums(
    selection: &Selection,
    store: &ImageStore,
    index: usize,
    known: &mut NamesByAddress,
) -> Vec<(Option<Arc<str>>, CountsByEvent)> {
    let samples = &selection.images[index];
    with_groups(selection, store, index, |groups, _| {
        let mut name = |group: &Group<'_>| match (group.source, group.address()) {
            // Procedures without an address in common may have the same place in the profile.
            (Source::Image(procedure), Some(address)) => {
                Some(known.entry(address.0).or_insert_with(|| procedure.name().into()).clone())
            }
            _ => group.name(samples).map(Into::into),
        };
        groups.into_iter().map(|group| (name(&group), group.counts)).collect()
    })
}

/// Calls `use_groups` with the samples of one image (an index) by procedure, and with notes on the image.
///
/// A whole image is opened only if its table of procedures cannot be read separately, because opening images is most of the
/// cost. If the image is not at hand, procedures have the names that the profile gives: names of ranges first, otherwise
/// names of single places.
fn with_groups<R>(
    selection: &Selection,
    store: &ImageStore,
    index: usize,
    use_groups: impl FnOnce(Vec<Group<'_>>, Vec<String>) -> R,
) -> R {
    let samples = &selection.images[index];
    if let Some(table) = store.procedure_table(&samples.record) {
        return use_groups(groups_in(samples, &table, |offset| table.address_of(offset)), Vec::new());
    }
    let found = store.find(&samples.record);
    let share = selection.share(&samples.total);
    let note = found.note.as_ref().filter(|_| share >= 0.01);
    let notes =
        note.map(|note| format!("{note} ({:.1}% of the samples)", 100.0 * share)).into_iter().collect();
    match &found.image {
        Ok(image) => {
            use_groups(groups_in(samples, image.procedures(), |offset| image.address_of(offset)), notes)
        }
        Err(_) => use_groups(groups_of_profile(samples, found.symbols(&samples.record)), notes),
    }
}

/// Samples of one procedure whose name has not been looked up.
struct Group<'a> {
    source: Source<'a>,
    points: Vec<u32>,
    counts: CountsByEvent,
}

/// Where the name of a procedure comes from.
#[derive(Clone, Copy)]
enum Source<'a> {
    /// A symbol of the image.
    Image(Procedure<'a>),
    /// A range that the profile names.
    Range(&'a ImageSymbol),
    /// The lowest place in the procedure that the profile names.
    Place(&'a ImagePlace),
    /// No symbol covers the samples.
    None,
}

impl Group<'_> {
    fn address(&self) -> Option<ImageAddress> {
        match self.source {
            Source::Image(procedure) => Some(procedure.address),
            Source::Range(symbol) => Some(ImageAddress(symbol.offset.0)),
            Source::Place(place) => Some(ImageAddress(place.start.unwrap_or(place.offset).0)),
            Source::None => None,
        }
    }

    /// Returns the samples of the primary event, by which procedures are ranked.
    fn samples(&self) -> u64 {
        self.counts.first().copied().unwrap_or(0)
    }

    /// Returns the linkage name; `None` if no symbol covers the samples.
    fn name(&self, samples: &ImageSamples) -> Option<String> {
        match self.source {
            Source::Image(procedure) => Some(procedure.name().into_owned()),
            Source::Range(symbol) => Some(symbol.name.clone()),
            Source::Place(place) => Some(self.named_by_place(place, samples).0),
            Source::None => None,
        }
    }

    fn named(self, image: usize, samples: &ImageSamples) -> ProcedureSamples {
        let address = self.address();
        let (name, demangled, size_bytes) = match self.source {
            Source::Image(procedure) => {
                let name = procedure.name().into_owned();
                let demangled = dwell_image::demangle(&name);
                (name, demangled, procedure.size_bytes)
            }
            Source::Range(symbol) => {
                (symbol.name.clone(), dwell_image::demangle(&symbol.name), symbol.size_bytes)
            }
            Source::Place(place) => self.named_by_place(place, samples),
            Source::None => (NO_SYMBOL.to_owned(), NO_SYMBOL.to_owned(), 0),
        };
        let Group { points, counts, .. } = self;
        ProcedureSamples { id: String::new(), image, name, demangled, address, size_bytes, points, counts }
    }

    /// Returns name, demangled name and size of a procedure that the profile names. It is assumed to end after the last
    /// sampled place.
    fn named_by_place(&self, place: &ImagePlace, samples: &ImageSamples) -> (String, String, u64) {
        let Some(procedure) = place.procedure() else { return Default::default() };
        let demangled = match procedure.linkage {
            Some(_) => procedure.function.to_string(),
            None => dwell_image::demangle(&procedure.function),
        };
        let start = place.start.unwrap_or(place.offset).0;
        let size =
            |&point: &u32| samples.points.offset(point as usize).0.wrapping_sub(start).saturating_add(1);
        let size_bytes = match samples.record.places.numbered {
            true => 1,
            false => self.points.iter().map(size).max().unwrap_or(1),
        };
        (procedure.linkage.as_ref().unwrap_or(&procedure.function).to_string(), demangled, size_bytes)
    }
}

/// Groups of samples, found by a key that identifies the procedure.
struct Groups<'a, K> {
    all: Vec<Group<'a>>,
    by_key: FxHashMap<K, usize>,
}

impl<'a, K: Hash + Eq> Groups<'a, K> {
    fn new() -> Self {
        Groups { all: Vec::new(), by_key: FxHashMap::default() }
    }

    /// Returns the index of the group with this key.
    fn index(&mut self, key: K, source: Source<'a>) -> usize {
        let new = self.all.len();
        let index = *self.by_key.entry(key).or_insert(new);
        if index == new {
            self.all.push(Group { source, points: Vec::new(), counts: CountsByEvent::new() });
        }
        index
    }

    fn add(&mut self, group: usize, point: usize, counts: &[u64]) {
        self.all[group].points.push(point as u32);
        add_counts(&mut self.all[group].counts, counts);
    }
}

/// Groups the samples of an image by its symbols.
fn groups_in<'t>(
    samples: &ImageSamples,
    table: &'t ProcedureTable,
    address_of: impl Fn(ImageOffset) -> Option<ImageAddress>,
) -> Vec<Group<'t>> {
    let mut groups = Groups::new();
    // Points are ascending, so the last procedure that was found contains all points until another one begins.
    let mut last: Option<(Procedure<'t>, ImageAddress, usize)> = None;
    for (point, (offset, counts)) in samples.points.iter().enumerate() {
        let address = address_of(offset);
        let holds = |(procedure, next, _): &(Procedure<'_>, ImageAddress, usize)| {
            address.is_some_and(|a| a < *next && procedure.contains(a))
        };
        let group = match last.filter(holds) {
            Some((.., group)) => group,
            None => {
                let procedure = address.and_then(|a| table.at(a));
                let source = procedure.map_or(Source::None, Source::Image);
                let group = groups.index(procedure.map(|p| p.address), source);
                last = procedure.zip(address).map(|(procedure, a)| (procedure, table.next_after(a), group));
                group
            }
        };
        groups.add(group, point, counts);
    }
    groups.all
}

/// Groups the samples of an image that is not at hand by the names that the profile gives.
fn groups_of_profile<'s>(samples: &'s ImageSamples, symbols: &'s [ImageSymbol]) -> Vec<Group<'s>> {
    let record = &samples.record;
    let mut groups = Groups::new();
    for (point, (offset, counts)) in samples.points.iter().enumerate() {
        let place = record.places.at(offset).and_then(|place| Some((place, place.procedure()?)));
        let group = match (symbol_at(symbols, offset.0), place) {
            (Some(symbol), _) => groups.index(ProfileKey::Range(symbol.offset), Source::Range(symbol)),
            (None, Some((place, procedure))) => {
                groups.index(ProfileKey::of_place(place, procedure), Source::Place(place))
            }
            (None, None) => groups.index(ProfileKey::None, Source::None),
        };
        groups.add(group, point, counts);
    }
    groups.all
}

/// Identifies a procedure that the profile names.
#[derive(PartialEq, Eq, Hash)]
enum ProfileKey<'a> {
    Range(ImageOffset),
    /// The name, and the first byte or, if that is unknown, file and line where the procedure begins.
    Place(&'a str, Result<ImageOffset, (Option<&'a str>, Option<u32>)>),
    None,
}

impl<'a> ProfileKey<'a> {
    fn of_place(place: &'a ImagePlace, procedure: &'a NamedFrame) -> Self {
        let name = procedure.linkage.as_deref().unwrap_or(&procedure.function);
        ProfileKey::Place(name, place.start.ok_or((procedure.file.as_deref(), procedure.begin)))
    }
}

/// Returns file and line where the procedure around `offset` begins, if the profile names the place. If the profile does not
/// give the first line, the line of the place itself is returned.
pub fn begin_of(record: &ImageRecord, offset: ImageOffset) -> Option<(Arc<str>, u32)> {
    let procedure = record.places.at(offset)?.procedure()?;
    procedure.file.clone().zip(procedure.begin.or(procedure.line))
}

/// Returns the symbol of a profile around an offset.
pub fn symbol_at(symbols: &[ImageSymbol], offset: u64) -> Option<&ImageSymbol> {
    let after = symbols.partition_point(|s| s.offset.0 <= offset);
    symbols[..after].last().filter(|s| offset - s.offset.0 < s.size_bytes.max(1))
}
