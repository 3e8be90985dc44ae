//! The table `samples`: DuckDB's own Parquet reader over the segments that count.
//!
//! Enters: the database. Leaves: the SQL of a view, and the list of files that a statement may read. Never here: a
//! glob. It would count superseded segments twice and read damaged ones.
//!
//! Files are named through the open folder of the database, `/proc/self/fd/N/epochs/ID/segment-….parquet`. Such a path
//! has no quote and no `*`, whatever the folder is called: DuckDB would take `*`, `?` and `[` for a pattern, and has no
//! way to escape them in a list.

use std::{
    collections::BTreeSet,
    fs::File,
    os::fd::AsRawFd,
    path::{Path, PathBuf},
};

use dwell_profile::{
    Database, DatabaseError, DerivedEvent, Dimension, DimensionSet, Epoch, EpochId, ImageId, ImageRecord,
    Warning,
};

use crate::duckdb::Connection;

/// Which tables of files a statement needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// `samples`, or what is made of it or of the images in its files.
    pub samples: bool,
    /// `totals`.
    pub totals: bool,
}

/// The segments of a database.
#[derive(Default)]
pub struct Segments {
    /// Paths below the folder of the database.
    files: Vec<PathBuf>,
    /// Those of epochs without a file of totals.
    apart: Vec<PathBuf>,
    /// Files of totals.
    totals: Vec<PathBuf>,
    /// Further files.
    others: Vec<PathBuf>,
    /// The dimensions that any segment has.
    dimensions: DimensionSet,
    /// Number of epochs that did not record control groups.
    without_cgroups: usize,
    /// The control groups whose rows are samples; `None` if all rows are.
    cgroups: Option<Vec<String>>,
    /// The images of all epochs by id.
    pub images: Vec<ImageRecord>,
    /// What was left out.
    pub warnings: Vec<Warning>,
    /// The folder of the database; `None` if there is nothing to read.
    folder: Option<File>,
}

/// The derived events, which are no samples of their own.
const DERIVED: [DerivedEvent; 8] = [
    DerivedEvent::Data,
    DerivedEvent::DataPage,
    DerivedEvent::KernelTime,
    DerivedEvent::Preempted,
    DerivedEvent::BranchTaken,
    DerivedEvent::BranchNotTaken,
    DerivedEvent::AheadTaken,
    DerivedEvent::AheadNotTaken,
];

impl Segments {
    /// Finds the files of the epochs that the tables need; the epochs are in the order of their start. Each file is read once to
    /// verify its checksum.
    pub fn of(database: &Database, epochs: &[Epoch], need: Need) -> Result<Self, DatabaseError> {
        let mut found = Segments::default();
        if !need.samples && !need.totals {
            return Ok(found);
        }
        let totals = if need.totals { database.totals_files()? } else { Vec::new() };
        let summed: BTreeSet<&EpochId> = totals.iter().flat_map(|(_, epochs)| epochs).collect();
        let mut images = std::collections::BTreeMap::<ImageId, ImageRecord>::new();
        for epoch in epochs.iter().filter(|epoch| need.samples || !summed.contains(&epoch.id)) {
            let of_epoch = match database.segment_files(&epoch.id) {
                Err(DatabaseError::NoSuchEpoch { .. }) => continue, // It was removed meanwhile.
                of_epoch => of_epoch?,
            };
            if !summed.contains(&epoch.id) {
                found.apart.extend(of_epoch.files.iter().cloned());
            }
            found.files.extend(of_epoch.files);
            found.dimensions = found.dimensions.union(of_epoch.dimensions);
            found.without_cgroups += usize::from(!of_epoch.dimensions.has(Dimension::Cgroup));
            found.warnings.extend(of_epoch.warnings);
            ImageRecord::absorb_all(&mut images, of_epoch.images);
        }
        // Data that is no file's is an image in the database only: no sample belongs to it.
        images.retain(|id, _| !id.as_str().starts_with("data:"));
        found.images = images.into_values().collect();
        found.totals = totals.into_iter().map(|(file, _)| file).collect();
        if !found.files.is_empty() || !found.totals.is_empty() {
            found.folder = File::open(database.path()).ok();
        }
        Ok(found)
    }

