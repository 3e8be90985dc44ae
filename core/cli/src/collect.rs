//! Runs `dwell record`: converts arguments for dwell-collect, and shows its progress and results.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::File,
    io::Write,
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Command, ExitCode, ExitStatus},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

use anyhow::{Context, bail};
use dwell_collect::{
    BackendChoice, COUNTING_PERCENT, CollectError, CountWhen, DEFAULT_RATE_HZ, DEFAULT_STACKS_HZ,
    DEFAULT_STACKS_HZ_OF_MACHINES, ODOMETERS_PERCENT, Progress, Rate, RecordOptions, Recorded, Stop, Target,
};
use dwell_profile::{
    BreakpointRecord, BurstsRecord, CountsRecord, Database, Epoch, EpochId, Event, EventRecord,
};
use dwell_query::{Options, Query};
use indicatif::ProgressBar;
use rustix::process::Pid;
use serde_json::{Value, json};

use crate::{
    args::{BackendArg, CountArg, RecordArgs, SamplingArgs},
    code_counter::EngineCounter,
    complain, exit, is_broken_pipe, print_json,
    text::{counted, grouped},
};

/// Percent of the CPU time of a command that breakpoint counts may cost by default.
const WINDOWS_PERCENT: f64 = 1.0;

/// CPU time that measuring executions may cost, in percent of the target's CPU time.
struct Counting {
    bursts: f64,
    breakpoints: f64,
    breakpoints_stand_in: bool,
}

impl Counting {
    /// Returns the budgets. The defaults depend on the target. Path bursts are taken of chosen processes, or
    /// breakpoint counts of a command where path bursts are impossible; taking both would add nothing to path bursts alone
    /// (docs/measured.md). A process that already runs may be in production, and breakpoints nearly stop hot code, so it gets none. For
    /// a whole machine the default is neither: it would have to be sampled through rings.
    fn of(args: &RecordArgs) -> Self {
        let is_chosen = !args.all && args.count.is_none();
        let bursts = if is_chosen { COUNTING_PERCENT } else { 0.0 };
        let breakpoints = if is_chosen && args.pid.is_empty() { WINDOWS_PERCENT } else { 0.0 };
        let (bursts, breakpoints) = match (args.paths, args.windows) {
            (None, None) => (bursts, breakpoints),
            (None, Some(0.0)) => (bursts, 0.0),
            (Some(0.0), None) => (0.0, breakpoints),
            (bursts, breakpoints) => (bursts.unwrap_or(0.0), breakpoints.unwrap_or(0.0)),
        };
        Counting { bursts, breakpoints, breakpoints_stand_in: args.paths.is_none() }
    }
}

