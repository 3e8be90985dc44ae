//! JSON: one object for each row, or one for the whole result. Numbers that JSON does not have are null.

use std::io::{self, Write};

use super::Writer;
use crate::duckdb::{ColumnType, Value};

/// One object on each line, with the columns as keys in their order.
#[derive(Default)]
pub struct Jsonl {
    /// The key of each column, as JSON, and whether its texts are JSON already.
    keys: Vec<(String, bool)>,
}

impl Jsonl {
    fn object(&self, values: &[Value<'_>], out: &mut dyn Write) -> io::Result<()> {
        let mut before = '{';
        for ((key, is_json), value) in self.keys.iter().zip(values) {
            write!(out, "{before}{key}:")?;
            before = ',';
            match value {
                Value::Null => write!(out, "null")?,
                Value::Boolean(value) => write!(out, "{value}")?,
                Value::Integer(value) => write!(out, "{value}")?,
                Value::Double(value) if !value.is_finite() => write!(out, "null")?,
                Value::Double(value) => write!(out, "{}", super::double(*value))?,
                Value::Text(text) if *is_json => write!(out, "{text}")?,
                Value::Text(text) => write!(out, "{}", quoted(text))?,
            }
        }
        write!(out, "}}")
    }
}

impl Writer for Jsonl {
    fn begin(&mut self, columns: &[(String, ColumnType)], _: &mut dyn Write) -> io::Result<()> {
        let key = |(name, kind): &(String, ColumnType)| (quoted(name), *kind == ColumnType::Other);
        self.keys = columns.iter().map(key).collect();
        Ok(())
    }

    fn row(&mut self, values: &[Value<'_>], out: &mut dyn Write) -> io::Result<()> {
        self.object(values, out)?;
        writeln!(out)
    }

    fn end(&mut self, _: &mut dyn Write) -> io::Result<()> {
        Ok(())
    }
}

/// The whole result: `{"schema": 1, "columns": [name], "rows": [object]}`.
#[derive(Default)]
pub struct Json {
    rows: Jsonl,
    has_rows: bool,
}

impl Writer for Json {
    fn begin(&mut self, columns: &[(String, ColumnType)], out: &mut dyn Write) -> io::Result<()> {
        self.rows.begin(columns, out)?;
        let names: Vec<&str> = self.rows.keys.iter().map(|(key, _)| key.as_str()).collect();
        write!(out, "{{\"schema\":1,\"columns\":[{}],\"rows\":[", names.join(","))
    }

    fn row(&mut self, values: &[Value<'_>], out: &mut dyn Write) -> io::Result<()> {
        if std::mem::replace(&mut self.has_rows, true) {
            write!(out, ",")?;
        }
        self.rows.object(values, out)
    }

    fn end(&mut self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "]}}")
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
