//! Samples by procedure, and procedures by name.
//!
//! Cost: one look-up in an image's sorted symbols for each distinct sampled offset.

use std::sync::Arc;

use dwell_image::{Image, ImageAddress};
use dwell_profile::{
    ImageKind, ImageOffset, ImagePlace, ImageRecord, ImageSymbol, name_to_text, path_to_text,
};
use rustc_hash::FxHashMap;

use crate::{
    Cancel, QueryError, brief,
    images::ImageStore,
    scales::in_parallel,
    selection::{CountsByEvent, ImageSamples, Selection, add_counts},
    similar,
};

/// What stands where a name would, for samples that no symbol covers.
pub const NO_SYMBOL: &str = "[no symbol]";

/// One procedure's samples.
#[derive(Clone, Debug)]
pub struct ProcedureSamples {
    /// What names it to [`by_name`], and nothing else: `IMAGE:NAME`, or `IMAGE_ID:0xADDRESS` where that is ambiguous.
    pub id: String,
    /// Index into [`Selection::images`].
    pub image: usize,
    /// Linkage name.
    pub name: String,
    /// As the programmer wrote it.
    pub demangled: String,
    /// First byte; `None` for [`NO_SYMBOL`].
    pub address: Option<ImageAddress>,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Indices into the image's points, ascending.
    pub points: Vec<u32>,
    /// Sum over `points`.
    pub counts: CountsByEvent,
}

/// Every procedure with samples, on all processors; most samples of the primary event first (ties: by image and address).
pub fn sampled(
    selection: &Selection,
    store: &ImageStore,
    cancel: &Cancel,
) -> Result<Vec<ProcedureSamples>, QueryError> {
    // Whole images are opened for the procedures that are asked about, not to tell which there are: that is most of it.
    let images: Vec<(usize, &ImageSamples)> =
        selection.images.iter().enumerate().filter(|(_, image)| !image.points.is_empty()).collect();
    let found = in_parallel(&images, |(index, image)| {
        cancel.check().ok()?;
        Some(match store.outline(&image.record) {
            Some(outline) => brief::in_outline(*index, image, &outline),
            None => in_image(*index, image, store.find(&image.record).image.as_deref().ok()),
        })
    });
    cancel.check()?;
    let mut all: Vec<ProcedureSamples> = found.into_iter().flatten().collect();
    all.sort_by_key(|p| (std::cmp::Reverse(p.counts.first().copied()), p.image, p.address));
    name_uniquely(selection, &mut all);
    Ok(all)
}

/// The procedure called `NAME` or `IMAGE:NAME`, where NAME is a linkage name, a demangled name with or without its
/// parameters, or a hexadecimal address (`0x…`) in the procedure, and IMAGE a path, a file's name or an image id.
/// Those with samples come before those without.
pub fn by_name(
    selection: &Selection,
    store: &ImageStore,
    sampled: &[ProcedureSamples],
    name: &str,
) -> Result<ProcedureSamples, QueryError> {
    let readings = readings(name);
    let matches: Vec<&ProcedureSamples> =
        sampled.iter().filter(|p| readings.iter().any(|r| r.fits(selection, p))).collect();
    match matches[..] {
        [one] => Ok(one.clone()),
        [] => by_symbol(selection, store, sampled, &readings).ok_or_else(|| QueryError::NoProcedure {
            name: name.to_owned(),
            epoch: selection.name(),
            similar: similar(selection, store, sampled, &readings),
        }),
        _ => Err(QueryError::Ambiguous {
            name: name.to_owned(),
            candidates: matches.iter().take(10).map(|p| p.id.clone()).collect(),
        }),
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

/// An image's file name, or what stands for it.
pub fn image_name(record: &ImageRecord) -> String {
    if record.kind == ImageKind::Jit {
        return record.id.to_string(); // mapped from nothing: `//anon` says less than `jit:node`
    }
    name_to_text(record.path.file_name().unwrap_or(record.path.as_os_str())).into_owned()
}

/// One way to read `[IMAGE:]NAME`, given that names and paths may hold colons.
struct Reading<'a> {
    image: Option<&'a str>,
    name: &'a str,
    address: Option<u64>,
}

fn readings(text: &str) -> Vec<Reading<'_>> {
    let bytes = text.as_bytes();
    let single_colon =
        |i: &usize| bytes[*i] == b':' && bytes.get(i + 1) != Some(&b':') && (*i == 0 || bytes[i - 1] != b':');
    let splits = (0..bytes.len()).filter(single_colon).map(|i| (Some(&text[..i]), &text[i + 1..]));
    std::iter::once((None, text))
        .chain(splits)
        .map(|(image, name)| {
            let address = name.strip_prefix("0x").and_then(|h| u64::from_str_radix(h, 16).ok());
            Reading { image, name, address }
        })
        .collect()
}

