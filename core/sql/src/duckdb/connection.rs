//! A database in memory with one connection, and statements that run on it.

use std::{
    ffi::{CStr, CString, c_char},
    ptr::null_mut,
    sync::Arc,
};

use super::{
    api::{Api, Handle, RawResult, SUCCESS},
    library::Engine,
    rows::{ColumnType, Rows},
};

/// A database in memory and the connection to it. Statements run one at a time.
pub struct Connection {
    pub(super) open: Arc<Open>,
}

/// The handles of an open database.
pub(super) struct Open {
    pub(super) api: &'static Api,
    database: Handle,
    pub(super) connection: Handle,
}

// SAFETY: DuckDB's databases and connections may be used from any thread; a connection serializes its statements with a
// lock, and `duckdb_interrupt` may be called while a statement runs.
unsafe impl Send for Open {}
// SAFETY: see above.
unsafe impl Sync for Open {}

impl Drop for Open {
    fn drop(&mut self) {
        // SAFETY: both handles are ours, and no result is left: each one shares this object.
        unsafe {
            (self.api.disconnect)(&mut self.connection);
            (self.api.close)(&mut self.database);
        }
    }
}

/// Interrupts the statement that runs on a connection, from another thread.
#[derive(Clone)]
pub struct Interrupter(Arc<Open>);

impl Interrupter {
    /// Interrupts the statement that runs now, if any.
    pub fn interrupt(&self) {
        // SAFETY: the connection is open as long as this object shares it.
        unsafe { (self.0.api.interrupt)(self.0.connection) }
    }
}

/// A statement that was parsed and bound.
pub struct Prepared {
    open: Arc<Open>,
    statement: Handle,
}

impl Drop for Prepared {
    fn drop(&mut self) {
        // SAFETY: the handle is ours; destroying null is allowed.
        unsafe { (self.open.api.destroy_prepare)(&mut self.statement) }
    }
}

impl Engine {
    /// Opens an empty database in memory with these settings.
    pub fn open(&self, settings: &[(&str, String)]) -> Result<Connection, String> {
        let api = self.api;
        let mut config = null_mut();
        // SAFETY: the API fills in the handle; on failure it is null, and destroying null is allowed.
        if unsafe { (api.create_config)(&mut config) } != SUCCESS {
            return Err("cannot allocate settings".to_owned());
        }
        let opened = settings
            .iter()
            .try_for_each(|(name, value)| {
                let (name_text, value) = (text(name)?, text(value)?);
                // SAFETY: the handle is valid, and both texts live during the call.
                match unsafe { (api.set_config)(config, name_text.as_ptr(), value.as_ptr()) } {
                    SUCCESS => Ok(()),
                    _ => Err(format!("this DuckDB has no setting '{name}'")),
                }
            })
            .and_then(|()| open_with(api, config));
        // SAFETY: the handle is ours, and the database copied what it needs.
        unsafe { (api.destroy_config)(&mut config) };
        let (database, connection) = opened?;
        Ok(Connection { open: Arc::new(Open { api, database, connection }) })
    }
}

fn open_with(api: &Api, config: Handle) -> Result<(Handle, Handle), String> {
    let (mut database, mut connection, mut error) = (null_mut(), null_mut(), null_mut());
    // SAFETY: the config is valid, the path ends with a zero, and the API fills in the rest.
    let opened = unsafe { (api.open_ext)(c":memory:".as_ptr(), &mut database, config, &mut error) };
    if opened != SUCCESS {
        let message = message(error);
        // SAFETY: the API allocated the message for us.
        unsafe { (api.free)(error.cast()) };
        return Err(message);
    }
    // SAFETY: the database is open.
    if unsafe { (api.connect)(database, &mut connection) } != SUCCESS {
        // SAFETY: the handle is ours.
        unsafe { (api.close)(&mut database) };
        return Err("cannot connect to it".to_owned());
    }
    Ok((database, connection))
}

impl Connection {
    /// Runs statements whose result is not needed.
    pub fn run(&self, sql: &str) -> Result<(), String> {
        let sql = text(sql)?;
        let mut result = RawResult::empty();
        let api = self.open.api;
        // SAFETY: the connection is open, the text lives during the call, and the API fills in the result, also on
        // failure.
        unsafe {
            let state = (api.query)(self.open.connection, sql.as_ptr(), &mut result);
            let outcome =
                if state == SUCCESS { Ok(()) } else { Err(message((api.result_error)(&mut result))) };
            (api.destroy_result)(&mut result);
            outcome
        }
    }

