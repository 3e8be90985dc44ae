//! Finds programs that were rebuilt after they were sampled, so that their profile belongs to an earlier build.
//!
//! Input: the images of a selection. Output: for each image, whether the file at its path is now another build that has no
//! samples in the selection. The build ID of a file is read only if its size or time differs from the recorded one.

use std::{collections::BTreeSet, path::Path};

use dwell_image::build_id_of_file;
use dwell_profile::{ImageKind, ImageRecord, path_to_text};

use crate::{
    answer::Program,
    load::{images::unchanged, selection::Selection},
};

/// Returns the programs among `images` (indices), each path once.
pub fn programs(selection: &Selection, images: BTreeSet<usize>) -> Vec<Program> {
    let records = images.into_iter().map(|i| &selection.images[i].record);
    let paths: BTreeSet<&Path> =
        records.filter(|r| r.kind == ImageKind::File).map(|r| r.path.as_path()).collect();
    paths.into_iter().map(|path| program(selection, path)).collect()
}

fn program(selection: &Selection, path: &Path) -> Program {
    let sampled = selection.images.iter().map(|i| &i.record).filter(|r| r.path == path);
    Program { path: path_to_text(path).into_owned(), rebuilt: is_other(path, sampled) }
}

/// Returns notes on the programs that were rebuilt.
pub fn notes(programs: &[Program]) -> impl Iterator<Item = String> {
    let rebuilt = programs.iter().filter(|p| p.rebuilt);
    rebuilt.map(|p| format!("{} was rebuilt since: the profile is of the earlier build", p.path))
}

/// Returns whether the file at `path` exists and is none of those that were sampled.
fn is_other<'r>(path: &Path, mut sampled: impl Iterator<Item = &'r ImageRecord> + Clone) -> bool {
    let same = |record: &ImageRecord| record.mtime_ns.is_some() && unchanged(record, path);
    if !path.exists() || sampled.clone().any(same) {
        return false;
    }
    let now = build_id_of_file(path);
    // If a record has neither a build ID nor a time, it is unknown whether the file is another one.
    !sampled.any(|record| record.id.build_id().map_or(record.mtime_ns.is_none(), |id| now == Some(id)))
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf, time::SystemTime};

    use dwell_profile::ImageId;

    use super::*;

    /// Creates a record of the file as it is now, under an id.
    fn record(path: &Path, id: &str) -> ImageRecord {
        let meta = fs::metadata(path).unwrap();
        let mtime = meta.modified().unwrap().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        ImageRecord {
            id: ImageId::named(id),
            kind: ImageKind::File,
            path: path.to_owned(),
            deleted: false,
            size_bytes: Some(meta.len()),
            mtime_ns: i64::try_from(mtime.as_nanos()).ok(),
            symbols: Vec::new(),
            places: Default::default(),
            kernel_builds: Vec::new(),
        }
    }

    /// Copies a library that has a build ID. Returns the folder, the path of the copy and the build ID.
    fn library() -> (tempfile::TempDir, PathBuf, String) {
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../test-fixtures/images/c-shared.so");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("library.so");
        fs::copy(fixture, &path).unwrap();
        let id = build_id_of_file(&path).expect("it has one").to_string();
        (folder, path, id)
    }

    fn earlier(record: &ImageRecord) -> ImageRecord {
        ImageRecord { mtime_ns: record.mtime_ns.map(|ns| ns - 1), ..record.clone() }
    }

    #[test]
    fn only_another_build_at_the_path_is_a_rebuild() {
        let (_folder, path, id) = library();
        let (same, other) = (record(&path, &id), record(&path, "00ff"));
        let is_other = |records: &[ImageRecord]| is_other(&path, records.iter());
        assert!(!is_other(std::slice::from_ref(&same)), "the file that was sampled");
        assert!(!is_other(&[earlier(&same)]), "touched or installed again: the build id is the same");
        assert!(is_other(&[earlier(&other)]), "another build id");
        assert!(!is_other(&[earlier(&other), earlier(&same)]), "one of several builds that were sampled");
    }

    #[test]
    fn without_a_build_id_only_time_and_size_reveal_a_rebuild() {
        let (_folder, path, _) = library();
        let by_time = record(&path, "file:1:2:3:4");
        let unknown = ImageRecord { mtime_ns: None, size_bytes: None, ..by_time.clone() };
        assert!(!is_other(&path, [by_time.clone()].iter()));
        assert!(is_other(&path, [earlier(&by_time)].iter()));
        assert!(is_other(&path, [ImageRecord { size_bytes: Some(1), ..by_time }].iter()));
        assert!(!is_other(&path, [unknown].iter()));
    }

    #[test]
    fn a_missing_file_is_not_a_rebuild() {
        let (folder, path, _) = library();
        let sampled = earlier(&record(&path, "00ff"));
        drop(folder);
        assert!(!is_other(&path, [sampled].iter()));
    }

    #[test]
    fn a_note_names_the_rebuilt_program() {
        let program = |path: &str, rebuilt| Program { path: path.to_owned(), rebuilt };
        let all = [program("/a", false), program("/b", true)];
        let notes: Vec<String> = notes(&all).collect();
        assert_eq!(notes, ["/b was rebuilt since: the profile is of the earlier build"]);
    }
}