impl Reading<'_> {
    fn fits(&self, selection: &Selection, p: &ProcedureSamples) -> bool {
        self.fits_image(&selection.images[p.image].record)
            && (self.fits_name(&p.name, &p.demangled)
                || p.address.is_some_and(|a| self.fits_address(a, p.size_bytes)))
    }

    fn fits_image(&self, record: &ImageRecord) -> bool {
        let Some(image) = self.image else { return true };
        path_to_text(&record.path) == image || record.id.as_str() == image || image_name(record) == image
    }

    fn fits_name(&self, name: &str, demangled: &str) -> bool {
        // A part or copy that the compiler made is not the function: it is offered, not taken.
        let whole = similar::without_clones(demangled).len() == demangled.len();
        self.name == name || self.name == demangled || whole && self.name == without_parameters(demangled)
    }

    /// Whether the name is what a procedure is called without what compilers and namespaces add.
    fn resembles(&self, name: &str, demangled: &str) -> bool {
        let written = similar::without_clones(demangled);
        self.name == similar::without_clones(name)
            || self.name == written
            || similar::ends_in(&similar::without_arguments(without_parameters(written)), self.name)
    }

    fn fits_address(&self, start: ImageAddress, size_bytes: u64) -> bool {
        self.address.is_some_and(|a| a >= start.0 && a - start.0 < size_bytes.max(1))
    }
}

fn without_parameters(demangled: &str) -> &str {
    // `operator()` and `(anonymous namespace)` hold parentheses too: only a parameter list ends the name.
    match demangled.rfind(')') {
        Some(close) if !demangled[close..].contains("::") => {
            let mut depth = 0;
            let open = demangled[..=close].char_indices().rev().find(|(_, c)| {
                depth += match c {
                    ')' => 1,
                    '(' => -1,
                    _ => 0,
                };
                depth == 0
            });
            open.map_or(demangled, |(i, _)| &demangled[..i])
        }
        _ => demangled,
    }
}

