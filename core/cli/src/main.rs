//! The `dwell` program. Input: arguments. Output: text, JSON and exit statuses.
//!
//! The exit status is 0 on success, 1 on failure and 2 on wrong usage; `record -- CMD` returns the status of CMD (see
//! [`exit`]). Errors are written to standard error as `dwell: <what>: <why>`. The libraries read ELF files, analyse and
//! sample; this program does not.

mod annotate;
mod args;
mod callers;
mod callpaths;
mod cfg;
mod code_counter;
mod collect;
mod daemon;
mod diff;
mod doctor;
mod epochs;
mod exit;
mod export;
mod feedback;
#[cfg(test)]
mod fixture;
mod flame;
mod import;
mod legend;
mod list;
mod place;
mod push;
mod report;
mod roll_up;
mod sql;
mod stats;
mod summary;
mod text;
mod top;
mod trace;
mod tui;

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use args::{
    AnnotateArgs, By, CallersArgs, CfgArgs, Cli, ColorWhen, DiffArgs, EpochVerb, GraphFormat, ListArgs,
    StatsArgs, SummaryArgs, TopArgs, Verb,
};
use clap::{CommandFactory, Parser};
use dwell_fleet::Location;
use dwell_query::{
    CallersRequest, Cancel, Detail, DiffRequest, Direction, Options, Query, StatsRequest, SummaryRequest,
    TopBy, TopRequest,
};
use serde::Serialize;

fn main() -> ExitCode {
    // Without arguments: what can be done here, and how to begin.
    let parsed = if std::env::args_os().len() <= 1 {
        Cli::try_parse_from(["dwell", "doctor"])
    } else {
        Cli::try_parse()
    };
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => return explain(&error),
    };
    match cli.color {
        ColorWhen::Auto => {}
        ColorWhen::Always => anstream::ColorChoice::Always.write_global(),
        ColorWhen::Never => anstream::ColorChoice::Never.write_global(),
    }
    dwell_collect::keep_peak_small();
    match run(&cli) {
        Ok(status) => status,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS, // `dwell top | head` is not a failure.
        Err(error) => {
            complain(&one_line(&error));
            exit::of_failure(&cli.verb, &error)
        }
    }
}

/// Prints help on standard output, and wrong usage on standard error in the form of all our errors.
fn explain(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        return match error.print() {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    let text = error.render().to_string();
    complain(text.strip_prefix("error: ").unwrap_or(&text).trim_end());
    ExitCode::from(2)
}

fn run(cli: &Cli) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(
        cli.service.is_none() || cli.verb.reads_samples(),
        "--service selects samples for commands that show or export them; this one takes whole recordings"
    );
    let db = || place::folder(cli.db.as_deref());
    let done = match &cli.verb {
        Verb::Record(args) => return collect::record(&db()?, args, cli.json),
        Verb::Daemon(args) => daemon::daemon(&db()?, args),
        Verb::Callpaths(args) => {
            return callpaths::run(args, args.keep.then(db).transpose()?.as_deref(), cli.json);
        }
        Verb::Trace(verb) => return trace::run(verb, cli.json),
        Verb::Status(args) => daemon::status(&db()?, args, cli.json),
        Verb::Flush => daemon::flush(&db()?, cli.json),
        Verb::Pause => daemon::pause(&db()?, cli.json),
        Verb::Resume(args) => daemon::resume(&db()?, args, cli.json),
        Verb::Epoch(EpochVerb::List) => epochs::list(&open(cli)?, cli.json),
        Verb::Epoch(verb) => epochs::run(&db()?, verb, cli.json),
        Verb::Top(args) => run_top(open(cli)?, db().ok().as_deref(), args, cli.json),
        Verb::Callers(args) => run_callers(&open(cli)?, args, Direction::Callers, cli.json),
        Verb::Callees(args) => run_callers(&open(cli)?, args, Direction::Callees, cli.json),
        Verb::Flame(args) => flame::run(&open(cli)?, args, cli.json),
        Verb::Annotate(args) => run_annotate(&open(cli)?, args, cli.json),
        Verb::List(args) => run_list(&open(cli)?, args, cli.json),
        Verb::Cfg(args) => run_cfg(&open(cli)?, args, cli.json),
        Verb::Summary(args) => run_summary(&open(cli)?, args, cli.json),
        Verb::Diff(args) => run_diff(&open(cli)?, args, cli.json),
        Verb::Report(args) => report::run(&open(cli)?, args, cli.json),
        Verb::Stats(args) => run_stats(&open(cli)?, args, cli.json),
        Verb::Sql(args) => return sql::run(options(cli)?, args, cli.json),
        Verb::Export(args) => export::run(&open(cli)?, args, cli.json),
        Verb::Feedback(args) => feedback::run(&open(cli)?, args, cli.json),
        Verb::Push(args) => push::run(&db()?, args, cli.json),
        Verb::RollUp(args) => {
            roll_up::run(&place::database(cli.db.as_deref(), &cli.host, cli.since)?, args, cli.json)
        }
        Verb::Import(args) => import::run(&db()?, args, debug_dirs(cli).collect(), cli.json),
        Verb::Doctor => doctor::run(db(), &debug_dirs(cli).collect::<Vec<_>>(), cli.json),
        Verb::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "dwell", &mut script);
            print(&String::from_utf8_lossy(&script))
        }
        Verb::Man { verb } => man(verb.as_deref()),
        Verb::Legend if cli.json => print_json(&serde_json::json!({ "schema": 1, "text": legend::TEXT })),
        Verb::Legend => print(&legend::render(text::width())),
    };
    done.map(|()| ExitCode::SUCCESS)
}