    /// Leaves samples of control groups that belong to a service alone. Returns what a reader should know about it.
    pub fn narrow(&mut self, connection: &Connection, service: &str) -> Result<Vec<String>, String> {
        let mut all = format!("SELECT DISTINCT cgroup FROM ({})", self.rows_of(&self.files));
        if !self.totals.is_empty() {
            all += &format!(" UNION SELECT cgroup FROM read_parquet({})", self.list_of(self.totals.iter()));
        }
        let known = connection
            .prepare(&format!("SELECT cgroup FROM ({all}) WHERE cgroup <> ''"))?
            .execute()?
            .texts()?;
        let taken: Vec<String> =
            known.into_iter().filter(|cgroup| dwell_query::is_of_service(cgroup, service)).collect();
        let mut notes = Vec::new();
        if taken.is_empty() {
            notes.push(format!("no samples of service '{service}'"));
        }
        if self.without_cgroups > 0 {
            notes.push(format!(
                "{} recordings have no control groups (--dimensions cgroup): they have no samples of a service",
                self.without_cgroups
            ));
        }
        self.cgroups = Some(taken);
        Ok(notes)
    }

    /// Returns the condition that rows are of a wanted control group, to be added to others.
    fn of_cgroups(&self, dimensions: DimensionSet) -> String {
        let Some(cgroups) = &self.cgroups else { return String::new() };
        if cgroups.is_empty() || !dimensions.has(Dimension::Cgroup) {
            return " AND false".to_owned();
        }
        let literals: Vec<String> = cgroups.iter().map(|cgroup| literal(cgroup)).collect();
        format!(" AND cgroup IN ({})", literals.join(", "))
    }

    /// Returns the folder of the database as file names spell it.
    pub fn prefix(&self) -> Option<String> {
        self.folder.as_ref().map(|folder| format!("/proc/self/fd/{}", folder.as_raw_fd()))
    }

    /// Returns all files as a list of SQL literals.
    pub fn list(&self) -> String {
        self.list_of(self.files.iter().chain(&self.totals).chain(&self.others))
    }

    /// Adds other files of the database that a statement may read.
    pub fn add(&mut self, database: &Database, files: impl Iterator<Item = PathBuf>) {
        self.others.extend(files);
        if self.folder.is_none() && !self.others.is_empty() {
            self.folder = File::open(database.path()).ok();
        }
    }

