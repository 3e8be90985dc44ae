//! Names of folders and files, and the rules for which segments of a folder are live. `FORMAT.md` gives the reasons.

use std::path::{Path, PathBuf};

use crate::{DatabaseError, EpochId};

use super::disk::Entry;

pub(crate) const FORMAT_FILE: &str = "FORMAT";
pub(crate) const EPOCH_FILE: &str = "epoch.json";
pub(crate) const SOURCES_FILE: &str = "sources.jsonl";
pub(crate) const EPOCH_LOCK_FILE: &str = "lock";
/// The file that counts how often segments beyond the first were removed after they had been merged.
pub(crate) const REMOVALS_FILE: &str = ".removals";

/// The paths of a database.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) root: PathBuf,
}

impl Layout {
    pub(crate) fn format(&self) -> PathBuf {
        self.root.join(FORMAT_FILE)
    }

    pub(crate) fn epochs(&self) -> PathBuf {
        self.root.join("epochs")
    }

    pub(crate) fn sources(&self) -> PathBuf {
        self.root.join("sources")
    }

    pub(crate) fn images(&self) -> PathBuf {
        self.root.join("images")
    }

    pub(crate) fn symbols(&self) -> PathBuf {
        self.root.join("symbols")
    }

    pub(crate) fn temporary(&self) -> PathBuf {
        self.root.join("tmp")
    }

    pub(crate) fn locks(&self) -> PathBuf {
        self.root.join("locks")
    }

    pub(crate) fn metadata_lock(&self) -> PathBuf {
        self.locks().join("metadata")
    }

    pub(crate) fn writer_lock(&self, host: &str) -> PathBuf {
        self.locks().join(format!("writer-{}", file_name_of_host(host)))
    }

    /// Returns the prefix of temporary names of the host's one writer. No other host uses it, because '@' occurs in no
    /// host name. Temporary names of other processes that hold the metadata lock start with `m-`.
    pub(crate) fn writer_prefix(host: &str) -> String {
        format!("w-{}@", file_name_of_host(host))
    }

    /// Returns the epoch's folder. The id is checked, because it may come from a user.
    pub(crate) fn epoch(&self, id: &EpochId) -> Result<PathBuf, DatabaseError> {
        if is_epoch_id(&id.0) {
            Ok(self.epochs().join(&id.0))
        } else {
            Err(DatabaseError::BadEpochId(id.0.clone()))
        }
    }
}

/// Returns whether a text can be an epoch's id and therefore the name of a folder.
pub(crate) fn is_epoch_id(text: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    (1..=64).contains(&text.len()) && text.bytes().all(allowed) && !text.starts_with('-')
}

fn file_name_of_host(host: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    let name: String = host.chars().take(100).map(|c| if allowed(c) { c } else { '_' }).collect();
    if name.is_empty() { "unnamed".to_owned() } else { name }
}

/// The numbers of the appends that a segment holds: one number, or after compaction all from `first` to `last`.
///
/// The file is named `segment-000007.parquet` or `segment-000001-000009.parquet`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SegmentRange {
    /// The first append, counted from 1.
    pub first: u64,
    /// The last append, equal to `first` before compaction.
    pub last: u64,
}

impl SegmentRange {
    pub(crate) fn one(number: u64) -> Self {
        SegmentRange { first: number, last: number }
    }

    /// Parses `7` or `1-9`; returns `None` for any text that Dwell would not write.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let number = |t: &str| t.bytes().all(|b| b.is_ascii_digit()).then(|| t.parse::<u64>().ok()).flatten();
        let range = match text.split_once('-') {
            None => SegmentRange::one(number(text)?),
            Some((first, last)) => SegmentRange { first: number(first)?, last: number(last)? },
        };
        (range.first >= 1 && range.first <= range.last).then_some(range)
    }

    pub(crate) fn file_name(self) -> String {
        format!("segment-{self}.parquet")
    }

    fn of_file(name: &str) -> Option<Self> {
        let range = Self::parse(name.strip_prefix("segment-")?.strip_suffix(".parquet")?)?;
        // Each range has exactly one name: a second spelling would be a second copy of the same samples.
        (range.file_name() == name).then_some(range)
    }
}

impl std::fmt::Display for SegmentRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:06}", self.first)?;
        if self.last == self.first { Ok(()) } else { write!(f, "-{:06}", self.last) }
    }
}

/// The segments of an epoch's folder, classified.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SegmentList {
    /// The segments that count: ascending and disjoint.
    pub(crate) live: Vec<SegmentRange>,
    /// Segments whose samples are in another segment, left by an interrupted compaction. Ascending.
    pub(crate) superseded: Vec<SegmentRange>,
    /// Files that are not ours, or that overlap other segments without containing them; each with the reason.
    pub(crate) foreign: Vec<(String, &'static str)>,
}

impl SegmentList {
    pub(crate) fn of(entries: &[Entry]) -> Self {
        let mut list = SegmentList::default();
        let mut ranges = Vec::new();
        for entry in entries {
            match SegmentRange::of_file(&entry.name) {
                Some(range) if !entry.is_dir => ranges.push(range),
                _ if is_expected(&entry.name) => {}
                _ => list.foreign.push((entry.name.clone(), "not a file of this database")),
            }
        }
        ranges.sort_by_key(|r| (r.first, std::cmp::Reverse(r.last)));
        for range in ranges {
            let covered_last = list.live.last().map_or(0, |r| r.last);
            if range.first > covered_last {
                list.live.push(range);
            } else if range.last <= covered_last {
                list.superseded.push(range);
            } else {
                list.foreign
                    .push((range.file_name(), "overlaps another segment: its samples would count twice"));
            }
        }
        list
    }

