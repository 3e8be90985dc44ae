//! Runs `dwell sql`: a query from the arguments, a file or standard input, a prompt, or an export.
//!
//! Enters: validated arguments, text, signals. Leaves: rows on standard output, warnings on standard error. Never here:
//! what a table is.
//!
//! A signal stops the query that runs, and ends the program with 128 plus its number. At the prompt, Ctrl-C returns to
//! the prompt.

mod prompt;

use std::{
    io::{self, IsTerminal, Read, Write},
    path::Path,
    process::ExitCode,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use dwell_collect::Stop;
use dwell_query::Options;
use dwell_sql::{Engine, Format, Limits, Session, SqlError, Stopper, Style};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::{
    args::{SqlArgs, SqlFormat},
    complain,
};

/// Longest text of a query, in bytes.
const QUERY_BYTES_MAX: u64 = 16 << 20;
/// Number of times a query is run again because a compaction replaced the files that it was reading.
const ATTEMPTS: usize = 5;
/// Interval at which a signal is looked for, and at which a query is interrupted again.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Time that a query has to end after it was interrupted; then the program ends.
const END_WITHIN: Duration = Duration::from_secs(5);
/// Number that shells add to the number of the signal that ended a program.
const SIGNALS: i32 = 128;

/// The engine, options and output that every query of one run shares.
struct Setup {
    engine: Engine,
    options: Options,
    limits: Limits,
    format: Format,
}

/// Runs `dwell sql`: one query, a file of queries, or the prompt.
pub fn run(options: Options, args: &SqlArgs, json: bool) -> anyhow::Result<ExitCode> {
    let format = match args.format {
        _ if json => Format::Json,
        SqlFormat::Table => Format::Table,
        SqlFormat::Csv => Format::Csv,
        SqlFormat::Jsonl => Format::Jsonl,
        SqlFormat::Parquet => Format::Parquet,
    };
    anyhow::ensure!(
        format != Format::Parquet || !io::stdout().is_terminal(),
        "sql: a Parquet file cannot be shown on a terminal: redirect standard output to a file"
    );
    let text = match &args.export {
        None => text(args)?,
        Some(_) => None,
    };
    dwell_sql::give_up_capabilities().context("sql")?; // Before the library is loaded and any thread is started.
    let threads =
        args.threads.map_or_else(|| thread::available_parallelism().map_or(1, usize::from), usize::from);
    let limits = Limits { memory_bytes: args.memory, threads };
    limit_memory(args.memory).context("sql: limit of memory")?;
    let setup = Setup { engine: engine()?, options, limits, format };
    if text.is_none() && args.export.is_none() {
        prompt::run(&setup)?;
        return Ok(ExitCode::SUCCESS);
    }
    let watch = Watch::start()?;
    let done = match (&args.export, &text) {
        (Some(folder), _) => export(&setup, folder, &watch),
        (None, text) => answer(&setup, text.as_deref().unwrap_or_default(), &watch),
    };
    match (done, watch.status()) {
        (Err(_), Some(status)) => {
            complain("sql: interrupted");
            Ok(ExitCode::from(status))
        }
        (done, _) => done.map_err(SqlError::without_place).context("sql").map(|()| ExitCode::SUCCESS),
    }
}

/// Memory of the process beside that of DuckDB's engine, in bytes: what Dwell computes for a table.
const OTHER_MEMORY_BYTES: u64 = 1 << 30;

/// Limits the memory of the process, since DuckDB's limit does not count all texts that a query makes.
fn limit_memory(engine_bytes: u64) -> io::Result<()> {
    let now = getrlimit(Resource::Data);
    let wanted = engine_bytes.saturating_add(OTHER_MEMORY_BYTES);
    let current = now.current.map_or(wanted, |current| current.min(wanted));
    Ok(setrlimit(Resource::Data, Rlimit { current: Some(current), ..now })?)
}

/// Finds and loads the library.
pub fn engine() -> anyhow::Result<Engine> {
    let (program, current) = (std::env::current_exe().ok(), std::env::current_dir().ok());
    dwell_sql::engine(program.as_deref(), current).context("sql")
}

/// Returns the text of the query; `None` if it is to be typed.
fn text(args: &SqlArgs) -> anyhow::Result<Option<String>> {
    if let Some(query) = &args.query {
        return Ok(Some(query.clone()));
    }
    let file = args.file.as_deref().filter(|file| *file != Path::new("-"));
    let read = match file {
        Some(file) => std::fs::File::open(file).and_then(|mut file| read(&mut file)),
        None if args.file.is_none() && io::stdin().is_terminal() => return Ok(None),
        None => read(&mut io::stdin()),
    };
    let what = file.map_or("standard input".to_owned(), |file| file.display().to_string());
    read.map(Some).with_context(|| format!("sql: {what}"))
}

fn read(from: &mut dyn Read) -> io::Result<String> {
    let mut text = String::new();
    from.take(QUERY_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > QUERY_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "longer than 16 MiB"));
    }
    Ok(text)
}