fn open(cli: &Cli) -> anyhow::Result<Query> {
    Ok(Query::open(options(cli)?)?)
}

fn options(cli: &Cli) -> anyhow::Result<Options> {
    // `top` looks at the times in a folder itself.
    let is_remote = cli.db.as_deref().is_some_and(Location::is_remote);
    let since = cli.since.filter(|_| is_remote || !matches!(cli.verb, Verb::Top(_)));
    let place = place::database(cli.db.as_deref(), &cli.host, since)?;
    let mut options = Options::on(dwell_fleet::open(&place)?);
    options.debug_dirs.extend(debug_dirs(cli));
    options.service = cli.service.clone().or_else(|| Location::service_in(&place));
    Ok(options)
}

/// Returns the folders with debug information that the user named in addition to the usual ones. An empty variable names
/// none.
fn debug_dirs(cli: &Cli) -> impl Iterator<Item = PathBuf> + '_ {
    cli.debug_dir.iter().filter(|dir| !dir.as_os_str().is_empty()).cloned()
}

fn run_top(query: Query, database: Option<&Path>, args: &TopArgs, json: bool) -> anyhow::Result<()> {
    if args.tui {
        return tui::run(query, database, args);
    }
    let by = args.by.unwrap_or(By::Procedure);
    let epochs = match args.since {
        Some(time) => top::since(&query, time)?,
        None => args.epoch.clone(),
    };
    let limit = (args.limit > 0).then_some(args.limit);
    anyhow::ensure!(by == By::Caller || args.of.is_none(), "top: --of needs --by caller");
    if args.inclusive {
        let answer = query.inclusive(&epochs, &args.filter(), limit, &Cancel::new())?;
        return if json {
            print_json(&answer)
        } else {
            print(&callers::render_inclusive(&answer, text::width()))
        };
    }
    if by == By::Caller {
        let function = args.of.clone().context("top: --by caller needs the function: --of FUNCTION")?;
        let (direction, filter) = (Direction::Callers, args.filter());
        let (through, event) = (Vec::new(), None);
        let (depth, share_min) = (1, 0.0);
        let request =
            CallersRequest { epochs, function, direction, event, through, depth, share_min, filter };
        return print_callers(&query, &request, json);
    }
    let request = TopRequest {
        by: top::by(by),
        limit,
        detail: match (json, args.cpi) {
            (true, _) => Detail::Full,
            (false, true) => Detail::HottestWithCpi,
            (false, false) => Detail::Hottest,
        },
        domain: args.domain(),
        ..top::request(&epochs, &args.image, &args.filter())
    };
    let top = query.top(&request, &Cancel::new())?;
    if json {
        return print_json(&top);
    }
    let images = TopRequest { by: TopBy::Image, ..top::request(&epochs, &args.image, &args.filter()) };
    let domains = top::domains(&query.top(&images, &Cancel::new())?);
    let list = query.epochs()?;
    let merged: Vec<_> = list.epochs.iter().filter(|e| top.epochs.contains(&e.id)).collect();
    print(&top::render(&top, domains.as_deref(), &merged, by, text::width()))
}

fn run_callers(query: &Query, args: &CallersArgs, direction: Direction, json: bool) -> anyhow::Result<()> {
    let request = CallersRequest {
        epochs: args.epoch.clone(),
        function: args.function.clone(),
        direction,
        event: args.event.clone(),
        through: Vec::new(),
        depth: args.depth.into(),
        share_min: args.min_share / 100.0,
        filter: args.filter(),
    };
    print_callers(query, &request, json)
}

fn print_callers(query: &Query, request: &CallersRequest, json: bool) -> anyhow::Result<()> {
    let answer = query.callers(request, &Cancel::new())?;
    let title = if request.direction == Direction::Callers { "called from" } else { "calls" };
    if json { print_json(&answer) } else { print(&callers::render(&answer, title, text::width())) }
}

