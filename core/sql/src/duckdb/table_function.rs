//! Tables whose rows Dwell computes while a statement reads them.
//!
//! Enters: a [`RowSource`]. Leaves: a table function of DuckDB. A panic of a source becomes an error of the statement.

use std::{
    any::Any,
    ffi::{CString, c_char},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError},
};

use super::{
    api::{Api, Handle, SUCCESS, types},
    connection::Connection,
    library,
};

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// `VARCHAR`.
    Text,
    /// `BIGINT`.
    Integer,
    /// `DOUBLE`.
    Double,
    /// `TIMESTAMP`, in UTC.
    Time,
}

/// A value that a source produces.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// NULL.
    Null,
    /// A text.
    Text(Arc<str>),
    /// An integer.
    Integer(i64),
    /// A floating-point number.
    Double(f64),
    /// A time in µs since 1970, UTC.
    Time(i64),
}

/// The rows of one scan; each has a cell for every column of the table.
pub type CellRows = Box<dyn Iterator<Item = Result<Vec<Cell>, String>> + Send>;

/// Computes the rows of a table.
pub trait RowSource: Send + Sync {
    /// Returns name and type of each column.
    fn columns(&self) -> &[(&'static str, Column)];

    /// Begins a scan. `wanted` says for each column whether the statement reads it; the cells of others may be
    /// anything.
    fn scan(&self, wanted: &[bool]) -> Result<CellRows, String>;
}

/// The source of a registered function.
struct Registered(Arc<dyn RowSource>);

/// A scan that is going on. DuckDB reads it in one thread at a time; the lock makes sure of it.
struct Scan {
    rows: Mutex<CellRows>,
    /// Index in the table of each column of the chunk.
    columns: Vec<usize>,
    types: Vec<Column>,
}

impl Connection {
    /// Makes a source available as the table function `name`.
    pub fn register(&self, name: &str, source: Arc<dyn RowSource>) -> Result<(), String> {
        let api = self.open.api;
        let name = CString::new(name).map_err(|_| "a zero byte in the name".to_owned())?;
        let registered = Box::new(Registered(source));
        // SAFETY: the handle is valid until it is destroyed. DuckDB owns the source from `set_extra_info` on, and calls
        // its destructor. The callbacks get the source back with the type that it has here.
        let state = unsafe {
            let mut function = (api.create_table_function)();
            (api.table_function_set_name)(function, name.as_ptr());
            let extra = Box::into_raw(registered).cast();
            (api.table_function_set_extra_info)(function, extra, Some(destroy::<Registered>));
            (api.table_function_set_bind)(function, bind);
            (api.table_function_set_init)(function, init);
            (api.table_function_set_function)(function, produce);
            (api.table_function_supports_projection_pushdown)(function, true);
            let state = (api.register_table_function)(self.open.connection, function);
            (api.destroy_table_function)(&mut function);
            state
        };
        if state == SUCCESS { Ok(()) } else { Err(format!("cannot register {}", name.to_string_lossy())) }
    }
}

/// Destroys data that DuckDB was given.
///
/// # Safety
///
/// `data` must come from `Box::into_raw` of a `Box<T>`, and must not be used afterwards.
unsafe extern "C" fn destroy<T>(data: Handle) {
    // SAFETY: by the contract of this function.
    drop(unsafe { Box::from_raw(data.cast::<T>()) });
}

/// Declares the columns of a table.
unsafe extern "C" fn bind(info: Handle) {
    let api = library::loaded();
    // SAFETY: the handle is valid during the callback, its extra information is what `register` has set, and the names
    // and types live during the calls.
    unsafe {
        let Registered(source) = &*(api.bind_get_extra_info)(info).cast::<Registered>();
        for (name, kind) in source.columns() {
            let name = CString::new(*name).expect("names of columns have no zero byte");
            let mut kind = (api.create_logical_type)(number(*kind));
            (api.bind_add_result_column)(info, name.as_ptr(), kind);
            (api.destroy_logical_type)(&mut kind);
        }
    }
}

/// Begins a scan.
unsafe extern "C" fn init(info: Handle) {
    let api = library::loaded();
    // SAFETY: the handle is valid during the callback, and its extra information is what `register` has set.
    let Registered(source) = unsafe { &*(api.init_get_extra_info)(info).cast::<Registered>() };
    // SAFETY: the handle is valid during the callback.
    let columns: Vec<usize> = unsafe {
        let count = (api.init_get_column_count)(info);
        (0..count).map(|at| (api.init_get_column_index)(info, at) as usize).collect()
    };
    let types: Vec<Column> = source.columns().iter().map(|(_, kind)| *kind).collect();
    let wanted: Vec<bool> = (0..types.len()).map(|at| columns.contains(&at)).collect();
    let scan = contained(|| source.scan(&wanted));
    // SAFETY: the handle is valid, DuckDB owns the scan from here on, and it copies the message.
    unsafe {
        match scan {
            Ok(rows) => {
                let scan = Box::new(Scan { rows: Mutex::new(rows), columns, types });
                (api.init_set_init_data)(info, Box::into_raw(scan).cast(), Some(destroy::<Scan>));
            }
            Err(error) => (api.init_set_error)(info, message(error).as_ptr()),
        }
    }
}

/// Fills a chunk with the next rows.
unsafe extern "C" fn produce(info: Handle, chunk: Handle) {
    let api = library::loaded();
    // SAFETY: `init` has set these data, and they live as long as the scan.
    let scan = unsafe { &*(api.function_get_init_data)(info).cast::<Scan>() };
    // SAFETY: no arguments.
    let room = unsafe { (api.vector_size)() } as usize;
    let filled = contained(|| {
        let mut rows = scan.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let mut count = 0;
        while count < room {
            let Some(row) = rows.next() else { break };
            // SAFETY: the chunk has room for this row and a vector for each of the columns, of the types that `bind`
            // declared.
            unsafe { scan.store(api, chunk, count, &row?) };
            count += 1;
        }
        Ok(count)
    });
    // SAFETY: the chunk has that many rows, and DuckDB copies the message.
    unsafe {
        match filled {
            Ok(count) => (api.data_chunk_set_size)(chunk, count as u64),
            Err(error) => (api.function_set_error)(info, message(error).as_ptr()),
        }
    }
}

impl Scan {
    /// Stores a row in a chunk.
    ///
    /// # Safety
    ///
    /// The chunk must have room for row `at`, and a vector for each of `columns` with the type that the source
    /// declares.
    unsafe fn store(&self, api: &Api, chunk: Handle, at: usize, cells: &[Cell]) {
        for (index, column) in self.columns.iter().enumerate() {
            // A statement that reads no column gets a column whose index is beyond the table.
            let Some((cell, kind)) = cells.get(*column).zip(self.types.get(*column)) else { continue };
            // SAFETY: the vector is valid during the callback, and element `at` of its data has the type that was
            // declared.
            unsafe {
                let vector = (api.data_chunk_get_vector)(chunk, index as u64);
                let data = (api.vector_get_data)(vector);
                match (cell, kind) {
                    (Cell::Text(text), Column::Text) => {
                        let start = text.as_ptr().cast::<c_char>();
                        (api.vector_assign_string_element_len)(vector, at as u64, start, text.len() as u64);
                    }
                    (Cell::Integer(value), Column::Integer) | (Cell::Time(value), Column::Time) => {
                        *data.cast::<i64>().add(at) = *value;
                    }
                    (Cell::Double(value), Column::Double) => *data.cast::<f64>().add(at) = *value,
                    _ => {
                        debug_assert_eq!(*cell, Cell::Null, "a cell of another type than its column");
                        (api.vector_ensure_validity_writable)(vector);
                        let mask = (api.vector_get_validity)(vector).add(at / 64);
                        *mask &= !(1 << (at % 64));
                    }
                }
            }
        }
    }
}

fn number(kind: Column) -> u32 {
    match kind {
        Column::Text => types::VARCHAR,
        Column::Integer => types::BIGINT,
        Column::Double => types::DOUBLE,
        Column::Time => types::TIMESTAMP,
    }
}

/// Runs code of a source. A panic must not unwind into DuckDB, so it becomes an error.
fn contained<T>(run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let panicked = |why: Box<dyn Any + Send>| {
        let text = why.downcast_ref::<String>().cloned();
        let text = text.or_else(|| why.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(format!("a bug in dwell: {}", text.unwrap_or_default()))
    };
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(panicked)
}

/// Returns a message for the API. A zero byte would end it early.
fn message(text: String) -> CString {
    CString::new(text.replace('\0', " ")).expect("zero bytes were replaced")
}
