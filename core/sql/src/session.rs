//! A database of profiles that is open for queries.
//!
//! Enters: a folder and statements. Leaves: rows in a format, or an error. What a statement may do is limited twice: it
//! must be a query, by DuckDB's own parser; and DuckDB may open no file but the segments, load no extension and change
//! no setting.

use std::{collections::BTreeSet, io::Write, path::PathBuf, sync::Arc, time::Duration};

use dwell_profile::{Database, DatabaseError, Epoch};
use dwell_query::{Options, Query};

use crate::{
    Format, SqlError,
    duckdb::{ColumnType, Connection, Engine, Interrupter, Rows},
    lexer, output,
    segments::{Need, Segments, identifier, literal},
    selected::{self, Selected},
    tables::{self, Context, Stored},
};

/// The views and macros that are made of the other tables.
pub const VIEWS: &str = include_str!("tables/views.sql");
/// Tables that need the segments to be listed.
const NEED_SEGMENTS: &[&str] = &["samples", "images", "procedures", "applications", "instances", "lines"];
/// Those of them whose rows of one epoch are in the segments of that epoch alone.
const BY_EPOCH: &[&str] = &["samples", "applications", "instances"];
/// How the names of macros begin; they use any tables.
const MACROS: &str = "dwell_";

/// Number of times a database is opened again because its files changed meanwhile.
const ATTEMPTS: u32 = 20;
/// Time before the first of these attempts. Each further one waits that much longer.
const PAUSE: Duration = Duration::from_millis(5);
/// Names of tables, columns and macros.
const NAMES: &str = "SELECT view_name FROM duckdb_views() WHERE NOT internal
    UNION SELECT column_name FROM duckdb_columns() WHERE NOT internal
    UNION SELECT function_name FROM duckdb_functions() WHERE starts_with(function_name, 'dwell_') AND function_name[7] <> '_'
    ORDER BY ALL";

/// Columns, each behind its table and a dot.
const COLUMNS: &str =
    "SELECT concat(table_name, '.', column_name) FROM duckdb_columns() WHERE NOT internal ORDER BY ALL";

/// The error of a statement whose own error is not known.
const LOST_ERROR: &str = "it failed in one of several threads, and DuckDB did not pass on why: `dwell sql --threads 1` with the same query shows it";

/// Largest number of notes on what statements could not get.
const NOTES_MAX: usize = 20;

/// The limits of a session.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Memory that DuckDB may use, in bytes.
    pub memory_bytes: u64,
    /// Number of threads.
    pub threads: usize,
}

/// A database that is open for queries.
pub struct Session {
    connection: Connection,
    context: Arc<Context>,
    /// The folder of the database as users know it, and as the files of the segments spell it.
    folder: (PathBuf, Option<String>),
    warnings: Vec<String>,
    /// A private folder that results in Parquet pass through.
    scratch: Option<tempfile::TempDir>,
    // The open folder of the database; the views refer to its number.
    segments: Segments,
    generation: u64,
}

/// Stops the statement that runs in a session, from another thread.
#[derive(Clone)]
pub struct Stopper {
    interrupter: Interrupter,
    context: Arc<Context>,
}

impl Stopper {
    /// Stops the statement that runs now, if any.
    pub fn stop(&self) {
        self.context.cancel();
        self.interrupter.interrupt();
    }
}

/// The file that a Parquet result is written to before it is copied to the output.
const RESULT_FILE: &str = "result.parquet";

impl Session {
    /// Opens a database. `text` is the only text that will be run, if that is known: tables that it does not name are
    /// not prepared.
    pub fn open(
        engine: &Engine,
        options: Options,
        limits: &Limits,
        text: Option<&str>,
        format: Format,
    ) -> Result<Session, SqlError> {
        let session = Session::unlocked(engine, options, limits, text, format)?;
        session.lock()?;
        Ok(session)
    }

    /// Opens a database without locking it, for statements of our own.
    pub(crate) fn unlocked(
        engine: &Engine,
        options: Options,
        limits: &Limits,
        text: Option<&str>,
        format: Format,
    ) -> Result<Session, SqlError> {
        let database = options.open()?;
        for attempt in 1.. {
            let generation = database.generation();
            let session = Session::prepare(engine, &database, options.clone(), limits, text, format);
            // A compaction may remove files between their listing and the moment when DuckDB looks at them.
            let is_stale =
                matches!(session, Err(SqlError::Statement(_))) && database.generation() != generation;
            if !is_stale || attempt == ATTEMPTS {
                return session;
            }
            std::thread::sleep(PAUSE * attempt); // A second in all.
        }
        unreachable!("the loop ends by returning")
    }