    /// Returns the appends between 1 and the last that no segment holds. The result is empty unless a file was removed
    /// by others, or the folder was listed during a compaction.
    pub(crate) fn gaps(&self) -> Vec<SegmentRange> {
        let mut next = 1;
        let mut gaps = Vec::new();
        for range in &self.live {
            if range.first > next {
                gaps.push(SegmentRange { first: next, last: range.first - 1 });
            }
            next = range.last.saturating_add(1);
        }
        gaps
    }
}

fn is_expected(name: &str) -> bool {
    name.starts_with('.')
        || matches!(name, EPOCH_FILE | SOURCES_FILE | EPOCH_LOCK_FILE)
        || Beside::ALL.iter().any(|kind| kind.number(name).is_some())
        || Beside::Stacks.range(name).is_some()
}

/// A kind of file that is stored beside the segments. Such files are numbered from 1, and never merged or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beside {
    /// Files of evidence of executions.
    Evidence,
    /// Files of execution counts.
    Counts,
    /// Files of call stacks.
    Stacks,
}

impl Beside {
    /// All kinds.
    pub(crate) const ALL: [Beside; 3] = [Beside::Evidence, Beside::Counts, Beside::Stacks];

    /// Returns the name of the file with this number.
    pub(crate) fn file_name(self, number: u64) -> String {
        format!("{}{number:06}.parquet", self.prefix())
    }

    /// Returns the number of a file of this kind; `None` for any other name.
    pub(crate) fn number(self, name: &str) -> Option<u64> {
        let number = name.strip_prefix(self.prefix())?.strip_suffix(".parquet")?.parse().ok()?;
        (number >= 1 && self.file_name(number) == name).then_some(number)
    }

    /// Returns the name of a file that was merged from several.
    pub(crate) fn file_name_of(self, range: SegmentRange) -> String {
        format!("{}{range}.parquet", self.prefix())
    }

    /// Returns the range of a file of this kind; `None` for any other name.
    pub(crate) fn range(self, name: &str) -> Option<SegmentRange> {
        let range = SegmentRange::parse(name.strip_prefix(self.prefix())?.strip_suffix(".parquet")?)?;
        (self.file_name_of(range) == name).then_some(range)
    }

    fn prefix(self) -> &'static str {
        match self {
            Beside::Evidence => "paths-",
            Beside::Counts => "counts-",
            Beside::Stacks => "stacks-",
        }
    }
}

/// Returns the path of a segment in its epoch's folder.
pub(crate) fn segment_path(folder: &Path, range: SegmentRange) -> PathBuf {
    folder.join(range.file_name())
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(names: &[&str], expect: Expect) {
        let entries: Vec<_> = names.iter().map(|n| Entry { name: (*n).to_owned(), is_dir: false }).collect();
        let list = SegmentList::of(&entries);
        let text =
            |ranges: &[SegmentRange]| ranges.iter().map(|r| r.to_string()).collect::<Vec<_>>().join(" ");
        let foreign: Vec<_> = list.foreign.iter().map(|(n, why)| format!("{n}: {why}")).collect();
        expect.assert_eq(&format!(
            "live: {}\nsuperseded: {}\ngaps: {}\nforeign: {}\n",
            text(&list.live),
            text(&list.superseded),
            text(&list.gaps()),
            foreign.join("; "),
        ));
    }

    #[test]
    fn every_append_counts_once() {
        check(
            &["epoch.json", "lock", "sources.jsonl", "segment-000001.parquet", "segment-000002.parquet"],
            expect![[r#"
                live: 000001 000002
                superseded: 
                gaps: 
                foreign: 
            "#]],
        );
        check(
            &[
                "segment-000001.parquet",
                "segment-000001-000003.parquet",
                "segment-000003.parquet",
                "segment-000004.parquet",
            ],
            expect![[r#"
                live: 000001-000003 000004
                superseded: 000001 000003
                gaps: 
                foreign: 
            "#]],
        );
        check(
            &["segment-000002.parquet", "segment-000005-000009.parquet", "segment-000008-000011.parquet"],
            expect![[r#"
                live: 000002 000005-000009
                superseded: 
                gaps: 000001 000003-000004
                foreign: segment-000008-000011.parquet: overlaps another segment: its samples would count twice
            "#]],
        );
    }

    #[test]
    fn other_spellings_are_foreign() {
        check(
            &[
                "segment-1.parquet",
                "segment-000000.parquet",
                "segment-000003-000002.parquet",
                "segment-+00001.parquet",
                "notes.txt",
            ],
            expect![[r#"
                live: 
                superseded: 
                gaps: 
                foreign: segment-1.parquet: not a file of this database; segment-000000.parquet: not a file of this database; segment-000003-000002.parquet: not a file of this database; segment-+00001.parquet: not a file of this database; notes.txt: not a file of this database
            "#]],
        );
    }
}
