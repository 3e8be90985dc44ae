//! Programs that were built again since they were sampled: their profile is of the build before.
//!
//! Enters: the images of a selection. Leaves: for each, whether what lies at its path now is another build that no
//! sample of the selection is of. A file's build id is read only where its size or time differ from what was recorded.

use std::{collections::BTreeSet, path::Path};

use dwell_image::build_id_of_file;
use dwell_profile::{ImageKind, ImageRecord};

use crate::{answer::Program, images::unchanged, selection::Selection};

/// The programs among `images` (indices), each path once.
pub fn programs(selection: &Selection, images: BTreeSet<usize>) -> Vec<Program> {
    let records = images.into_iter().map(|i| &selection.images[i].record);
    let paths: BTreeSet<&Path> =
        records.filter(|r| r.kind == ImageKind::File).map(|r| r.path.as_path()).collect();
    paths.into_iter().map(|path| program(selection, path)).collect()
}

fn program(selection: &Selection, path: &Path) -> Program {
    let sampled = selection.images.iter().map(|i| &i.record).filter(|r| r.path == path);
    Program { path: path.display().to_string(), rebuilt: is_other(path, sampled) }
}

/// What a reader must know of them.
pub fn notes(programs: &[Program]) -> impl Iterator<Item = String> {
    let rebuilt = programs.iter().filter(|p| p.rebuilt);
    rebuilt.map(|p| format!("{} was rebuilt since: the profile is of the build before", p.path))
}

/// Whether the file at `path` is there, and is none of those that were sampled.
fn is_other<'r>(path: &Path, mut sampled: impl Iterator<Item = &'r ImageRecord> + Clone) -> bool {
    let same = |record: &ImageRecord| record.mtime_ns.is_some() && unchanged(record, path);
    if !path.exists() || sampled.clone().any(same) {
        return false;
    }
    let now = build_id_of_file(path);
    // Without a build id and a time, nothing tells.
    !sampled.any(|record| record.id.build_id().map_or(record.mtime_ns.is_none(), |id| now == Some(id)))
}