/// Records one epoch. Returns the exit status of the command, if there was a command.
pub fn record(db: &Path, args: &RecordArgs, json: bool) -> anyhow::Result<ExitCode> {
    let report = args.report_fd.map(|fd| {
        let file = dwell_collect::take_inherited_fd(fd);
        file.with_context(|| format!("record: --report-fd {fd}"))
    });
    let mut report = report.transpose()?;
    let copy = args
        .report
        .as_deref()
        .map(|path| File::create(path).with_context(|| format!("record: --report {}", path.display())));
    let mut copy = copy.transpose()?;
    refuse_stops_beside_waits(args)?;
    let counting = Counting::of(args);
    let around = args.all && !args.command.is_empty();
    let code_counter =
        args.count.map(|when| EngineCounter::start().map(|counter| (counter, when))).transpose();
    let code_counter = code_counter.context("record: --count")?;
    let stacks_hz =
        args.stacks.unwrap_or(if args.all { DEFAULT_STACKS_HZ_OF_MACHINES } else { DEFAULT_STACKS_HZ });
    let options = RecordOptions {
        backend: backend(&args.sampling),
        events: events(&args.sampling),
        rate: rate(&args.sampling).unwrap_or(Rate::Frequency(DEFAULT_RATE_HZ + stacks_hz)),
        stacks_hz,
        name: args.sampling.name.clone(),
        by_process: by_process(&args.sampling),
        dimensions: args.sampling.dimensions.iter().copied().collect(),
        data: args.data,
        duration: args.duration.map(Duration::from_secs),
        bursts_percent: counting.bursts,
        counting_percent: if args.paths.is_some() { f64::INFINITY } else { COUNTING_PERCENT },
        breakpoints_percent: counting.breakpoints,
        breakpoints_stand_in: counting.breakpoints_stand_in,
        odometers_percent: if args.no_odometers || code_counter.is_some() { 0.0 } else { ODOMETERS_PERCENT },
        code_counter: code_counter.map(|(counter, when)| (Box::new(counter) as _, count_when(when))),
        branch_stacks_hz: args.branch_stacks,
        ..RecordOptions::new(target(args)?)
    };
    let writer = Database::open(db)?.writer()?;
    let stop = Stop::on_signals()?;
    let mut reporter = Reporter::new();
    let mut spawned = None;
    let recorded = dwell_collect::record(options, &writer, &stop, &mut |progress| {
        if around && matches!(progress, Progress::Started(_)) {
            let started = Around::start(&args.command, &stop);
            if started.is_err() {
                stop.stop();
            }
            spawned = Some(started);
        }
        reporter.show(progress);
    });
    reporter.end();
    let around = match spawned.transpose() {
        Ok(around) => around,
        Err(error) => {
            // Nothing was sampled, so the epoch is removed: otherwise it would be the latest one.
            let removed = recorded.map(|r| writer.database().remove(&r.epoch.id));
            return removed.map_err(Into::into).and_then(|_| Err(error));
        }
    };
    let recorded = recorded?;
    let exit = match around {
        Some(around) => around.end(recorded.interrupted.then_some(&stop))?,
        None => recorded.exit,
    };
    keep_sources(db, &recorded.epoch.id);
    if let Some(file) = &mut copy {
        writeln!(file, "{}", answer(&recorded, exit)).context("--report")?;
    }
    let told = match &mut report {
        Some(file) => writeln!(file, "{}", answer(&recorded, exit)).context("--report-fd"),
        None if json => print_json(&answer(&recorded, exit)),
        None => {
            tell(&recorded, exit, args);
            Ok(())
        }
    };
    match told {
        Err(error) if !is_broken_pipe(&error) => Err(error),
        _ => Ok(exit.or_else(|| left_by(&stop)).map_or(ExitCode::SUCCESS, exit::of_command)),
    }
}

/// Refuses requests that contradict each other: to record waits, and to make threads wait.
fn refuse_stops_beside_waits(args: &RecordArgs) -> anyhow::Result<()> {
    let has_waits = events(&args.sampling).contains(&Event::OFF_CPU);
    let stops = [args.paths, args.windows].into_iter().flatten().any(|percent| percent > 0.0);
    anyhow::ensure!(
        !has_waits || !(stops || args.count.is_some()),
        "record: -e off-cpu: --paths, --windows and --count stop threads, which would be recorded as waits: leave them out"
    );
    Ok(())
}

/// Percent of the program's time that windows in which executions are counted may cost.
const COUNT_PERCENT: f64 = 2.0;

fn count_when(when: CountArg) -> CountWhen {
    match when {
        CountArg::Windows => CountWhen::Windows(COUNT_PERCENT),
        CountArg::Always => CountWhen::Always,
    }
}

/// Returns the status of a command that was sent a signal but goes on: it counts as ended by that signal.
fn left_by(stop: &Stop) -> Option<ExitStatus> {
    stop.signal().map(|signal| ExitStatus::from_raw(signal.as_raw()))
}

fn target(args: &RecordArgs) -> anyhow::Result<Target> {
    Ok(match (args.all, &args.pid[..], &args.command[..]) {
        (true, ..) => Target::System,
        (false, [], []) => bail!("record: nothing to sample: give a command after --, -p PID or -a"),
        (false, [], command) => Target::Command(command.to_vec()),
        (false, pids, []) => Target::Processes(pids.iter().copied().map(dwell_profile::Pid).collect()),
        (false, ..) => bail!("record: give a process (-p) or a command, not both"), // clap rejects this before
    })
}

