//! The prompt of `dwell sql`: lines are edited, remembered and completed by rustyline.
//!
//! Enters: keys. Leaves: results and messages. A statement ends with a semicolon, so it may have several lines.

use std::{fs, io, path::PathBuf, thread};

use anyhow::Context;
use dwell_collect::Stop;
use dwell_sql::{Session, SqlError};
use rustix::{
    process::Signal,
    termios::{OptionalActions, tcgetattr, tcsetattr},
};
use rustyline::{
    Config, Editor, Helper,
    completion::Completer,
    error::ReadlineError,
    highlight::Highlighter,
    hint::Hinter,
    history::FileHistory,
    validate::{ValidationContext, ValidationResult, Validator},
};

use super::{LOOK_EVERY, SIGNALS, Setup, Watch, style, warn};
use crate::complain;

const PROMPT: &str = "dwell> ";
const HELP: &str =
    "Tables: SHOW TABLES; columns: DESCRIBE samples; statements end with a semicolon, `exit` or Ctrl-D ends.";
/// Number of statements that are remembered.
const REMEMBERED: usize = 1000;
/// Words that are completed beside the names of tables and columns.
const KEYWORDS: &[&str] = &[
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP BY",
    "ORDER BY",
    "LIMIT",
    "JOIN",
    "ASOF",
    "USING",
    "HAVING",
    "DESCRIBE",
    "SHOW TABLES",
    "EXPLAIN",
    "SUMMARIZE",
    "DESC",
    "DISTINCT",
    "UNION ALL",
    "WITH",
];

/// Reads and answers statements until the end of the input.
pub fn run(setup: &Setup) -> anyhow::Result<()> {
    end_on_request()?;
    let mut session = open(setup)?;
    let config = Config::builder().max_history_size(REMEMBERED).context("sql: history")?.build();
    let mut editor: Editor<Typing, FileHistory> = Editor::with_config(config).context("sql: terminal")?;
    let names = session.names().context("sql")?;
    editor.set_helper(Some(Typing { names, columns: session.columns().context("sql")? }));
    let history = history();
    if let Some(history) = &history {
        let _ = editor.load_history(history); // There is none before the first time.
    }
    println!("{HELP}");
    loop {
        let line = match editor.readline(PROMPT) {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => return Ok(()),
            Err(error) => return Err(error).context("sql: terminal"),
        };
        let line = match line.trim().trim_end_matches(';') {
            "exit" | "quit" | "\\q" | ".quit" | ".exit" => return Ok(()),
            "" => continue,
            "help" | ".help" | "\\?" | "?" => {
                println!("{HELP}");
                continue;
            }
            ".tables" | "\\d" | "\\dt" => "SHOW TABLES".to_owned(),
            _ => line,
        };
        let _ = editor.add_history_entry(line.as_str());
        if let Some(history) = &history {
            let _ = editor.save_history(history); // A history that cannot be kept is no reason to stop.
        }
        if !session.is_current() {
            session = open(setup)?;
        }
        let watch = Watch::start()?;
        watch.watch(session.stopper());
        let done = session.run(&line, setup.format, style(), &mut io::stdout().lock());
        warn(&session.take_notes());
        match done {
            Ok(()) => {}
            Err(SqlError::Interrupted) => complain("sql: interrupted"),
            // The last lines of a message of DuckDB show the place in the statement.
            Err(error) => complain(&format!("sql: {error}")),
        }
    }
}

/// Ends the program when SIGTERM comes, with the terminal as it was. While a line is edited, the terminal is in raw
/// mode.
fn end_on_request() -> anyhow::Result<()> {
    let stop = Stop::on_signals().context("sql: signals")?;
    let terminal = tcgetattr(io::stdin()).ok();
    thread::spawn(move || {
        loop {
            thread::sleep(LOOK_EVERY);
            if stop.signal() == Some(Signal::TERM) {
                if let Some(terminal) = &terminal {
                    let _ = tcsetattr(io::stdin(), OptionalActions::Now, terminal);
                }
                std::process::exit(SIGNALS + Signal::TERM.as_raw());
            }
        }
    });
    Ok(())
}

