//! Aligned columns for people. Their widths are those of the first rows; later rows that are wider stand out.

use std::io::{self, Write};

use super::{Writer, double, without_controls};
use crate::duckdb::{ColumnType, Value};

/// Number of rows that determine the widths.
const ROWS_MEASURED: usize = 1000;

#[derive(Default)]
pub struct Table {
    /// For each column its name, width in characters, and whether values are aligned at the right.
    columns: Vec<(String, usize, bool)>,
    /// Rows that are not written yet.
    kept: Vec<Vec<String>>,
    has_begun: bool,
}

impl Writer for Table {
    fn begin(&mut self, columns: &[(String, ColumnType)], _: &mut dyn Write) -> io::Result<()> {
        let column = |(name, kind): &(String, ColumnType)| {
            let name = without_controls(name).into_owned();
            let width = name.chars().count();
            (name, width, kind.is_number())
        };
        self.columns = columns.iter().map(column).collect();
        Ok(())
    }

    fn row(&mut self, values: &[Value<'_>], out: &mut dyn Write) -> io::Result<()> {
        let texts: Vec<String> = values.iter().map(text).collect();
        if self.has_begun {
            return self.line(&texts, out);
        }
        for ((_, width, _), text) in self.columns.iter_mut().zip(&texts) {
            *width = (*width).max(text.chars().count());
        }
        self.kept.push(texts);
        if self.kept.len() == ROWS_MEASURED { self.begin_lines(out) } else { Ok(()) }
    }

    fn end(&mut self, out: &mut dyn Write) -> io::Result<()> {
        if self.has_begun { Ok(()) } else { self.begin_lines(out) }
    }
}

impl Table {
    /// Writes the names of the columns and the rows that were kept.
    fn begin_lines(&mut self, out: &mut dyn Write) -> io::Result<()> {
        self.has_begun = true;
        let names: Vec<String> = self.columns.iter().map(|(name, ..)| name.clone()).collect();
        self.line(&names, out)?;
        let rules: Vec<String> = self.columns.iter().map(|(_, width, _)| "-".repeat(*width)).collect();
        self.line(&rules, out)?;
        std::mem::take(&mut self.kept).iter().try_for_each(|row| self.line(row, out))
    }

    fn line(&self, texts: &[String], out: &mut dyn Write) -> io::Result<()> {
        let mut line = String::new();
        for ((_, width, at_right), text) in self.columns.iter().zip(texts) {
            let padding = " ".repeat(width.saturating_sub(text.chars().count()));
            let parts = if *at_right { [&padding, text.as_str()] } else { [text.as_str(), &padding] };
            line.extend(parts);
            line.push_str("  ");
        }
        writeln!(out, "{}", line.trim_end())
    }
}

fn text(value: &Value<'_>) -> String {
    match value {
        Value::Null => String::new(),
        Value::Boolean(value) => value.to_string(),
        Value::Integer(value) => value.to_string(),
        Value::Double(value) => double(*value),
        Value::Text(text) => without_controls(text).into_owned(),
    }
}
