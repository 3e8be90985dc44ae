//! Finds the procedures that were compiled from a source file.
//!
//! Input: procedures with samples, and the name of a file. Output: the procedures with sampled code from files of that name.

use std::{collections::BTreeSet, path::Path, sync::Arc};

use dwell_image::{Image, ImageAddress};
use dwell_profile::text_to_path;
use rustc_hash::FxHashMap;

use crate::{
    Cancel, QueryError,
    analyse::{
        costs::LINES_SHARE_MIN,
        procedures::{ProcedureSamples, begin_of},
    },
    load::{
        images::{Found, ImageStore},
        samples::ImageSamples,
        selection::Selection,
        source::SourceMap,
    },
    parallel::in_parallel,
};

/// Index of the procedures with sampled instructions from source files of one name. An index of all files would require the
/// lines of every image, although the user has only one file open.
#[derive(Default)]
pub struct FileIndex {
    /// Maps a file, as the debug information spells it, to the indices of its procedures, ascending.
    files: FxHashMap<Arc<str>, BTreeSet<usize>>,
    /// Maps a file to the procedures that begin in it, each with its line.
    begins: FxHashMap<Arc<str>, Vec<(u32, usize)>>,
}

/// The files of one name that a procedure has code from.
struct Parts {
    procedure: usize,
    files: Vec<Arc<str>>,
    begin: Option<(Arc<str>, u32)>,
}

impl FileIndex {
    /// Builds the index from the lines of the procedures whose compilation units list a file called `name`. Uses all
    /// processors.
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
        // Procedures are visited by ascending address, so that the lines of a compilation unit are read once and can be
        // dropped afterwards.
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

    /// Returns the [`spellings`] of `path` in the debug information. The name of `path` is the index's name.
    pub fn spellings(&self, path: &Path, sources: &SourceMap) -> Vec<Arc<str>> {
        spellings(self.files.keys().collect(), path, sources)
    }

    /// Returns the indices of the procedures with sampled instructions from `file`.
    pub fn procedures_in(&self, file: &str) -> impl Iterator<Item = usize> {
        self.files.get(file).into_iter().flatten().copied()
    }

    /// Returns the procedures that begin in `file`, each with its line.
    pub fn procedures_beginning_in(&self, file: &str) -> impl Iterator<Item = (u32, usize)> {
        self.begins.get(file).into_iter().flatten().copied()
    }
}

/// Returns those of `candidates`, files as the debug information spells them, that are the file at `path`. All of them have the
/// name of `path`, and `sources` maps recorded folders to folders here. All spellings of the same file are returned. If the recorded
/// file is not on this machine, the result is the only recorded file that ends in the same two or more path components.
pub fn spellings(candidates: Vec<&Arc<str>>, path: &Path, sources: &SourceMap) -> Vec<Arc<str>> {
    let canonical = path.canonicalize().ok();
    let is_same = |file: &Path| file == path || canonical.is_some() && file.canonicalize().ok() == canonical;
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

fn common_tail(a: &Path, b: &Path) -> usize {
    a.components().rev().zip(b.components().rev()).take_while(|(x, y)| x == y).count()
}

/// Number of neighbouring procedures that one thread processes in a row.
const PROCEDURES_AT_ONCE: usize = 64;

/// Returns the files called `name` that `procedure` has code from; `None` if there are none.
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

/// Does the same as [`parts_of`] for an image that is not on this machine, with the places that the profile names.
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

/// Keeps the files that are called `name`, and the place where the procedure begins if its file is called so.
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

/// Size of a procedure up to which all of its code is examined. A sample may land after the instruction that was waited for,
/// and that instruction may have been inlined from another file. So in a procedure that matters, [`BEFORE_BYTES`] bytes
/// before each sample are examined as well. The first instruction of a loop may wait for the last one, so a procedure that
/// is small enough (most are) is examined completely.
const WHOLE_BYTES_MAX: u64 = 4096;
const BEFORE_BYTES: u64 = 32;

fn before(address: ImageAddress) -> ImageAddress {
    ImageAddress(address.0.saturating_sub(BEFORE_BYTES))
}