/// Returns the events that the arguments select.
pub fn events(args: &SamplingArgs) -> Vec<Event> {
    args.event.iter().map(|e| Event::named(e)).collect()
}

/// Returns the backend that the arguments select.
pub fn backend(args: &SamplingArgs) -> BackendChoice {
    match args.backend {
        BackendArg::Auto => BackendChoice::Auto,
        BackendArg::Kmod => BackendChoice::Kmod,
        BackendArg::Bpf => BackendChoice::Bpf,
        BackendArg::Perf => BackendChoice::Perf,
    }
}

/// Returns the applications whose executions are recorded separately. Applications are named after their executables.
pub fn by_process(args: &SamplingArgs) -> Vec<String> {
    let name = |image: &String| image.rsplit('/').next().unwrap_or_default().to_owned();
    args.by_process.iter().map(name).filter(|name| !name.is_empty()).collect()
}

/// Returns the sampling rate that the arguments select, if any.
pub fn rate(args: &SamplingArgs) -> Option<Rate> {
    args.period.map(Rate::Period).or(args.frequency.map(Rate::Frequency))
}

/// Time that a command may take to end after it was asked to.
const GRACE: Duration = Duration::from_secs(2);

/// A command that runs while the whole machine is sampled. The collection ends when the command ends.
struct Around {
    pid: Pid,
    status: Receiver<std::io::Result<ExitStatus>>,
}

impl Around {
    fn start(words: &[OsString], stop: &Stop) -> anyhow::Result<Self> {
        let (program, arguments) = words.split_first().context("no command was given")?;
        let failed =
            |source| CollectError::Command { command: program.to_string_lossy().into_owned(), source };
        let mut child = Command::new(program).args(arguments).spawn().map_err(failed)?;
        let pid = Pid::from_child(&child);
        let (sender, status) = channel();
        let stop = stop.clone();
        thread::spawn(move || {
            // After the grace period, the receiver is gone and nobody needs the result.
            let _ = sender.send(child.wait());
            stop.stop();
        });
        Ok(Around { pid, status })
    }

    /// Returns the status of the command, if it has ended. If the user requested `stop`, a command that is still running is
    /// asked to end; if it does not, it is left running.
    fn end(self, stop: Option<&Stop>) -> anyhow::Result<Option<ExitStatus>> {
        let waited = self.status.recv_timeout(Duration::ZERO).or_else(|goes_on| {
            let stop = stop.ok_or(goes_on)?;
            stop.pass_on(self.pid);
            self.status.recv_timeout(GRACE)
        });
        waited.ok().transpose().context("cannot wait for the command to end")
    }
}

/// Shows progress on a terminal, and warnings always.
pub struct Reporter {
    bar: ProgressBar,
}

impl Reporter {
    /// Creates a reporter. indicatif draws the progress only on a terminal.
    pub fn new() -> Self {
        Reporter { bar: ProgressBar::new_spinner() }
    }

    /// Shows one progress report.
    pub fn show(&mut self, progress: Progress) {
        match progress {
            Progress::Started(epoch) => {
                for note in &epoch.notes {
                    self.say(note);
                }
                self.bar.set_message("sampling; press Ctrl-C to stop");
            }
            Progress::Running { .. } if self.bar.is_hidden() => {} // Nobody sees the text.
            Progress::Running { elapsed, samples, lost } => {
                let lost = if lost > 0 { format!(", {} lost", grouped(lost)) } else { String::new() };
                self.bar.set_message(format!("{} s, {} samples{lost}", elapsed.as_secs(), grouped(samples)));
                self.bar.tick();
            }
            Progress::Flushed { .. } | Progress::Ended(_) => {}
            Progress::Warning(text) => self.say(&text),
        }
    }

    fn say(&self, text: &str) {
        self.bar.suspend(|| complain(text));
    }

    fn end(&self) {
        self.bar.finish_and_clear();
    }
}

/// Stores the source files of the sampled lines. If this fails, the profile is still valid, but later edits of the sources
/// cannot be followed.
pub fn keep_sources(db: &Path, epoch: &EpochId) {
    let kept = Query::open(Options::for_database(db)).and_then(|q| q.keep_sources(epoch));
    if let Err(error) = kept {
        complain(&format!("warning: the sources of this recording were not stored: {error}"));
    }
}

