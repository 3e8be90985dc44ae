//! The tables of `dwell sql`: their columns, and where their rows come from.
//!
//! Enters: epochs, image records and the answers of `dwell-query`. Leaves: rows. Never here: an analysis of its own, or
//! SQL that is made from data.
//!
//! `docs/sql.md` describes each column for users; a test compares it with this file and with what DuckDB reports.

mod analysed;
mod images;
mod recorded;
mod stacks;
mod stored;
mod sums;

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use dwell_profile::{Epoch, ImageRecord};
use dwell_query::{Cancel, Query, QueryError};

pub use stored::{Stored, TABLES as STORED};

use crate::{
    duckdb::{Cell, CellRows, Column, Connection, RowSource},
    selected::{INTERNAL, Selected, Selection},
};

/// Everything that rows are made from.
pub struct Context {
    pub query: Query,
    /// All epochs, the oldest first.
    pub epochs: Vec<Epoch>,
    /// The images of all epochs by id; the newest record of each, with the symbols of all.
    pub images: Vec<ImageRecord>,
    /// Rows that are read from files, which need not be computed.
    pub stored: Stored,
    running: Mutex<Running>,
    /// Notes that say what statements selected but could not get, and why.
    notes: Mutex<BTreeSet<String>>,
}

/// The statement that runs now.
#[derive(Clone, Default)]
struct Running {
    selected: Selected,
    cancel: Cancel,
}

impl Context {
    pub fn new(query: Query, epochs: Vec<Epoch>, images: Vec<ImageRecord>, stored: Stored) -> Self {
        Context { query, epochs, images, stored, running: Mutex::default(), notes: Mutex::default() }
    }

    /// Begins a statement.
    pub fn begin(&self, selected: Selected) {
        *self.running() = Running { selected, cancel: Cancel::new() };
    }

    /// Keeps why the code of an image cannot be listed, if it cannot.
    fn note_on(&self, record: &ImageRecord) {
        if let Some(note) = self.query.image_note(record) {
            self.note(note);
        }
    }

    /// Returns an answer; nothing, and a note, where the service that the session is narrowed to has no samples.
    fn if_taken<T: Default>(&self, answer: Result<T, QueryError>) -> Result<T, String> {
        match answer {
            Err(error @ (QueryError::NothingTaken { .. } | QueryError::NoDimension { .. })) => {
                self.note(error.to_string());
                Ok(T::default())
            }
            answer => answer.map_err(|error| error.to_string()),
        }
    }

    fn note(&self, text: String) {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).insert(text);
    }

    /// Returns, once, what statements selected but could not get, and why.
    pub fn take_notes(&self) -> BTreeSet<String> {
        std::mem::take(&mut *self.notes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Cancels what is computed for the statement that runs now.
    pub fn cancel(&self) {
        self.running().cancel.cancel();
    }

    /// Returns whether the statement that runs now was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.running().cancel.check().is_err()
    }

    /// Returns the epochs (indices) whose rows any of the selections may need.
    fn epochs_taken(&self, selections: &[Selection]) -> Vec<usize> {
        let latest = latest(&self.epochs);
        let is_taken =
            |at: &usize| selections.iter().any(|s| s.takes_epoch(&self.epochs[*at], Some(*at) == latest));
        (0..self.epochs.len()).filter(is_taken).collect()
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what the statement selects from a table, and its flag.
    fn scan_of(&self, table: &str) -> (Vec<Selection>, Cancel) {
        let running = self.running();
        (running.selected.of(table), running.cancel.clone())
    }
}

#[cfg(test)]
impl Context {
    /// Returns the rows that are computed for a table.
    pub fn computed(self: &Arc<Self>, table: &str, selected: Selected) -> Vec<Vec<Cell>> {
        self.begin(selected);
        let table = COMPUTED.iter().find(|known| known.name == table).expect("a table");
        let source = Source { table, context: self.clone() };
        let rows = source.scan(&vec![true; table.columns.len()]).expect("a scan");
        rows.collect::<Result<_, _>>().expect("rows")
    }
}

/// Computes the rows of a table for what a statement selects.
type Scan = fn(&Arc<Context>, Vec<Selection>, Cancel, &[bool]) -> Result<CellRows, String>;

/// A table that Dwell computes.
pub struct Table {
    pub name: &'static str,
    columns: &'static [(&'static str, Column)],
    scan: Scan,
}

