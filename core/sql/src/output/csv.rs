//! CSV after RFC 4180, with lines that end in a line feed alone. NULL is an empty field, and an empty text is `""`.

use std::io::{self, Write};

use super::{Style, Writer, double, without_controls};
use crate::duckdb::{ColumnType, Value};

pub struct Csv {
    style: Style,
}

impl Csv {
    pub fn new(style: Style) -> Self {
        Csv { style }
    }

    fn text(&self, text: &str, out: &mut dyn Write) -> io::Result<()> {
        let text = if self.style.to_terminal { without_controls(text) } else { text.into() };
        let is_plain = !text.is_empty() && !text.contains(['"', ',', '\n', '\r']) && text.trim() == text;
        if is_plain { write!(out, "{text}") } else { write!(out, "\"{}\"", text.replace('"', "\"\"")) }
    }
}

impl Writer for Csv {
    fn begin(&mut self, columns: &[(String, ColumnType)], out: &mut dyn Write) -> io::Result<()> {
        for (at, (name, _)) in columns.iter().enumerate() {
            if at > 0 {
                write!(out, ",")?;
            }
            self.text(name, out)?;
        }
        writeln!(out)
    }

    fn row(&mut self, values: &[Value<'_>], out: &mut dyn Write) -> io::Result<()> {
        for (at, value) in values.iter().enumerate() {
            if at > 0 {
                write!(out, ",")?;
            }
            match value {
                Value::Null => {}
                Value::Boolean(value) => write!(out, "{value}")?,
                Value::Integer(value) => write!(out, "{value}")?,
                Value::Double(value) => write!(out, "{}", double(*value))?,
                Value::Text(text) => self.text(text, out)?,
            }
        }
        writeln!(out)
    }

    fn end(&mut self, _: &mut dyn Write) -> io::Result<()> {
        Ok(())
    }
}