/// Builds the object that `record --json` prints.
fn answer(recorded: &Recorded, exit: Option<ExitStatus>) -> Value {
    let epoch = &recorded.epoch;
    json!({ "schema": 1, "epoch": epoch.id, "events": epoch.events, "notes": epoch.notes, "paths": epoch.bursts, "windows": epoch.breakpoints,
        "counts": epoch.counts, "interrupted": recorded.interrupted, "exit_status": exit.and_then(|e| e.code()) })
}

/// Prints the result as text. Path bursts and breakpoint counts are omitted if there were none and the user did not request
/// them.
fn tell(recorded: &Recorded, exit: Option<ExitStatus>, args: &RecordArgs) {
    let epoch = &recorded.epoch;
    match exit {
        Some(exit) if !exit.success() => {
            complain(&format!("the command ended with {exit}; its samples are kept"))
        }
        None if !args.command.is_empty() => complain("the command is still running, without being sampled"),
        _ => {}
    }
    complain(&tallies(epoch));
    let is_told = |r: &&BurstsRecord| args.paths.is_some() || r.bursts > 0 || !r.refused.is_empty();
    if let Some(record) = epoch.bursts.as_ref().filter(is_told) {
        complain(&bursts_line(record));
        timed_bursts_line(record).iter().for_each(|line| complain(line));
    }
    if let Some(record) = epoch.breakpoints.as_ref().filter(|r| args.windows.is_some() || r.windows > 0) {
        complain(&breakpoints_line(record));
    }
    if let Some(counts) = &epoch.counts {
        if args.count.is_some() {
            complain(&counters_line(counts));
        } else if counts.words + counts.loops + counts.samples_dropped > 0 {
            complain(&counts_line(counts));
        }
    }
}

/// Describes path bursts: `41 path bursts of 41,000 steps, 0.93% of CPU time; 9 samples taken meanwhile are not counted; cut
/// short: 3 signal; …`.
pub fn bursts_line(record: &BurstsRecord) -> String {
    let opaque = match record.opaque_steps {
        0 => String::new(),
        steps => format!("; {} steps in unreadable code", grouped(steps)),
    };
    format!(
        "{} of {} steps, {:.2}% of CPU time; {} samples taken meanwhile are not counted{}{}{opaque}",
        counted(record.bursts as usize, "path burst"),
        grouped(record.steps),
        100.0 * record.stepping_ns as f64 / (record.cpu_ns as f64).max(1.0),
        grouped(record.samples_dropped),
        causes("cut short", &record.cut_short),
        causes("refused", &record.refused),
    )
}

/// Describes bursts whose time is known: `22 timed bursts of 17.3 ms; emulation beside the program took 9.1% of its CPU time, at the
/// lowest priority; not timed: 3 system call`. Returns `None` if none was to be timed.
pub fn timed_bursts_line(record: &BurstsRecord) -> Option<String> {
    let is_tried = record.timed > 0 || !record.untimed.is_empty();
    is_tried.then(|| {
        format!(
            "{} of {:.1} ms; emulation beside the program took {:.1}% of its CPU time, at the lowest priority{}",
            counted(record.timed as usize, "timed burst"),
            record.timed_ns as f64 / 1e6,
            100.0 * record.beside_ns as f64 / (record.cpu_ns as f64).max(1.0),
            causes("not timed", &record.untimed),
        )
    })
}

/// Describes breakpoint counts: `12 counted windows of 4,100 executions, 0.93% of CPU time; 40 samples taken meanwhile are not
/// counted; refused: 3 not running`.
pub fn breakpoints_line(record: &BreakpointRecord) -> String {
    format!(
        "{} of {} executions, {:.2}% of CPU time; {} samples taken meanwhile are not counted{}",
        counted(record.windows as usize, "counted window"),
        grouped(record.executions),
        100.0 * record.cost_ns as f64 / (record.cpu_ns as f64).max(1.0),
        grouped(record.samples_dropped),
        causes("refused", &record.refused),
    )
}

