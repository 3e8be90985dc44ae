//! Writes rows: as a table for people, as CSV, or as one JSON object a line.
//!
//! Enters: rows. Leaves: text. Rows are written while they are computed, so a result of any size takes little memory.

mod csv;
mod jsonl;
mod table;

use std::io::{BufWriter, Write};

use crate::{
    SqlError,
    duckdb::{ColumnType, Rows, Value},
};

/// The form in which the rows of an answer are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Columns are aligned for reading at a terminal.
    Table,
    /// RFC 4180 with a line of names.
    Csv,
    /// One JSON object for each row.
    Jsonl,
    /// One JSON object for the whole result.
    Json,
    /// The rows become one Parquet file.
    Parquet,
}

/// How text is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// Whether the reader is a terminal, to which control characters must not go.
    pub to_terminal: bool,
}

/// Writes one kind of text.
trait Writer {
    fn begin(&mut self, columns: &[(String, ColumnType)], out: &mut dyn Write) -> std::io::Result<()>;
    fn row(&mut self, values: &[Value<'_>], out: &mut dyn Write) -> std::io::Result<()>;
    fn end(&mut self, out: &mut dyn Write) -> std::io::Result<()>;
}

/// Writes all rows. `columns` are those of the query; columns of rare types arrive as texts.
pub fn write(
    mut rows: Rows,
    columns: &[(String, ColumnType)],
    format: Format,
    style: Style,
    out: &mut dyn Write,
) -> Result<(), SqlError> {
    let mut writer: Box<dyn Writer> = match format {
        Format::Csv => Box::new(csv::Csv::new(style)),
        Format::Jsonl => Box::new(jsonl::Jsonl::default()),
        Format::Json => Box::new(jsonl::Json::default()),
        Format::Table | Format::Parquet => Box::new(table::Table::default()),
    };
    let mut out = BufWriter::new(out);
    writer.begin(columns, &mut out).map_err(SqlError::output)?;
    let mut row = |values: &[Value<'_>]| writer.row(values, &mut out).map_err(SqlError::output);
    while rows.next_rows(&mut row)? {}
    writer.end(&mut out).and_then(|()| out.flush()).map_err(SqlError::output)
}

/// Writes the plan of a statement, which is a drawing of several lines in the last column.
pub fn write_plan(mut rows: Rows, out: &mut dyn Write) -> Result<(), SqlError> {
    let mut row = |values: &[Value<'_>]| {
        let Some(Value::Text(plan)) = values.last() else { return Ok(()) };
        let mut lines = plan.lines();
        lines.try_for_each(|line| writeln!(out, "{}", without_controls(line))).map_err(SqlError::output)
    };
    while rows.next_rows(&mut row)? {}
    Ok(())
}

/// Returns the text of a floating-point number; a whole one keeps its `.0`.
fn double(value: f64) -> String {
    format!("{value:?}")
}

/// Returns a text without control characters: `\n`, `\t` and the like, or their number in hexadecimal. Characters that
/// change the direction of text are treated likewise, since they could make a row look like another one.
fn without_controls(text: &str) -> std::borrow::Cow<'_, str> {
    let is_control = |c: char| {
        c.is_control()
            || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
    };
    if !text.contains(is_control) {
        return text.into();
    }
    let mut safe = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_control(c) { safe.extend(c.escape_default()) } else { safe.push(c) }
    }
    safe.into()
}