    /// Parses and binds exactly one statement.
    pub fn prepare(&self, sql: &str) -> Result<Prepared, String> {
        let sql = text(sql)?;
        let api = self.open.api;
        let (mut statements, mut statement) = (null_mut(), null_mut());
        // SAFETY: the connection is open, the text lives during the call, and the API fills in the handle, also on
        // failure.
        let count = unsafe { (api.extract_statements)(self.open.connection, sql.as_ptr(), &mut statements) };
        let prepared = match count {
            // SAFETY: the handle is valid until it is destroyed below.
            0 => Err(message(unsafe { (api.extract_statements_error)(statements) })),
            1 => {
                // SAFETY: there is a statement with the index 0, and the API fills in the handle, also on failure.
                let state = unsafe {
                    (api.prepare_extracted_statement)(self.open.connection, statements, 0, &mut statement)
                };
                let prepared = Prepared { open: self.open.clone(), statement };
                // SAFETY: the handle is that of a statement or of a failure.
                if state == SUCCESS {
                    Ok(prepared)
                } else {
                    Err(message(unsafe { (api.prepare_error)(statement) }))
                }
            }
            _ => Err("expected one statement".to_owned()),
        };
        // SAFETY: the handle is ours; destroying null is allowed.
        unsafe { (api.destroy_extracted)(&mut statements) };
        prepared
    }

    /// Returns an object that interrupts the statements of this connection.
    pub fn interrupter(&self) -> Interrupter {
        Interrupter(self.open.clone())
    }
}

impl Prepared {
    /// Returns the number of parameters (`?`, `$1`) of the statement.
    pub fn parameters(&self) -> u64 {
        // SAFETY: the handle is valid.
        unsafe { (self.open.api.nparams)(self.statement) }
    }

    /// Returns name and type of each column of the result.
    pub fn columns(&self) -> Vec<(String, ColumnType)> {
        let api = self.open.api;
        // SAFETY: the handle is valid, the indices are those of columns, and the API allocates each name for us.
        unsafe {
            let count = (api.prepared_statement_column_count)(self.statement);
            let column = |at| {
                let name = (api.prepared_statement_column_name)(self.statement, at);
                let text = message(name);
                (api.free)(name.cast_mut().cast());
                (text, ColumnType::of((api.prepared_statement_column_type)(self.statement, at)))
            };
            (0..count).map(column).collect()
        }
    }

    /// Sets the parameter with this number, from 1, to a text.
    pub fn bind(&self, parameter: u64, value: &str) -> Result<(), String> {
        let (start, length) = (value.as_ptr().cast::<c_char>(), value.len() as u64);
        // SAFETY: the handle is valid, and the API copies the bytes.
        let state = unsafe { (self.open.api.bind_varchar_length)(self.statement, parameter, start, length) };
        if state == SUCCESS { Ok(()) } else { Err(format!("the statement has no parameter {parameter}")) }
    }

    /// Executes the statement. The result is computed while its rows are read.
    pub fn execute(&self) -> Result<Rows, String> {
        let api = self.open.api;
        let mut pending = null_mut();
        let mut result = RawResult::empty();
        // SAFETY: the handles are valid, and the API fills in the results, also on failure.
        unsafe {
            let state = (api.pending_prepared_streaming)(self.statement, &mut pending);
            let outcome = if state == SUCCESS { (api.execute_pending)(pending, &mut result) } else { state };
            let error =
                if state == SUCCESS { (api.result_error)(&mut result) } else { (api.pending_error)(pending) };
            let outcome = if outcome == SUCCESS { Ok(()) } else { Err(message(error)) };
            (api.destroy_pending)(&mut pending);
            let types = self.columns();
            let rows = Rows::new(self.open.clone(), result, types); // It destroys the result.
            outcome.map(|()| rows)
        }
    }
}

/// Returns `sql` with a zero at its end.
fn text(sql: &str) -> Result<CString, String> {
    CString::new(sql).map_err(|_| "a zero byte in the text".to_owned())
}

/// Returns a text of the API, or a replacement if there is none.
pub(super) fn message(text: *const c_char) -> String {
    if text.is_null() {
        return "unknown error".to_owned();
    }
    // SAFETY: texts of the API end with a zero, and the caller passes them while they live.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
