//! The first rows of a query, for programs that show them: editors and assistants.
//!
//! Enters: a query, limits of rows and time, a token that cancels. Leaves: columns, and values as JSON that JavaScript
//! reads exactly. Never here: a row beyond the limit, a thread that outlives the call.

use std::{
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use dwell_query::{Cancel, Options};
use serde::Serialize;
use serde_json::Value as Json;

use crate::{
    Engine, Format, Limits, Session, SqlError, Stopper,
    duckdb::{ColumnType, Value},
    lexer, session,
};

/// Largest integer that a double, and therefore JavaScript, stores exactly together with all smaller ones.
const EXACT_MAX: u128 = (1 << 53) - 1;
/// Largest size of the values of an answer, in bytes.
const BYTES_MAX: usize = 16 << 20;
/// Number of times a query is run again because a compaction replaced the files that it was reading.
const ATTEMPTS: u32 = 5;
/// Interval at which the token and the clock are looked at, and at which a query is interrupted again.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A query with its limits.
#[derive(Clone, Debug)]
pub struct Question {
    /// The text of one query.
    pub text: String,
    /// Largest number of rows to return.
    pub rows_max: usize,
    /// Time that the query may take.
    pub time_max: Duration,
}

/// The first rows of a query.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    /// The columns in their order.
    pub columns: Vec<Column>,
    /// The rows, each with a boolean, a number, a text or null for each column. Integers beyond 2^53 are texts, as are
    /// lists and structures, which are written as JSON. Infinite numbers are null.
    pub rows: Vec<Vec<Json>>,
    /// Whether there are further rows.
    pub more: bool,
    /// What could not be read.
    pub notes: Vec<String>,
}

/// A column of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Column {
    /// Name, which other columns may have too.
    pub name: String,
    /// DuckDB's name of the type.
    #[serde(rename = "type")]
    pub type_name: String,
}

/// Runs a query on a database that is opened for it. Fails with `QueryError::Cancelled` once `cancel` is raised.
pub fn answer(
    engine: &Engine,
    options: &Options,
    limits: &Limits,
    question: &Question,
    cancel: &Cancel,
) -> Result<Answer, SqlError> {
    let end = Instant::now() + question.time_max;
    for attempt in 1.. {
        let text = Some(question.text.as_str());
        let session = Session::open(engine, options.clone(), limits, text, Format::Json)?;
        let done = watched(&session.stopper(), cancel, end, || session.first_rows(question));
        if done.is_err() {
            cancel.check()?;
        }
        let is_stale = matches!(done, Err(SqlError::Statement(_))) && !session.is_current();
        match done {
            Err(_) if Instant::now() >= end => return Err(SqlError::TooLong(question.time_max)),
            Err(_) if is_stale && attempt < ATTEMPTS => {}
            done => return done,
        }
    }
    unreachable!("the loop ends by returning")
}

/// Runs `work`, and meanwhile stops the statement of a session when `cancel` is raised or the time is over.
fn watched<T>(stopper: &Stopper, cancel: &Cancel, end: Instant, work: impl FnOnce() -> T) -> T {
    let (working, is_over) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let _working = working; // Dropped at the end of the work, also when it panics.
        scope.spawn(move || {
            while is_over.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                // An interrupt that comes between two steps of a query may be missed, so it is repeated.
                if cancel.check().is_err() || Instant::now() >= end {
                    stopper.stop();
                }
            }
        });
        work()
    })
}

impl Session {
    /// Runs the only statement of a text and returns its first rows.
    fn first_rows(&self, question: &Question) -> Result<Answer, SqlError> {
        let statements = lexer::statements(&question.text).texts;
        let statement = session::only(&statements)?;
        self.first_rows_of(statement, question.rows_max).map_err(|error| self.explained(error))
    }

    fn first_rows_of(&self, statement: &str, rows_max: usize) -> Result<Answer, SqlError> {
        self.check(statement)?;
        // Only a plan has no types, since EXPLAIN is no part of a query; its columns are texts.
        let types = self.types(statement).unwrap_or_default();
        let (mut rows, columns) = self.start(statement, Format::Json)?;
        let is_json: Vec<bool> = columns.iter().map(|(_, kind)| *kind == ColumnType::Other).collect();
        let mut taken = Taken { rows: Vec::new(), rows_max, bytes: 0, more: false };
        while !taken.more && rows.next_rows(&mut |values| taken.take(values, &is_json))? {}
        let types = types.into_iter().map(Some).chain(std::iter::repeat(None));
        let column = |((name, _), type_name): ((String, ColumnType), Option<String>)| Column {
            name,
            type_name: type_name.unwrap_or_else(|| "VARCHAR".to_owned()),
        };
        let columns = columns.into_iter().zip(types).map(column).collect();
        let notes = self.warnings().iter().cloned().chain(self.take_notes()).collect();
        Ok(Answer { columns, rows: taken.rows, more: taken.more, notes })
    }
}

/// The rows that are kept, up to a number and a size.
struct Taken {
    rows: Vec<Vec<Json>>,
    rows_max: usize,
    bytes: usize,
    more: bool,
}

impl Taken {
    fn take(&mut self, values: &[Value<'_>], is_json: &[bool]) -> Result<(), SqlError> {
        let bytes_of = |value: &Value<'_>| if let Value::Text(text) = value { text.len() } else { 8 };
        self.bytes += values.iter().map(bytes_of).sum::<usize>();
        self.more |= self.rows.len() >= self.rows_max || self.bytes > BYTES_MAX;
        if !self.more {
            let cells = values.iter().zip(is_json).map(|(value, is_json)| cell(*value, *is_json));
            self.rows.push(cells.collect());
        }
        Ok(())
    }
}

/// Returns a value as JSON without objects and lists. A text of a column of a rare type is JSON already.
fn cell(value: Value<'_>, is_json: bool) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Boolean(value) => value.into(),
        Value::Integer(value) if value.unsigned_abs() <= EXACT_MAX => (value as i64).into(),
        Value::Integer(value) => value.to_string().into(),
        Value::Double(value) => value.into(),
        Value::Text(text) if is_json => match serde_json::from_str(text) {
            Ok(Json::Number(number)) if number.as_f64().is_some_and(|n| n.abs() > EXACT_MAX as f64) => {
                text.into()
            }
            Ok(scalar @ (Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_))) => scalar,
            _ => text.into(),
        },
        Value::Text(text) => text.into(),
    }
}