fn open(setup: &Setup) -> anyhow::Result<Session> {
    let session = Session::open(&setup.engine, setup.options.clone(), &setup.limits, None, setup.format);
    let session = session.context("sql")?;
    warn(session.warnings());
    Ok(session)
}

/// Returns the file of the history, in a folder that exists: `$XDG_STATE_HOME/dwell/sql_history`, or the same below
/// `~/.local/state`.
fn history() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
    let folder = state?.join("dwell");
    fs::create_dir_all(&folder).ok()?;
    Some(folder.join("sql_history"))
}

/// Completes names, and lets a statement have several lines.
struct Typing {
    /// Names of tables, columns and macros.
    names: Vec<String>,
    /// Each table with a column of it.
    columns: Vec<(String, String)>,
}

impl Typing {
    /// Returns the columns of what stands before a dot: those of the table, or of all tables if it is another name for one.
    fn columns_of(&self, before: &str) -> Vec<&str> {
        let of_table = |(table, _): &&(String, String)| table.eq_ignore_ascii_case(before);
        let is_table = self.columns.iter().any(|column| of_table(&column));
        let mut names: Vec<&str> = self
            .columns
            .iter()
            .filter(|column| !is_table || of_table(column))
            .map(|(_, name)| name.as_str())
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

impl Helper for Typing {}

impl Highlighter for Typing {}

impl Hinter for Typing {
    type Hint = String;
}

impl Completer for Typing {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        end: usize,
        _: &rustyline::Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let start = line[..end]
            .rfind(|c| !is_part(c))
            .map_or(0, |at| at + line[at..].chars().next().map_or(1, char::len_utf8));
        let typed = line[start..end].to_lowercase();
        let names = match line[..start].strip_suffix('.') {
            Some(before) => self.columns_of(before.rsplit(|c| !is_part(c)).next().unwrap_or_default()),
            None if typed.is_empty() => Vec::new(),
            None => self.names.iter().map(String::as_str).chain(KEYWORDS.iter().copied()).collect(),
        };
        let fitting = names.into_iter().filter(|name| name.to_lowercase().starts_with(&typed));
        Ok((start, fitting.map(str::to_owned).collect()))
    }
}

impl Validator for Typing {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let line = context.input().trim();
        let is_command =
            line.is_empty() || line.starts_with(['\\', '.']) || ["exit", "quit", "help", "?"].contains(&line);
        Ok(if is_command || !dwell_sql::statements(line).is_open {
            ValidationResult::Valid(None)
        } else {
            ValidationResult::Incomplete
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_completed_behind_their_table() {
        let pair = |table: &str, column: &str| (table.to_owned(), column.to_owned());
        let columns = vec![
            pair("samples", "count"),
            pair("samples", "cpu"),
            pair("lines", "count"),
            pair("lines", "é"),
        ];
        let typing = Typing { names: vec!["samples".to_owned(), "count".to_owned()], columns };
        let history = FileHistory::new();
        let complete = |line: &str| {
            typing
                .complete(line, line.len(), &rustyline::Context::new(&history))
                .map(|(start, names)| (start, names.join(" ")))
        };
        for (line, start, names) in [
            ("SELECT samples.", 15, "count cpu"),
            ("SELECT samples.c", 15, "count cpu"),
            ("SELECT s.", 9, "count cpu é"),
            ("SELECT sam", 7, "samples"),
            ("SELECT é.", 10, "count cpu é"),
            ("SELECT …samples.", 18, "count cpu"),
            ("SELECT ", 7, ""),
            ("", 0, ""),
        ] {
            assert_eq!(complete(line).unwrap(), (start, names.to_owned()), "{line}");
        }
    }
}
