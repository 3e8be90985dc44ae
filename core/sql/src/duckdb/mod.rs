//! DuckDB behind safe types: a library that is loaded at run time, a connection, rows of a result, and tables that
//! Dwell computes.
//!
//! Enters: the path of libduckdb, SQL text, sources of rows. Leaves: values and messages. Never here: what the tables
//! of Dwell are.
//!
//! All `unsafe` of this crate is in this folder. It rests on three facts. The functions have the signatures of
//! `duckdb.h` of the versions that [`Engine::load`] accepts, which the C API keeps stable. The library is never
//! unloaded. Each handle is destroyed once, by the type that owns it, and a connection outlives the results that borrow
//! from it because they share its `Arc`.
#![allow(unsafe_code)]

mod api;
mod connection;
mod library;
mod rows;
mod table_function;

pub use connection::{Connection, Interrupter};
pub use library::{Engine, LoadError, VERSIONS};
pub use rows::{ColumnType, Rows, Value};
pub use table_function::{Cell, CellRows, Column, RowSource};

#[cfg(test)]
pub(crate) use library::check_version;