/// Runs a query, and once more where a compaction removed files before any row was written.
fn answer(setup: &Setup, text: &str, watch: &Watch) -> Result<(), SqlError> {
    for attempt in 1.. {
        let mut out = Counted { out: io::stdout().lock(), bytes: 0 };
        let session =
            Session::open(&setup.engine, setup.options.clone(), &setup.limits, Some(text), setup.format)?;
        if attempt == 1 {
            warn(session.warnings());
        }
        watch.watch(session.stopper());
        let done = session.run(text, setup.format, style(), &mut out);
        warn(&session.take_notes());
        let is_stale = matches!(done, Err(SqlError::Statement(_))) && out.bytes == 0 && !session.is_current();
        if !is_stale || attempt == ATTEMPTS {
            return done;
        }
    }
    unreachable!("the loop ends by returning")
}

fn export(setup: &Setup, folder: &Path, watch: &Watch) -> Result<(), SqlError> {
    let mut started = |stopper| watch.watch(stopper);
    let warnings =
        dwell_sql::export(&setup.engine, setup.options.clone(), &setup.limits, folder, &mut started)?;
    warn(&warnings);
    Ok(())
}

fn warn(warnings: &[String]) {
    warnings.iter().for_each(|warning| complain(&format!("warning: {warning}")));
}

fn style() -> Style {
    Style { to_terminal: io::stdout().is_terminal() }
}

/// An output that counts what was written.
struct Counted<W> {
    out: W,
    bytes: usize,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.bytes += written;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Stops a query when a signal comes. A thread looks for signals until this is dropped.
struct Watch {
    stop: Stop,
    stopper: Arc<Mutex<Option<Stopper>>>,
    is_over: Arc<AtomicBool>,
}

impl Watch {
    fn start() -> anyhow::Result<Watch> {
        let watch = Watch {
            stop: Stop::on_signals().context("sql: signals")?,
            stopper: Arc::default(),
            is_over: Arc::default(),
        };
        let (stop, stopper, is_over) = (watch.stop.clone(), watch.stopper.clone(), watch.is_over.clone());
        thread::spawn(move || {
            let mut stopped: Option<Instant> = None;
            while !is_over.load(Ordering::Relaxed) {
                thread::sleep(LOOK_EVERY);
                let Some(signal) = stop.signal() else { continue };
                // An interrupt that comes between two steps of a query may be missed, so it is repeated.
                if let Some(stopper) = &*stopper.lock().unwrap_or_else(PoisonError::into_inner) {
                    stopper.stop();
                }
                let since = *stopped.get_or_insert_with(Instant::now);
                if since.elapsed() > END_WITHIN && !is_over.load(Ordering::Relaxed) {
                    std::process::exit(SIGNALS + signal.as_raw());
                }
            }
        });
        Ok(watch)
    }

    /// Sets the query that a signal stops.
    fn watch(&self, stopper: Stopper) {
        *self.stopper.lock().unwrap_or_else(PoisonError::into_inner) = Some(stopper);
    }

    /// Returns the exit status for the signal that came, if any.
    fn status(&self) -> Option<u8> {
        u8::try_from(SIGNALS + self.stop.signal()?.as_raw()).ok()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}
