//! Source files as they were when samples were taken, and maps from their lines to current lines.

use std::{
    borrow::Cow,
    collections::HashMap,
    ops::Range,
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use dwell_profile::{Database, MAX_SOURCE_BYTES, SourceRecord, path_to_text};
use md5::{Digest, Md5};

use crate::{
    answer::SourceState,
    differences::{Stretch, stretches},
    load::{samples::ImageSamples, selection::Selection},
};

/// Maps lines as they were built to current lines.
pub enum LineMap {
    /// No line moved.
    Same,
    /// Some lines moved, were edited or are gone.
    Moved(Moved),
}

/// Maps of line numbers as built to current ones, from 1. Lines that are gone are in neither map.
#[derive(Default)]
pub struct Moved {
    /// Lines with unchanged text.
    pub same: HashMap<u32, u32>,
    /// Lines that were edited in place.
    pub edited: HashMap<u32, u32>,
}

impl LineMap {
    /// Returns the current number of `line`; `None` if it was edited or is gone.
    pub fn now(&self, line: u32) -> Option<u32> {
        match self {
            LineMap::Same => Some(line),
            LineMap::Moved(moved) => moved.same.get(&line).copied(),
        }
    }

    /// Returns the current number of `line` if it was edited in place.
    pub fn edited(&self, line: u32) -> Option<u32> {
        match self {
            LineMap::Same => None,
            LineMap::Moved(moved) => moved.edited.get(&line).copied(),
        }
    }
}

/// Evidence of the text of a source file when its program was built.
#[derive(Clone, Copy, Debug, Default)]
pub struct Built {
    /// MD5 of the text, if the debug information contains it (DWARF 5).
    pub md5: Option<[u8; 16]>,
    /// Modification time of the program, in ns since 1970.
    pub image_mtime_ns: Option<i64>,
}

/// Result of comparing a source file with the one that was built.
pub struct Compared {
    /// How the current file relates to the file that was built.
    pub state: SourceState,
    /// Map from lines as built to current lines; `None` if there is none.
    pub lines: Option<LineMap>,
    /// Note for the reader, if one is needed.
    pub note: Option<String>,
}

impl Built {
    /// Returns whether `text`, last modified at `mtime_ns`, is the text that was compiled; `None` if that is unknown. The
    /// MD5 takes precedence over the times.
    pub fn is(&self, text: &[u8], mtime_ns: Option<i64>) -> Option<bool> {
        match self.md5 {
            Some(md5) => Some(md5 == <[u8; 16]>::from(Md5::digest(text))),
            None => Some(mtime_ns? <= self.image_mtime_ns?),
        }
    }
}

/// Maps folders of sources that were compiled elsewhere (in a container, on another machine, with `-ffile-prefix-map`) to
/// folders here.
#[derive(Clone, Debug, Default)]
pub struct SourceMap(Vec<(PathBuf, PathBuf)>);

impl SourceMap {
    /// Creates a map from folders, as the debug information spells them, to folders here. The first pair that matches is
    /// used. `.` matches every relative path.
    pub fn new(folders: Vec<(PathBuf, PathBuf)>) -> Self {
        SourceMap(folders)
    }

    /// Returns the path here of the file that the debug information spells `file`.
    pub fn here<'f>(&self, file: &'f Path) -> Cow<'f, Path> {
        let rest = |from: &Path| match from == Path::new(".") && file.is_relative() {
            true => Some(file),
            false => file.strip_prefix(from).ok(),
        };
        let mapped = self.0.iter().find_map(|(from, to)| Some(to.join(rest(from)?)));
        mapped.map_or(Cow::Borrowed(file), Cow::Owned)
    }
}

/// Compares the file at `path` with the one that was built: by the snapshot that was stored with the samples if there is
/// one, otherwise by `built`.
pub fn compare(database: &Database, snapshot: Option<&SourceRecord>, path: &Path, built: &Built) -> Compared {
    let Ok(now) = read(path) else {
        let note = Some(format!("{}: cannot be read here", path.display()));
        return Compared { state: SourceState::Unchecked, lines: Some(LineMap::Same), note };
    };
    if let Some(record) = snapshot {
        return against_snapshot(database, record, &now);
    }
    match built.is(&now, mtime_ns(path)) {
        Some(true) => Compared { state: SourceState::Fresh, lines: Some(LineMap::Same), note: None },
        Some(false) if built.md5.is_some() => stale("its text is not what was compiled (MD5)"),
        Some(false) => stale("it is newer than the program, and no snapshot was kept"),
        None => Compared { state: SourceState::Unchecked, lines: Some(LineMap::Same), note: None },
    }
}