    fn prepare(
        engine: &Engine,
        database: &Database,
        options: Options,
        limits: &Limits,
        text: Option<&str>,
        format: Format,
    ) -> Result<Session, SqlError> {
        let service = options.service.clone();
        let query = Query::open(options)?;
        let generation = query.generation();
        let read = database.epochs()?;
        let connection = engine.open(&settings(limits))?;
        let named = Named::of(&connection, text);
        let need = named.files();
        let mut segments = Segments::of(database, &named.epochs(&read.epochs), need)?;
        // Stored rows are of all services.
        let mut stored = match service {
            Some(_) => Stored::default(),
            None => Stored::of(database, &read.epochs, &named.tables(), &named.selected)?,
        };
        segments.add(database, stored.files().cloned());
        let mut warnings: Vec<String> =
            read.warnings.iter().chain(&segments.warnings).map(ToString::to_string).collect();
        warnings.extend(stored.check(&connection, &|file| segments.list_of(std::iter::once(file))));
        if let Some(service) = service.filter(|_| need.samples || need.totals) {
            warnings.extend(segments.narrow(&connection, &service)?);
        }
        if read.epochs.is_empty() {
            warnings.push(DatabaseError::Empty(database.place()).to_string());
        }
        let images = std::mem::take(&mut segments.images);
        let context = Arc::new(Context::new(query, read.epochs, images, stored));
        tables::register(&connection, &context, &|files| segments.list_of(files.iter()))?;
        segments.views().iter().try_for_each(|view| connection.run(view))?;
        connection.run(VIEWS)?;
        let scratch = (format == Format::Parquet).then(tempfile::TempDir::new).transpose();
        let scratch = scratch.map_err(SqlError::output)?;
        let folder = (database.path().to_owned(), segments.prefix());
        Ok(Session { connection, context, folder, warnings, scratch, segments, generation })
    }

    /// Takes away everything that a query does not need.
    fn lock(&self) -> Result<(), SqlError> {
        let scratch = self.scratch.as_ref().map(|folder| format!("{}/", folder.path().display()));
        let folders: Vec<String> = scratch.iter().map(|folder| literal(folder)).collect();
        self.connection.run(&format!(
            "SET allowed_paths = {}; SET allowed_directories = [{}]; SET enable_external_access = false; SET lock_configuration = true",
            self.segments.list(),
            folders.join(", "),
        ))?;
        Ok(())
    }

    /// Returns warnings about what was left out.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns, once, what the statements selected but could not get: [`NOTES_MAX`] reasons, and how many more.
    pub fn take_notes(&self) -> Vec<String> {
        let notes = self.context.take_notes();
        let more = notes.len().saturating_sub(NOTES_MAX);
        let mut shown: Vec<String> = notes.into_iter().take(NOTES_MAX).collect();
        if more > 0 {
            shown.push(format!("{more} more notes of these kinds"));
        }
        shown
    }

    /// Returns whether the database is still as it was when the session was opened.
    pub fn is_current(&self) -> bool {
        self.context.query.generation() == self.generation
    }

    /// Returns an object that stops a statement from another thread.
    pub fn stopper(&self) -> Stopper {
        Stopper { interrupter: self.connection.interrupter(), context: self.context.clone() }
    }

    /// Runs each statement of a text, and writes its rows.
    pub fn run(
        &self,
        text: &str,
        format: Format,
        style: output::Style,
        out: &mut dyn Write,
    ) -> Result<(), SqlError> {
        let statements = lexer::statements(text).texts;
        if statements.is_empty() || format != Format::Table {
            only(&statements)?;
        }
        for statement in statements {
            self.run_one(statement, format, style, out).map_err(|error| self.explained(error))?;
        }
        Ok(())
    }

    fn run_one(
        &self,
        statement: &str,
        format: Format,
        style: output::Style,
        out: &mut dyn Write,
    ) -> Result<(), SqlError> {
        if format == Format::Parquet {
            return self.copy(statement, out);
        }
        let (rows, columns) = self.start(statement, format)?;
        match lexer::explained(statement) {
            Some(_) if format == Format::Table => output::write_plan(rows, out),
            _ => output::write(rows, &columns, format, style, out),
        }
    }

    /// Starts a query. Returns its rows and its columns. Columns of rare types arrive as texts, in JSON if the format is
    /// JSON.
    pub(crate) fn start(
        &self,
        statement: &str,
        format: Format,
    ) -> Result<(Rows, Vec<(String, ColumnType)>), SqlError> {
        self.context.begin(self.check(statement)?);
        let prepared = self.connection.prepare(statement)?;
        if prepared.parameters() > 0 {
            return Err(SqlError::Usage("a query cannot have parameters: write the values"));
        }
        let columns = prepared.columns();
        let columns =
            if matches!(format, Format::Json | Format::Jsonl) { distinct(columns) } else { columns };
        let rows = match cast(statement, &columns, format) {
            Some(cast) => self.connection.prepare(&cast)?.execute()?,
            None => prepared.execute()?,
        };
        Ok((rows, columns))
    }

