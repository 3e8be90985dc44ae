//! SQL over a database of profiles, by DuckDB.
//!
//! Enters: the folder of a database, the path of libduckdb, SQL text. Leaves: rows as text or Parquet. Never here: an
//! analysis of its own, arguments, a terminal. The rows of samples are read by DuckDB from the segments; everything
//! else comes from `dwell-query`.
//!
//! Data flow in one direction: `locate` finds the library, `duckdb` wraps it, `segments` and `tables` give it tables,
//! `selected` reads off a statement what must be computed, `session` runs it and `output` writes its rows, or `answer`
//! collects the first ones.
//! `docs/sql.md` is the contract for users.

mod answer;
mod duckdb;
mod error;
mod export;
mod lexer;
mod locate;
mod output;
mod privileges;
mod segments;
mod selected;
mod session;
mod tables;
#[cfg(test)]
mod tests;

pub use answer::{Answer, Column, Question, answer};
pub use duckdb::{Engine, LoadError, VERSIONS};
pub use error::SqlError;
pub use export::export;
pub use lexer::{Statements, statements};
pub use locate::{VARIABLE, engine, library};
pub use output::{Format, Style};
pub use privileges::give_up_capabilities;
pub use session::{Limits, Session, Stopper};