/// Describes execution counts: `executions counted by 3 words of memory and 1 loop, 0.31% of CPU time; 4 samples meanwhile
/// are not counted; refused: 2 goes back`.
pub fn counts_line(counts: &CountsRecord) -> String {
    format!(
        "executions counted by {} of memory and {}, {:.2}% of CPU time; {} samples taken meanwhile are not counted{}",
        counted(counts.words as usize, "word"),
        counted(counts.loops as usize, "loop"),
        100.0 * counts.cost_ns as f64 / (counts.cpu_ns as f64).max(1.0),
        grouped(counts.samples_dropped),
        causes("refused", &counts.refused),
    )
}

/// Describes counters in code: `executions counted in the code of 12 procedures by 140 counters, 1.90% of CPU time; 31 samples in
/// counters are not counted; refused: 2 jump with unknown targets`. What counting all the time costs is not known.
pub fn counters_line(counts: &CountsRecord) -> String {
    let cost = match counts.budget_percent > 0.0 {
        true => {
            format!(", {:.2}% of CPU time", 100.0 * counts.cost_ns as f64 / (counts.cpu_ns as f64).max(1.0))
        }
        false => String::new(),
    };
    format!(
        "executions counted in the code of {} by {}{}; {} samples in counters are not counted{}",
        counted(counts.procedures as usize, "procedure"),
        counted(counts.counters as usize, "counter"),
        cost,
        grouped(counts.samples_dropped),
        causes("refused", &counts.refused),
    )
}

/// Lists counts by cause: `; refused: 3 not running, 1 gone`.
fn causes(what: &str, causes: &BTreeMap<String, u64>) -> String {
    let list: Vec<String> = causes.iter().map(|(cause, n)| format!("{} {cause}", grouped(*n))).collect();
    if list.is_empty() { String::new() } else { format!("; {what}: {}", list.join(", ")) }
}

/// Describes an epoch: `epoch X: 45,937 samples of cpu-clock, 0 lost, 0.02% unknown`.
pub fn tallies(epoch: &Epoch) -> String {
    let events = epoch.events.iter().map(|(event, r)| event_line(event, r));
    format!("epoch {}: {}", epoch.id, events.collect::<Vec<_>>().join("; "))
}

/// Describes an event: `45,937 samples of cpu-clock, 0 lost, 0.02% unknown`.
pub fn event_line(event: &Event, r: &EventRecord) -> String {
    let throttled =
        if r.throttled > 0 { format!(", throttled {} times", r.throttled) } else { String::new() };
    let unknown = 100.0 * r.unknown as f64 / r.samples.max(1) as f64;
    format!(
        "{} samples of {event}, {} lost{throttled}, {unknown:.2}% unknown",
        grouped(r.samples),
        grouped(r.lost)
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        record: RecordArgs,
    }

    #[test]
    fn commands_are_followed_by_default_and_breakpoints_are_the_fallback() {
        let cases = [
            ("-- true", (COUNTING_PERCENT, 1.0, true)),
            ("--windows 0 -- true", (COUNTING_PERCENT, 0.0, true)),
            ("--windows 2 -- true", (0.0, 2.0, true)),
            ("--paths 0 -- true", (0.0, 1.0, false)),
            ("--paths 2 -- true", (2.0, 0.0, false)),
            ("--paths 0 --windows 0 -- true", (0.0, 0.0, false)),
            ("--paths 3 --windows 2 -- true", (3.0, 2.0, false)),
            ("-a -- true", (0.0, 0.0, true)),
            ("-p 1", (COUNTING_PERCENT, 0.0, true)),
            ("--paths 0 -p 1", (0.0, 0.0, false)),
            ("--windows 2 -p 1", (0.0, 2.0, true)),
            ("--paths 2 -p 1", (2.0, 0.0, false)),
        ];
        for (line, expected) in cases {
            let args = Line::parse_from(["record"].into_iter().chain(line.split(' '))).record;
            let Counting { bursts, breakpoints, breakpoints_stand_in } = Counting::of(&args);
            assert_eq!((bursts, breakpoints, breakpoints_stand_in), expected, "{line}");
        }
    }
}