/// The procedure whose symbols, aliases among them, have that name: with its samples, where it has any.
fn by_symbol(
    selection: &Selection,
    store: &ImageStore,
    sampled: &[ProcedureSamples],
    readings: &[Reading<'_>],
) -> Option<ProcedureSamples> {
    let mut images = selection.images.iter().enumerate();
    images.find_map(|(index, samples)| {
        let readings: Vec<_> = readings.iter().filter(|r| r.fits_image(&samples.record)).collect();
        let found = store.find(&samples.record);
        let image = found.image.as_deref().ok().filter(|_| !readings.is_empty())?;
        let fits = |p: &&dwell_image::Procedure| {
            readings
                .iter()
                .any(|r| r.fits_name(&p.name, p.demangled()) || r.fits_address(p.address, p.size_bytes))
        };
        let fits_alias = |p: &&dwell_image::Procedure| {
            let mut aliases = p.aliases.iter();
            aliases.any(|a| readings.iter().any(|r| r.fits_name(a, &dwell_image::demangle(a))))
        };
        let procedures = image.procedures().iter();
        let found = procedures.clone().find(fits).or_else(|| procedures.clone().find(fits_alias))?;
        let known = sampled.iter().find(|s| s.image == index && s.address == Some(found.address));
        Some(known.cloned().unwrap_or_else(|| from_symbol(index, found)))
    })
}

/// So many similar names are offered.
const SIMILAR_MAX: usize = 10;

/// Procedures that a name may have meant, those with samples first.
fn similar(
    selection: &Selection,
    store: &ImageStore,
    sampled: &[ProcedureSamples],
    readings: &[Reading<'_>],
) -> Vec<(String, u64)> {
    let fits = |record: &ImageRecord, name: &str, demangled: &str| {
        readings.iter().any(|r| r.fits_image(record) && r.resembles(name, demangled))
    };
    let with_samples = sampled
        .iter()
        .filter(|p| fits(&selection.images[p.image].record, &p.name, &p.demangled))
        .map(|p| (p.id.clone(), p.counts.first().copied().unwrap_or(0)));
    let mut found: Vec<(String, u64)> = with_samples.take(SIMILAR_MAX).collect();
    for samples in &selection.images {
        let image = store.find(&samples.record);
        let procedures = image.image.as_deref().map_or(&[][..], Image::procedures);
        for p in procedures {
            if found.len() >= SIMILAR_MAX {
                return found;
            }
            let id = format!("{}:{}", image_name(&samples.record), p.name);
            if fits(&samples.record, &p.name, p.demangled()) && found.iter().all(|(known, _)| *known != id) {
                found.push((id, 0));
            }
        }
    }
    found
}

fn from_symbol(image: usize, p: &dwell_image::Procedure) -> ProcedureSamples {
    ProcedureSamples {
        id: String::new(),
        image,
        name: p.name.to_string(),
        demangled: p.demangled().to_owned(),
        address: Some(p.address),
        size_bytes: p.size_bytes,
        points: Vec::new(),
        counts: CountsByEvent::new(),
    }
}

/// The procedures of one image with samples, in no order, without ids. Where the image is not at hand, they have the names that the
/// profile gave: of ranges first, of single places else.
pub fn in_image(index: usize, samples: &ImageSamples, image: Option<&Image>) -> Vec<ProcedureSamples> {
    let mut by_start: FxHashMap<Option<ImageAddress>, ProcedureSamples> = FxHashMap::default();
    let mut by_name: FxHashMap<NameKey<'_>, ProcedureSamples> = FxHashMap::default();
    let record = &samples.record;
    for (i, (offset, counts)) in samples.points.iter().enumerate() {
        let entry = match image {
            Some(image) => match image.address_of(offset).and_then(|a| image.procedure_at(a)) {
                Some(p) => by_start.entry(Some(p.address)).or_insert_with(|| from_symbol(index, p)),
                None => by_start.entry(None).or_insert_with(|| nameless(index)),
            },
            None => match (symbol_at(&record.symbols, offset.0), record.places.at(offset)) {
                (Some(s), _) => {
                    let start = Some(ImageAddress(s.offset.0));
                    by_start.entry(start).or_insert_with(|| from_record(index, s))
                }
                (None, Some(place)) => {
                    let named = by_name.entry(name_key(place)).or_insert_with(|| from_place(index, place));
                    if let Some(start) = named.address.filter(|_| !record.places.numbered) {
                        named.size_bytes =
                            named.size_bytes.max(offset.0.wrapping_sub(start.0).saturating_add(1));
                    }
                    named
                }
                (None, None) => by_start.entry(None).or_insert_with(|| nameless(index)),
            },
        };
        entry.points.push(i as u32);
        add_counts(&mut entry.counts, counts);
    }
    by_start.into_values().chain(by_name.into_values()).collect()
}

/// What tells the procedures apart that a profile named: their first byte, or where that is not known their source.
type NameKey<'a> = (&'a str, Result<ImageOffset, (Option<&'a str>, Option<u32>)>);

fn name_key(place: &ImagePlace) -> NameKey<'_> {
    let Some(procedure) = place.procedure() else { return ("", Err((None, None))) };
    let name = procedure.linkage.as_deref().unwrap_or(&procedure.function);
    (name, place.start.ok_or((procedure.file.as_deref(), procedure.begin)))
}

/// File and line that the procedure around `offset` begins at, where the profile says it; its line there where it does not say
/// the first one.
pub fn begin_of(record: &ImageRecord, offset: ImageOffset) -> Option<(Arc<str>, u32)> {
    let procedure = record.places.at(offset)?.procedure()?;
    procedure.file.clone().zip(procedure.begin.or(procedure.line))
}

/// A procedure that the profile named; points ascend, so the first place is the lowest.
fn from_place(image: usize, place: &ImagePlace) -> ProcedureSamples {
    let Some(procedure) = place.procedure() else { return nameless(image) };
    let demangled = match procedure.linkage {
        Some(_) => procedure.function.to_string(),
        None => dwell_image::demangle(&procedure.function),
    };
    ProcedureSamples {
        name: procedure.linkage.as_ref().unwrap_or(&procedure.function).to_string(),
        demangled,
        address: Some(ImageAddress(place.start.unwrap_or(place.offset).0)),
        size_bytes: 1,
        ..nameless(image)
    }
}

/// No procedure, without samples.
pub fn nameless(image: usize) -> ProcedureSamples {
    ProcedureSamples {
        id: String::new(),
        image,
        name: NO_SYMBOL.to_owned(),
        demangled: NO_SYMBOL.to_owned(),
        address: None,
        size_bytes: 0,
        points: Vec::new(),
        counts: CountsByEvent::new(),
    }
}

fn from_record(image: usize, symbol: &ImageSymbol) -> ProcedureSamples {
    ProcedureSamples {
        name: symbol.name.clone(),
        demangled: dwell_image::demangle(&symbol.name),
        address: Some(ImageAddress(symbol.offset.0)),
        size_bytes: symbol.size_bytes,
        ..nameless(image)
    }
}

fn symbol_at(symbols: &[ImageSymbol], offset: u64) -> Option<&ImageSymbol> {
    let after = symbols.partition_point(|s| s.offset.0 <= offset);
    symbols[..after].last().filter(|s| offset - s.offset.0 < s.size_bytes.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_demangled_name_loses_its_parameters_only() {
        for (full, short) in [
            ("main", "main"),
            ("ns::f(int, char)", "ns::f"),
            ("A::operator()(int)", "A::operator()"),
            ("(anonymous namespace)::f(void (*)(int))", "(anonymous namespace)::f"),
            ("core::ops::function::FnOnce::call_once", "core::ops::function::FnOnce::call_once"),
            ("f()::{lambda()#1}::operator()", "f()::{lambda()#1}::operator"),
        ] {
            assert_eq!(without_parameters(full), short);
        }
    }

    #[test]
    fn an_image_is_split_off_at_single_colons_only() {
        let read = |text| readings(text).iter().map(|r| (r.image, r.name)).collect::<Vec<_>>();
        assert_eq!(read("a::b"), [(None, "a::b")]);
        assert_eq!(read("lib.so:a::b"), [(None, "lib.so:a::b"), (Some("lib.so"), "a::b")]);
    }
}
