//! The arguments of `dwell sql`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::values::{Limit, size};

#[derive(Debug, Args)]
#[command(after_help = "Example:
  dwell sql 'SELECT path, sum(count) AS samples FROM samples JOIN images USING (image) GROUP BY path ORDER BY 2 DESC'

DuckDB is loaded at run time: DWELL_DUCKDB names its library, libduckdb.so.")]
pub struct SqlArgs {
    /// The query, or several that end with semicolons.
    pub query: Option<String>,
    /// Read the query from this file; `-` is standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "query")]
    pub file: Option<PathBuf>,
    /// How rows are written. A Parquet file goes to standard output.
    #[arg(long, value_name = "FORMAT", default_value = "table", conflicts_with = "json")]
    pub format: SqlFormat,
    /// Write all tables as Parquet files into this new folder, with a script that loads them into another DuckDB.
    /// Everything is analysed for it.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["query", "file", "format"])]
    pub export: Option<PathBuf>,
    /// Memory that a query may use: 500M, 2G.
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = memory)]
    pub memory: u64,
    /// Number of threads [default: one for each processor].
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
}

/// What rows are written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SqlFormat {
    /// Aligned columns.
    Table,
    /// Comma-separated values with a line of names.
    Csv,
    /// One JSON object for each row.
    Jsonl,
    /// A Parquet file.
    Parquet,
}

/// Parses `500M` or `2G`.
fn memory(text: &str) -> Result<u64, String> {
    const LEAST: u64 = 16 << 20;
    match size(text) {
        Ok(Limit(Some(bytes))) if bytes >= LEAST => Ok(bytes),
        Ok(Limit(Some(_))) => Err("expected at least 16M".to_owned()),
        _ => Err("expected a number followed by K, M, G or T".to_owned()),
    }
}
