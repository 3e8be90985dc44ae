//! Rows of a result, in chunks as DuckDB computes them.

use std::sync::Arc;

use super::{
    api::{Handle, RawHugeInt, RawResult, RawString, types},
    connection::{Open, message},
};

/// The types whose values are read. Values of other types must be cast to text by the statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// `BOOLEAN`.
    Boolean,
    /// An integer with a sign, of this number of bytes.
    Signed(u8),
    /// An integer without a sign, of this number of bytes.
    Unsigned(u8),
    /// `DOUBLE`.
    Double,
    /// `VARCHAR`.
    Text,
    /// Any other type.
    Other,
}

impl ColumnType {
    /// Returns the type with this number in `duckdb.h`.
    pub(super) fn of(number: u32) -> Self {
        match number {
            types::BOOLEAN => ColumnType::Boolean,
            types::TINYINT => ColumnType::Signed(1),
            types::SMALLINT => ColumnType::Signed(2),
            types::INTEGER => ColumnType::Signed(4),
            types::BIGINT => ColumnType::Signed(8),
            types::HUGEINT => ColumnType::Signed(16),
            types::UTINYINT => ColumnType::Unsigned(1),
            types::USMALLINT => ColumnType::Unsigned(2),
            types::UINTEGER => ColumnType::Unsigned(4),
            types::UBIGINT => ColumnType::Unsigned(8),
            types::DOUBLE => ColumnType::Double,
            types::VARCHAR => ColumnType::Text,
            _ => ColumnType::Other,
        }
    }

    /// Returns whether values are numbers.
    pub fn is_number(self) -> bool {
        matches!(self, ColumnType::Signed(_) | ColumnType::Unsigned(_) | ColumnType::Double)
    }
}

/// One value of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// NULL, or a value whose type is not read.
    Null,
    /// A truth value.
    Boolean(bool),
    /// An integer of any width.
    Integer(i128),
    /// A floating-point number.
    Double(f64),
    /// A text.
    Text(&'a str),
}

/// The rows of a result.
pub struct Rows {
    open: Arc<Open>,
    result: RawResult,
    chunk: Handle,
    columns: Vec<(String, ColumnType)>,
}

// SAFETY: a result is used by one thread at a time, and may move between threads together with the connection that it
// shares.
unsafe impl Send for Rows {}

impl Drop for Rows {
    fn drop(&mut self) {
        // SAFETY: both handles are ours; destroying null is allowed.
        unsafe {
            (self.open.api.destroy_data_chunk)(&mut self.chunk);
            (self.open.api.destroy_result)(&mut self.result);
        }
    }
}

impl Rows {
    pub(super) fn new(open: Arc<Open>, result: RawResult, columns: Vec<(String, ColumnType)>) -> Self {
        Rows { open, result, chunk: std::ptr::null_mut(), columns }
    }

    /// Returns name and type of each column.
    pub fn columns(&self) -> &[(String, ColumnType)] {
        &self.columns
    }

    /// Returns the texts of the only column.
    pub fn texts(mut self) -> Result<Vec<String>, String> {
        let mut texts = Vec::new();
        let mut keep = |values: &[Value<'_>]| {
            if let [Value::Text(text)] = values {
                texts.push((*text).to_owned());
            }
            Ok::<_, String>(())
        };
        while self.next_rows(&mut keep)? {}
        Ok(texts)
    }