/// Returns the text of the file at `path` as it was built: the snapshot, or the file itself unless there is evidence that it
/// changed.
pub fn text_as_built(
    database: &Database,
    snapshot: Option<&SourceRecord>,
    path: &Path,
    built: &Built,
) -> Option<String> {
    let bytes = snapshot.and_then(|r| database.source_text(r).ok()).or_else(|| {
        let now = read(path).ok()?;
        (built.is(&now, mtime_ns(path)) != Some(false)).then_some(now)
    })?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the snapshot of the file that the debug information spells `file`. It is from the newest epoch that sampled the
/// image. An image that was rebuilt since has another id, and its own epochs have their own snapshots.
pub fn snapshot<'s>(selection: &'s Selection, image: &ImageSamples, file: &str) -> Option<&'s SourceRecord> {
    let of_epoch =
        |epoch: &usize| selection.sources.get(*epoch)?.iter().find(|s| path_to_text(&s.path) == file);
    image.epochs.iter().rev().find_map(of_epoch)
}

/// Reads the text of a source file. Debug information may name anything (`/dev/zero`), so only files of a plausible size are
/// read.
pub fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    match std::fs::metadata(path)? {
        meta if meta.is_file() && meta.len() <= MAX_SOURCE_BYTES => std::fs::read(path),
        _ => Err(std::io::Error::other("no source file")),
    }
}

/// Returns when the file at `path` was last modified, in ns since 1970.
pub fn mtime_ns(path: &Path) -> Option<i64> {
    let time = std::fs::metadata(path).ok()?.modified().ok()?;
    i64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_nanos()).ok()
}

fn stale(why: &str) -> Compared {
    let note = Some(format!("the source is not the one that was profiled: {why}"));
    Compared { state: SourceState::Stale, lines: None, note }
}

fn against_snapshot(database: &Database, record: &SourceRecord, now: &[u8]) -> Compared {
    if record.is_of(now) {
        return Compared { state: SourceState::Fresh, lines: Some(LineMap::Same), note: None };
    }
    let then = match database.source_text(record) {
        Ok(then) => then,
        Err(e) => return stale(&e.to_string()),
    };
    let map = map_lines(&String::from_utf8_lossy(&then), &String::from_utf8_lossy(now));
    let note = "the source changed since it was profiled: unchanged lines were found again, edited ones are left out";
    Compared { state: SourceState::Mapped, lines: Some(LineMap::Moved(map)), note: Some(note.to_owned()) }
}

/// Maps the lines of a text to those of a later one. If as many lines were removed in one place as were added there, they
/// count as edited. Otherwise it is unknown which line became which.
pub fn map_lines(then: &str, now: &str) -> Moved {
    let [then, now] = [then, now].map(|text| text.split_inclusive('\n').collect::<Vec<_>>());
    let mut moved = Moved::default();
    let lines = |a: Range<usize>, b: Range<usize>| a.zip(b).map(|(a, b)| (a as u32 + 1, b as u32 + 1));
    for stretch in stretches(then.into_iter(), now.into_iter()) {
        match stretch {
            Stretch::Same { a, b } => moved.same.extend(lines(a, b)),
            Stretch::Differs { a, b } if a.len() == b.len() => moved.edited.extend(lines(a, b)),
            Stretch::Differs { .. } => {}
        }
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unchanged_lines_are_found_again_and_edited_ones_are_not() {
        let Moved { same, edited } = map_lines("a\nb\nc\nd\n", "new\na\nB\nc\nd\n");
        let mut pairs: Vec<_> = same.into_iter().collect();
        pairs.sort();
        assert_eq!(pairs, [(1, 2), (3, 4), (4, 5)]);
        assert_eq!(edited.into_iter().collect::<Vec<_>>(), [(2, 3)]);
        assert!(map_lines("a\nb\nc\n", "a\nB\nb2\nc\n").edited.is_empty());
    }

    #[test]
    fn sources_are_looked_for_where_they_are_here() {
        let map =
            SourceMap::new(vec![("/build/app".into(), "/home/me/app".into()), (".".into(), "/src".into())]);
        for (built, here) in [
            ("/build/app/src/a.c", "/home/me/app/src/a.c"),
            ("/build/apple/a.c", "/build/apple/a.c"),
            ("lib/b.c", "/src/lib/b.c"),
        ] {
            assert_eq!(map.here(Path::new(built)), Path::new(here));
        }
    }

    #[test]
    fn md5_counts_before_times() {
        let md5 = Some(Md5::digest(b"text").into());
        assert_eq!(Built { md5, image_mtime_ns: Some(1) }.is(b"text", Some(2)), Some(true));
        assert_eq!(Built { md5, image_mtime_ns: Some(3) }.is(b"txet", Some(2)), Some(false));
        assert_eq!(Built { md5: None, image_mtime_ns: Some(3) }.is(b"", Some(2)), Some(true));
        assert_eq!(Built { md5: None, image_mtime_ns: None }.is(b"", Some(2)), None);
    }
}