    /// Returns DuckDB's names of the types of a query's columns.
    pub(crate) fn types(&self, query: &str) -> Result<Vec<String>, SqlError> {
        let names = format!("SELECT column_type FROM (DESCRIBE SELECT * FROM (\n{query}\n))");
        Ok(self.connection.prepare(&names)?.execute()?.texts()?)
    }

    /// Checks that a statement is a query. Returns what it selects.
    pub(crate) fn check(&self, statement: &str) -> Result<Selected, SqlError> {
        let tree = tree(&self.connection, statement)?;
        if tree["error"] == true {
            // DuckDB's own message has the place of a syntax error.
            let is_syntax =
                tree["error_type"].as_str().is_some_and(|kind| kind.eq_ignore_ascii_case("parser"));
            return match (is_syntax, self.connection.prepare(statement)) {
                (true, Err(message)) => Err(message.into()),
                _ => Err(SqlError::NotAQuery),
            };
        }
        if tree["statements"].as_array().map(Vec::len) != Some(1) {
            return Err(SqlError::NotAQuery);
        }
        selected::selected(&tree).map_err(SqlError::Forbidden)
    }

    /// Writes the rows of a query as Parquet.
    fn copy(&self, statement: &str, out: &mut dyn Write) -> Result<(), SqlError> {
        self.context.begin(self.check(statement)?);
        if lexer::explained(statement).is_some() {
            return Err(SqlError::Usage("the format parquet holds the rows of a query, not its plan"));
        }
        let scratch =
            self.scratch.as_ref().ok_or(SqlError::Usage("the session was not opened for parquet"))?;
        let path = scratch.path().join(RESULT_FILE);
        self.connection.prepare(statement)?; // Errors name places in the statement as it was typed.
        self.connection.run(&format!(
            "COPY (\n{statement}\n) TO {} (FORMAT parquet, COMPRESSION zstd)",
            literal(&path.display().to_string())
        ))?;
        let mut file = std::fs::File::open(&path).map_err(SqlError::output)?;
        std::io::copy(&mut file, out).map_err(SqlError::output)?;
        let _ = std::fs::remove_file(&path);
        Ok(())
    }

    /// Runs a statement of our own.
    pub(crate) fn run_own(&self, sql: &str) -> Result<(), SqlError> {
        self.context.begin(Selected::default());
        self.connection.run(sql).map_err(|message| self.explained(message.into()))
    }

    /// Replaces the names that files have for DuckDB by those that users know, and an interruption that nobody asked for by what it means.
    pub(crate) fn explained(&self, error: SqlError) -> SqlError {
        match (error, &self.folder) {
            (SqlError::Statement(message), (folder, Some(prefix))) => {
                SqlError::Statement(message.replace(prefix, &folder.display().to_string()))
            }
            // An error in one thread of DuckDB's interrupts the others, and one of these may be heard first.
            (SqlError::Interrupted, _) if !self.context.is_cancelled() => {
                SqlError::Statement(LOST_ERROR.to_owned())
            }
            (error, _) => error,
        }
    }

    /// Returns the names of tables, columns and macros, for completion.
    pub fn names(&self) -> Result<Vec<String>, SqlError> {
        let prepared = self.connection.prepare(NAMES)?;
        Ok(prepared.execute()?.texts()?)
    }

    /// Returns each table with each of its columns, for completion.
    pub fn columns(&self) -> Result<Vec<(String, String)>, SqlError> {
        let texts = self.connection.prepare(COLUMNS)?.execute()?.texts()?;
        Ok(texts
            .iter()
            .filter_map(|text| text.split_once('.'))
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
            .collect())
    }

    #[cfg(test)]
    pub(crate) fn prefix(&self) -> String {
        self.segments.prefix().unwrap_or_default()
    }

    #[cfg(test)]
    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    #[cfg(test)]
    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }
}

/// Returns the columns with a number behind names that occurred before: an object in JSON cannot have two keys of one name.
fn distinct(columns: Vec<(String, ColumnType)>) -> Vec<(String, ColumnType)> {
    let mut used = BTreeSet::new();
    let rename = |(name, kind): (String, ColumnType)| {
        let mut names = std::iter::once(name.clone()).chain((1..).map(|number| format!("{name}_{number}")));
        let own = names.find(|own| used.insert(own.clone())).unwrap_or(name);
        (own, kind)
    };
    columns.into_iter().map(rename).collect()
}

/// Returns the only statement of a text.
pub(crate) fn only<'a>(statements: &[&'a str]) -> Result<&'a str, SqlError> {
    match statements {
        [] => Err(SqlError::Usage("there is no statement to run")),
        [statement] => Ok(statement),
        _ => Err(SqlError::Usage("one statement was expected: there are several")),
    }
}