    /// Computes the next rows and passes each of them to `sink`. Returns whether there may be more.
    pub fn next_rows<E: From<String>>(
        &mut self,
        sink: &mut dyn FnMut(&[Value<'_>]) -> Result<(), E>,
    ) -> Result<bool, E> {
        let api = self.open.api;
        // SAFETY: the last chunk is ours and no value refers to it any more; the result is valid. The chunk that is
        // returned is ours.
        unsafe {
            (api.destroy_data_chunk)(&mut self.chunk);
            self.chunk = (api.fetch_chunk)(self.result);
        }
        if self.chunk.is_null() {
            // SAFETY: the result is valid. A failure while rows are computed is stored in it.
            let error = unsafe { (api.result_error)(&mut self.result) };
            return if error.is_null() { Ok(false) } else { Err(message(error).into()) };
        }
        // SAFETY: the chunk is valid.
        let rows = unsafe { (api.data_chunk_get_size)(self.chunk) } as usize;
        let vectors: Vec<Vector> = self
            .columns
            .iter()
            .enumerate()
            .map(|(at, (_, kind))| {
                // SAFETY: the chunk has as many vectors as the result has columns. Both pointers live as long as the
                // chunk.
                unsafe {
                    let vector = (api.data_chunk_get_vector)(self.chunk, at as u64);
                    Vector {
                        kind: *kind,
                        data: (api.vector_get_data)(vector).cast(),
                        validity: (api.vector_get_validity)(vector),
                    }
                }
            })
            .collect();
        let mut values = Vec::with_capacity(vectors.len());
        for row in 0..rows {
            values.clear();
            // SAFETY: the row is one of the chunk, whose vectors have the types of the result's columns.
            values.extend(vectors.iter().map(|vector| unsafe { vector.value(row) }));
            sink(&values)?;
        }
        Ok(rows > 0)
    }
}

/// A column of a chunk.
struct Vector {
    kind: ColumnType,
    data: *const u8,
    /// A bit for each row, set where it has a value; null if all rows have one.
    validity: *const u64,
}

impl Vector {
    /// Returns the value of a row.
    ///
    /// # Safety
    ///
    /// The row must be one of the chunk, the chunk must be alive as long as the value, and `kind` must be the vector's
    /// type.
    unsafe fn value<'a>(&self, row: usize) -> Value<'a> {
        // SAFETY: the mask has a bit for each row.
        if !self.validity.is_null() && unsafe { *self.validity.add(row / 64) } >> (row % 64) & 1 == 0 {
            return Value::Null;
        }
        // SAFETY: the data are an array of the type that `kind` stands for, with an element for each row.
        unsafe {
            match self.kind {
                ColumnType::Boolean => Value::Boolean(*self.data.add(row) != 0),
                ColumnType::Signed(1) => Value::Integer((*self.data.cast::<i8>().add(row)).into()),
                ColumnType::Signed(2) => Value::Integer((*self.data.cast::<i16>().add(row)).into()),
                ColumnType::Signed(4) => Value::Integer((*self.data.cast::<i32>().add(row)).into()),
                ColumnType::Signed(8) => Value::Integer((*self.data.cast::<i64>().add(row)).into()),
                ColumnType::Signed(_) => {
                    let RawHugeInt { lower, upper } = *self.data.cast::<RawHugeInt>().add(row);
                    Value::Integer(i128::from(upper) << 64 | i128::from(lower))
                }
                ColumnType::Unsigned(1) => Value::Integer((*self.data.add(row)).into()),
                ColumnType::Unsigned(2) => Value::Integer((*self.data.cast::<u16>().add(row)).into()),
                ColumnType::Unsigned(4) => Value::Integer((*self.data.cast::<u32>().add(row)).into()),
                ColumnType::Unsigned(_) => Value::Integer((*self.data.cast::<u64>().add(row)).into()),
                ColumnType::Double => Value::Double(*self.data.cast::<f64>().add(row)),
                ColumnType::Text => Value::Text(text(&*self.data.cast::<RawString>().add(row))),
                ColumnType::Other => Value::Null,
            }
        }
    }
}

/// Returns the text of a string.
///
/// # Safety
///
/// The string must be one of a vector that lives as long as the text.
unsafe fn text(string: &RawString) -> &str {
    let length = string.length as usize;
    let start = match length {
        ..=12 => string.rest.as_ptr(),
        _ => usize::from_ne_bytes(string.rest[4..12].try_into().expect("8 bytes")) as *const u8,
    };
    // SAFETY: the inline bytes, or those that the pointer refers to, are as many as the length says.
    let bytes = unsafe { std::slice::from_raw_parts(start, length) };
    // DuckDB checks that texts are UTF-8 when they enter.
    std::str::from_utf8(bytes).unwrap_or("(a text that is not UTF-8)")
}
