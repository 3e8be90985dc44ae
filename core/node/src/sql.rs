//! Runs a query in SQL: the library, the limits and the query go to `dwell_sql`.
//!
//! Enters: a request. Leaves: rows, or the error that `dwell sql` would print. Never here: what a query may do.

use std::{path::Path, thread};

use dwell_query::{Cancel, Options};
use dwell_sql::{Answer, Limits, SqlError};

use crate::requests::{self, SqlRequest};

/// Memory that DuckDB may use, as by default in `dwell sql`.
const MEMORY_BYTES: u64 = 1 << 30;

/// Answers a request. The current folder is not searched for the library: an editor may have opened it without trusting it.
pub fn answer(options: &Options, request: SqlRequest, cancel: &Cancel) -> Result<Answer, SqlError> {
    let engine = dwell_sql::engine(Some(Path::new(&request.program)), None)?;
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let limits = Limits { memory_bytes: MEMORY_BYTES, threads };
    dwell_sql::answer(&engine, options, &limits, &requests::sql(request), cancel)
}