/// The tables that Dwell computes. The others are views: of the segments, and those of `views.sql`.
pub const COMPUTED: &[Table] = &[
    Table { name: "epochs", columns: recorded::EPOCHS, scan: recorded::epochs },
    Table { name: "events", columns: recorded::EVENTS, scan: recorded::events },
    Table { name: "losses", columns: recorded::LOSSES, scan: recorded::losses },
    Table { name: "images", columns: images::IMAGES, scan: images::images },
    Table { name: "procedures", columns: images::PROCEDURES, scan: images::procedures },
    Table { name: "procedure_samples", columns: sums::PROCEDURE_SAMPLES, scan: sums::procedure_samples },
    Table { name: "stacks", columns: stacks::STACKS, scan: stacks::stacks },
    Table { name: "frames", columns: stacks::FRAMES, scan: stacks::frames },
    Table { name: "lines", columns: images::LINES, scan: images::lines },
    Table { name: "instructions", columns: analysed::INSTRUCTIONS, scan: analysed::instructions },
    Table { name: "stalls", columns: analysed::STALLS, scan: analysed::stalls },
    Table { name: "blocks", columns: analysed::BLOCKS, scan: analysed::blocks },
    Table { name: "edges", columns: analysed::EDGES, scan: analysed::edges },
    Table { name: "analyses", columns: analysed::ANALYSES, scan: analysed::analyses },
];

/// Returns the columns of a table that Dwell computes.
fn columns_of(table: &str) -> Vec<&'static str> {
    let columns = COMPUTED.iter().find(|known| known.name == table).map_or(&[][..], |known| known.columns);
    columns.iter().map(|(name, _)| *name).collect()
}

/// A table together with what its rows are made from.
struct Source {
    table: &'static Table,
    context: Arc<Context>,
}

impl RowSource for Source {
    fn columns(&self) -> &[(&'static str, Column)] {
        self.table.columns
    }

    fn scan(&self, wanted: &[bool]) -> Result<CellRows, String> {
        let (selections, cancel) = self.context.scan_of(self.table.name);
        (self.table.scan)(&self.context, selections, cancel, wanted)
    }
}

/// Makes the computed tables available on a connection, with the rows of files that were stored.
pub fn register(
    connection: &Connection,
    context: &Arc<Context>,
    list_of: &dyn Fn(&[PathBuf]) -> String,
) -> Result<(), String> {
    COMPUTED.iter().try_for_each(|table| {
        let internal = format!("{INTERNAL}{}", table.name);
        let source = Arc::new(Source { table, context: context.clone() });
        connection.register(&internal, source)?;
        let mut view = format!("CREATE VIEW {} AS SELECT * FROM {internal}()", table.name);
        let files = context.stored.files_of(table.name);
        if !files.is_empty() {
            // A name in the view would be taken for a macro's parameter of that name.
            view += &format!(
                " UNION ALL BY NAME SELECT * FROM read_parquet({}, union_by_name = true)",
                list_of(&files)
            );
        }
        connection.run(&view)
    })
}

/// Returns the index of the epoch that `latest` means.
pub fn latest(epochs: &[Epoch]) -> Option<usize> {
    dwell_profile::newest_first(epochs).first().copied()
}

impl Selection {
    /// Returns whether rows of an image may be needed. A statement may name it by id; the macros accept its path and
    /// file name too.
    fn takes_image(&self, record: &ImageRecord) -> bool {
        let path = dwell_query::image_path(record);
        let is_named = |name: &String| {
            record.id.as_str() == name
                || path == *name
                || Path::new(&path).file_name() == Some(OsStr::new(name))
                || path.ends_with(&format!("/{name}"))
        };
        self.images.as_ref().is_none_or(|names| names.iter().any(is_named))
    }

    /// Returns whether rows of a procedure may be needed.
    fn takes_procedure(&self, name: &str, demangled: &str) -> bool {
        let is_named = |wanted: &String| wanted == name || wanted == demangled;
        self.procedures.as_ref().is_none_or(|names| names.iter().any(is_named))
    }

    /// Returns whether rows of an epoch may be needed. A statement may name it by id; `dwell_epoch` accepts its name
    /// and `latest` too.
    pub fn takes_epoch(&self, epoch: &Epoch, is_latest: bool) -> bool {
        let is_named = |wanted: &String| {
            epoch.id.0 == *wanted || epoch.name.as_ref() == Some(wanted) || (is_latest && wanted == "latest")
        };
        self.epochs.as_ref().is_none_or(|names| names.iter().any(is_named))
    }
}

/// Returns a text cell. A zero byte, which DuckDB's texts may hold, stays as it is.
fn text(text: impl AsRef<str>) -> Cell {
    Cell::Text(text.as_ref().into())
}

/// Returns an integer cell. Offsets and addresses from 2^63 on become negative, as in two's complement.
fn address(value: u64) -> Cell {
    Cell::Integer(value as i64)
}

/// Returns a cell for a count, which ends at the largest signed number.
fn count(value: u64) -> Cell {
    Cell::Integer(i64::try_from(value).unwrap_or(i64::MAX))
}

fn double(value: Option<f64>) -> Cell {
    value.map_or(Cell::Null, Cell::Double)
}