/// Returns DuckDB's tree of a statement, or the error in it.
fn tree(connection: &Connection, statement: &str) -> Result<serde_json::Value, SqlError> {
    let prepared = connection.prepare(
        "SELECT json_serialize_sql(?::VARCHAR, skip_null := true, skip_empty := true, skip_default := true)::VARCHAR",
    )?;
    prepared.bind(1, lexer::explained(statement).unwrap_or(statement))?;
    let text = prepared.execute()?.texts()?.concat();
    serde_json::from_str(&text).map_err(|error| SqlError::Statement(error.to_string()))
}

/// What the statements of a text name.
struct Named {
    /// The tables and functions, in lower case; `None` if any of them may be named.
    sources: Option<BTreeSet<String>>,
    /// What each statement selects; one that selects everything if that is not known.
    selected: Vec<Selected>,
}

impl Named {
    fn of(connection: &Connection, text: Option<&str>) -> Self {
        let anything = || Named { sources: None, selected: vec![Selected::default()] };
        let Some(text) = text else { return anything() };
        let mut named = Named { sources: Some(BTreeSet::new()), selected: Vec::new() };
        for statement in lexer::statements(text).texts {
            let Ok(tree) = tree(connection, statement) else { return anything() };
            let Ok(selected) = selected::selected(&tree) else { return anything() };
            named.selected.push(selected);
            named.sources.iter_mut().for_each(|names| selected::names_of_sources(&tree, names));
        }
        named
    }

    /// Returns which files are needed.
    fn files(&self) -> Need {
        let any =
            |is: &dyn Fn(&String) -> bool| self.sources.as_ref().is_none_or(|names| names.iter().any(is));
        Need {
            samples: any(&|name| NEED_SEGMENTS.contains(&name.as_str()) || name.starts_with(MACROS)),
            totals: any(&|name| name == "totals"),
        }
    }

    /// Returns the epochs whose files are needed, the oldest first as they are given.
    fn epochs(&self, all: &[Epoch]) -> Vec<Epoch> {
        let needs_all = |name: &String| {
            let is_of_segments = name == "totals" || NEED_SEGMENTS.contains(&name.as_str());
            is_of_segments && !BY_EPOCH.contains(&name.as_str()) || name.starts_with(MACROS)
        };
        let Some(names) = self.sources.as_ref().filter(|names| !names.iter().any(needs_all)) else {
            return all.to_vec();
        };
        let read = BY_EPOCH.iter().filter(|table| names.contains(**table));
        let selections: Vec<_> =
            read.flat_map(|table| self.selected.iter().flat_map(|selected| selected.of(table))).collect();
        let latest = tables::latest(all);
        let is_taken = |at: usize, epoch: &Epoch| {
            selections.iter().any(|selection| selection.takes_epoch(epoch, Some(at) == latest))
        };
        all.iter()
            .enumerate()
            .filter(|(at, epoch)| is_taken(*at, epoch))
            .map(|(_, epoch)| epoch.clone())
            .collect()
    }

    /// Returns the analysed tables that may be named, by the statements or by macros in them.
    fn tables(&self) -> BTreeSet<String> {
        match &self.sources {
            Some(names) if !names.iter().any(|name| name.starts_with(MACROS)) => names.clone(),
            _ => tables::STORED.map(str::to_owned).into(),
        }
    }
}

/// Returns the statement with columns of rare types cast to text, or in JSON to JSON; `None` if there are none.
fn cast(statement: &str, columns: &[(String, ColumnType)], format: Format) -> Option<String> {
    if lexer::explained(statement).is_some() || columns.iter().all(|(_, kind)| *kind != ColumnType::Other) {
        return None;
    }
    let column = |(at, (name, kind)): (usize, &(String, ColumnType))| {
        let value = match (kind, format) {
            (ColumnType::Other, Format::Jsonl | Format::Json) => format!("to_json(#{})::VARCHAR", at + 1),
            (ColumnType::Other, _) => format!("#{}::VARCHAR", at + 1),
            _ => format!("#{}", at + 1),
        };
        format!("{value} AS {}", identifier(name))
    };
    let list: Vec<String> = columns.iter().enumerate().map(column).collect();
    Some(format!("SELECT {} FROM (\n{statement}\n)", list.join(", ")))
}

/// Returns the settings of a new database.
fn settings(limits: &Limits) -> Vec<(&'static str, String)> {
    vec![
        ("memory_limit", format!("{}B", limits.memory_bytes)),
        ("threads", limits.threads.to_string()),
        ("temp_directory", String::new()),
        ("autoinstall_known_extensions", "false".to_owned()),
        ("autoload_known_extensions", "false".to_owned()),
        ("allow_community_extensions", "false".to_owned()),
        ("enable_external_file_cache", "false".to_owned()),
    ]
}