    /// Returns files as a list of SQL literals.
    pub fn list_of<'f>(&self, files: impl Iterator<Item = &'f PathBuf>) -> String {
        let prefix = self.prefix().unwrap_or_default();
        let literal = |file: &PathBuf| literal(&format!("{prefix}/{}", spelled(file)));
        format!("[{}]", files.map(literal).collect::<Vec<_>>().join(", "))
    }

    /// Returns the statements that make the views `samples` and `totals`.
    pub fn views(&self) -> [String; 2] {
        let samples =
            format!("CREATE VIEW samples AS SELECT * EXCLUDE (path) FROM ({})", self.rows_of(&self.files));
        let mut totals = format!(
            "CREATE VIEW totals AS SELECT s.epoch, e.host, s.image, any_value(s.path) AS path, s.event, s.app, s.cgroup, \
             sum(s.count)::BIGINT AS count FROM ({}) AS s JOIN epochs AS e ON e.epoch = s.epoch \
             GROUP BY s.epoch, e.host, s.image, s.event, s.app, s.cgroup",
            self.rows_of(&self.apart)
        );
        if !self.totals.is_empty() {
            totals += &format!(
                " UNION ALL SELECT epoch, host, image, path, event, app, nullif(cgroup, '') AS cgroup, count \
                 FROM read_parquet({}) WHERE true{}",
                self.list_of(self.totals.iter()),
                self.of_cgroups(Dimension::ALL.into_iter().collect())
            );
        }
        [samples, totals]
    }

    /// Returns the query of all rows of segments.
    fn rows_of(&self, files: &[PathBuf]) -> String {
        if files.is_empty() {
            return "SELECT NULL::VARCHAR AS epoch, NULL::VARCHAR AS image, NULL::VARCHAR AS event, \
                    NULL::BIGINT AS \"offset\", NULL::BIGINT AS count, NULL::VARCHAR AS app, NULL::BIGINT AS instance, \
                    NULL::VARCHAR AS thread, NULL::BIGINT AS cpu, NULL::VARCHAR AS cgroup, NULL::VARCHAR AS path WHERE false"
                .to_owned();
        }
        let union = if self.dimensions.is_empty() { "" } else { ", union_by_name = true" };
        let dimension = |dimension: Dimension, value: &str, absent: &str| {
            let value = if self.dimensions.has(dimension) { value } else { absent };
            format!("{value} AS {dimension}")
        };
        let derived: Vec<String> = DERIVED.iter().map(|d| literal(d.event().name())).collect();
        format!(
            "SELECT {epoch} AS epoch, image, event, {offset} AS \"offset\", \
             least(count, 9223372036854775807)::BIGINT AS count, app, instance::BIGINT AS instance, {thread}, {cpu}, {cgroup}, path \
             FROM read_parquet({files}, filename = true{union}) WHERE event NOT IN ({derived}){of_cgroups}",
            epoch = self.epoch(),
            // Offsets from 2^63 on become negative, as in two's complement.
            offset = "CASE WHEN \"offset\" <= 9223372036854775807 THEN \"offset\"::BIGINT \
                      ELSE (\"offset\" - 9223372036854775808)::BIGINT - 9223372036854775807 - 1 END",
            thread = dimension(Dimension::Thread, "nullif(thread, '')", "NULL::VARCHAR"),
            cpu = dimension(Dimension::Cpu, "nullif(cpu, 4294967295)::BIGINT", "NULL::BIGINT"),
            cgroup = dimension(Dimension::Cgroup, "nullif(cgroup, '')", "NULL::VARCHAR"),
            files = self.list_of(files.iter()),
            derived = derived.join(", "),
            of_cgroups = self.of_cgroups(self.dimensions),
        )
    }
}

impl Segments {
    /// Returns the expression for the epoch of a row: a part of the file's name. Cutting out a fixed part is several times
    /// faster than splitting the name, and ids are of one length unless somebody renamed a folder.
    fn epoch(&self) -> String {
        let prefix = format!("{}/epochs/", self.prefix().unwrap_or_default());
        let id = |file: &PathBuf| Some(file.parent()?.file_name()?.len());
        let mut lengths: Vec<Option<usize>> = self.files.iter().map(id).collect();
        lengths.dedup();
        match lengths[..] {
            [Some(length)] => format!("substring(filename, {}, {length})", prefix.len() + 1),
            _ => "split_part(filename, '/', -2)".to_owned(),
        }
    }
}

/// Returns a path below the database. Names of epochs and segments have letters, digits, `-` and `.` alone.
fn spelled(file: &Path) -> String {
    file.to_string_lossy().into_owned()
}

/// Returns a text as an SQL literal.
pub fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Returns a text as an SQL identifier.
pub fn identifier(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_derived_event_is_left_out() {
        for derived in DERIVED {
            assert!(derived.event().is_derived());
            // A new variant fails to compile here: add it to the list.
            match derived {
                DerivedEvent::Data
                | DerivedEvent::DataPage
                | DerivedEvent::KernelTime
                | DerivedEvent::Preempted
                | DerivedEvent::BranchTaken
                | DerivedEvent::BranchNotTaken
                | DerivedEvent::AheadTaken
                | DerivedEvent::AheadNotTaken => {}
            }
        }
    }
}