fn run_annotate(query: &Query, args: &AnnotateArgs, json: bool) -> anyhow::Result<()> {
    let cancel = Cancel::new();
    let hottest = || -> anyhow::Result<String> {
        let request = TopRequest { epochs: args.epoch.clone(), ..TopRequest::default() };
        let rows = query.top(&TopRequest { limit: Some(20), ..request }, &cancel)?.rows;
        // Some functions have no instructions to list, for instance those of a kernel whose text was not found.
        let listed = rows.into_iter().find(|r| r.cpi_min.is_some()).and_then(|r| r.id);
        listed.context("annotate: no function of the recording has samples and readable instructions")
    };
    let procedure = args.procedure.clone().map_or_else(hottest, Ok)?;
    let listing = query.listing(&args.epoch, &procedure, &cancel)?;
    if json {
        return print_json(&listing);
    }
    let view =
        annotate::View { width: text::width(), source: !args.no_source, full: args.full, raw: args.raw };
    print(&annotate::render(&listing, &view))
}

fn run_list(query: &Query, args: &ListArgs, json: bool) -> anyhow::Result<()> {
    let path = std::path::absolute(&args.file)?;
    let text = list::read(&path)?;
    let costs = query.file_costs(&args.epoch, &path, &Cancel::new())?;
    anyhow::ensure!(
        !costs.lines.is_empty() || !costs.notes.is_empty(),
        "list: {}: none of its lines has samples",
        path.display()
    );
    if json { print_json(&costs) } else { print(&list::render(&costs, &text, args.full, text::width())) }
}

fn run_cfg(query: &Query, args: &CfgArgs, json: bool) -> anyhow::Result<()> {
    let listing = query.listing(&args.epoch, &args.procedure, &Cancel::new())?;
    if json {
        return print_json(&listing);
    }
    anyhow::ensure!(listing.has_code(), "cfg: {}: the binary is not on this machine", args.procedure);
    let text = match args.format {
        GraphFormat::Svg => cfg::svg(&listing),
        GraphFormat::Dot => cfg::dot(&listing),
    };
    match &args.output {
        Some(path) => std::fs::write(path, text).with_context(|| format!("cfg: {}", path.display())),
        None => print(&text),
    }
}

fn run_summary(query: &Query, args: &SummaryArgs, json: bool) -> anyhow::Result<()> {
    let request = SummaryRequest {
        epochs: args.epoch.clone(),
        procedure: args.procedure.clone(),
        image: args.image.clone(),
        under: args.under.clone(),
    };
    let summary = query.summary(&request, &Cancel::new())?;
    if json { print_json(&summary) } else { print(&summary::render(&summary)) }
}

fn run_stats(query: &Query, args: &StatsArgs, json: bool) -> anyhow::Result<()> {
    let request = StatsRequest {
        epochs: args.epochs.clone(),
        against: [args.against.clone(), args.others.clone()].concat(),
        normalize: args.normalize.clone(),
        limit: (args.limit > 0).then_some(args.limit),
        share_min: args.min_share / 100.0,
        image: args.image.clone(),
    };
    let stats = query.stats(&request, &Cancel::new())?;
    if json { print_json(&stats) } else { print(&stats::render(&stats, text::width())) }
}

fn run_diff(query: &Query, args: &DiffArgs, json: bool) -> anyhow::Result<()> {
    let request = DiffRequest {
        a: args.a.split(',').map(str::to_owned).collect(),
        b: args.b.split(',').map(str::to_owned).collect(),
        procedure: args.procedure.clone(),
        normalize: args.normalize.clone(),
        all: args.all,
        limit: (args.limit > 0).then_some(args.limit),
    };
    let diff = query.diff(&request, &Cancel::new())?;
    if json { print_json(&diff) } else { print(&diff::render(&diff, text::width())) }
}

fn man(verb: Option<&str>) -> anyhow::Result<()> {
    let mut command = Cli::command();
    command.build();
    let command = match verb {
        None => command,
        Some(verb) => {
            command.find_subcommand(verb).with_context(|| format!("man: '{verb}' is not a verb"))?.clone()
        }
    };
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    print(&String::from_utf8_lossy(&page))
}

/// Prints one object on one line.
fn print_json(answer: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_string(answer)?;
    print(&(text + "\n"))
}

/// Prints to standard output, without colours if it is not a terminal.
fn print(text: &str) -> anyhow::Result<()> {
    let mut out = anstream::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("standard output")
}

/// Prints bytes unchanged. anstream would remove sequences that look like colours.
fn print_raw(bytes: &[u8]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).context("standard output")
}

/// Prints a message on standard error. If that fails (disk full, pipe closed), the error is ignored, because a daemon must
/// go on.
fn complain(text: &str) {
    let _ = writeln!(anstream::stderr(), "dwell: {text}");
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .any(|e| e.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe))
}

/// Formats an error and its causes on one line, without repeated texts.
fn one_line(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(|e| e.to_string()) {
        if !text.ends_with(&cause) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&cause);
        }
    }
    text.replace('\n', " ")
}
