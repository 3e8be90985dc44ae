//! `dwell callpaths`: who calls a function of a running program, how often, and what each way costs.
//!
//! Input: a process and names of functions. Output: calls by call path, while the program runs or at the end. The engine
//! (`dwell_probe`) is a process of its own: if this one is killed, it removes the probes.

mod tables;

use std::{
    ffi::OsString,
    fs::File,
    os::unix::process::ExitStatusExt,
    process::{Child, ExitCode, ExitStatus},
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use dwell_collect::{CollectError, PausedCommand, Stop};
use dwell_probe::{
    answer::{CallPaths, Context},
    calibration::calibrate,
    clean,
    engine::Engine,
    functions::{Found, find},
    process::{installation::is_gone, procfs},
    process_images::{MappedImage, process_images},
    shared_memory::{Metrics, measure_ns_per_tick},
};
use dwell_profile::Pid;

use crate::{
    args::{CallpathsArgs, Metric},
    complain, exit, print, print_json,
    text::width,
};

/// How long to sleep before the end of the target, signals and intervals are looked at again.
const LOOK: Duration = Duration::from_millis(20);

/// How long a command may take to end after a signal.
const GRACE: Duration = Duration::from_secs(2);

/// Counts calls until the duration is over, the program ends or a signal comes.
pub fn run(args: &CallpathsArgs, json: bool) -> anyhow::Result<ExitCode> {
    if args.clean {
        let pid = args.pid.context("--clean needs -p PID")?;
        return remove_left_probes(Pid(pid), json).map(|()| ExitCode::SUCCESS);
    }
    // The engine is a fork of this process, so it comes first.
    let mut engine = Engine::start().context("cannot start the process that probes")?;
    let stop = Stop::on_signals()?;
    let mut child = None;
    let found = match args.pid {
        Some(pid) => find_all(Pid(pid), &args.function)?,
        None => {
            let child = child.insert(launch(&mut engine, &args.command)?);
            match find_in_programs(&mut engine, child, args)? {
                Some(found) => found,
                None => return Ok(exit::of_command(child.wait()?)),
            }
        }
    };
    let metrics = metrics(&args.metric);
    let named = match probe(&mut engine, found, metrics) {
        Ok(named) => named,
        Err(error) => {
            // Nothing of the command has run.
            child.as_mut().map(Child::kill).transpose()?;
            return Err(error);
        }
    };
    let counted = count(args, &mut engine, &stop, &named, metrics, json);
    // The probes go before the command's end is awaited.
    drop(engine);
    let is_over = counted? == Ended::Duration;
    match child {
        Some(_) if is_over => Ok(ExitCode::SUCCESS), // It goes on.
        Some(child) => end_of(child, &stop),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Waits until the command ends. If a signal requests an end, the command gets it too, and some time.
fn end_of(mut child: Child, stop: &Stop) -> anyhow::Result<ExitCode> {
    let mut asked: Option<Instant> = None;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(exit::of_command(status));
        }
        match asked {
            Some(at) if at.elapsed() >= GRACE => {
                let signal = stop.signal().map(|signal| ExitStatus::from_raw(signal.as_raw()));
                return Ok(signal.map_or(ExitCode::SUCCESS, exit::of_command)); // It goes on.
            }
            None if stop.is_requested() => {
                stop.pass_on(rustix::process::Pid::from_child(&child));
                asked = Some(Instant::now());
            }
            _ => sleep(LOOK),
        }
    }
}

/// Why the measurement ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// The time was over.
    Duration,
    /// A signal came, the program ended, or it executed another one.
    Otherwise,
}

/// The functions that were named, in a process.
struct Named {
    pid: Pid,
    images: Vec<MappedImage>,
    functions: Vec<Found>,
}

fn find_all(pid: Pid, texts: &[String]) -> anyhow::Result<Named> {
    let images = process_images(pid)?;
    let mut functions: Vec<Found> = Vec::new();
    for text in texts {
        for found in find(&images, text)? {
            if !functions.contains(&found) {
                functions.push(found);
            }
        }
    }
    Ok(Named { pid, images, functions })
}

/// Starts a command that the engine follows.
fn launch(engine: &mut Engine, command: &[OsString]) -> anyhow::Result<Child> {
    let name = command.first().context("no command was given")?.to_string_lossy().into_owned();
    let failed = |source| CollectError::Command { command: name.clone(), source };
    let paused = PausedCommand::fork(command, Some(engine.process())).map_err(failed)?;
    engine.follow(paused.pid())?;
    Ok(paused.resume().map_err(failed)?)
}

/// Finds the functions in the first program of the command that has all of them: a shell or `env` executes the one that is
/// meant. That program is held then. Returns `None` if none has them.
fn find_in_programs(
    engine: &mut Engine,
    child: &mut Child,
    args: &CallpathsArgs,
) -> anyhow::Result<Option<Named>> {
    let pid = Pid(child.id());
    let mut last = None;
    while engine.await_program()? {
        match find_all(pid, &args.function) {
            Ok(found) => return Ok(Some(found)),
            Err(error) => {
                let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
                complain(&format!(
                    "{}: {error}; the program runs without probes unless it executes another one",
                    program.display()
                ));
                last = Some(error);
            }
        }
        engine.follow(pid)?;
    }
    match last {
        Some(_) => Err(anyhow::anyhow!("no program of the command has the functions: nothing was counted")),
        None => Ok(None), // It ended before it had loaded a program.
    }
}

/// Probes functions, and returns those that could be.
fn probe(engine: &mut Engine, named: Named, metrics: Metrics) -> anyhow::Result<Named> {
    let Named { pid, images, functions: wanted } = named;
    engine.attach(pid)?;
    let addresses = wanted.iter().map(|function| function.address).collect();
    let added = engine.add(addresses, metrics)?;
    let mut functions = Vec::new();
    let mut refusals = Vec::new();
    for (function, added) in wanted.into_iter().zip(added) {
        let image = &images[function.image].mapping.path;
        match added {
            Ok(_) => functions.push(function),
            Err(reason) => refusals.push(format!("{} in {image} is not probed: {reason}", function.name)),
        }
    }
    if functions.is_empty() {
        anyhow::bail!("{}", refusals.join("; "));
    }
    refusals.iter().for_each(|refusal| complain(refusal));
    Ok(Named { pid, images, functions })
}

/// Shows the calls at intervals and at the end.
fn count(
    args: &CallpathsArgs,
    engine: &mut Engine,
    stop: &Stop,
    named: &Named,
    metrics: Metrics,
    json: bool,
) -> anyhow::Result<Ended> {
    let Named { pid, images, functions } = named;
    let pid = *pid;
    let memory = File::open(format!("/proc/{pid}/mem")).with_context(|| format!("process {pid}"))?;
    let anywhere = functions.first().map_or(0, |function| function.address);
    let ns_per_tick = measure_ns_per_tick();
    let context = Context {
        pid: pid.0,
        images,
        functions,
        metrics,
        ns_per_tick,
        calibration: calibrate(metrics, ns_per_tick).ok(),
    };
    let show = |engine: &Engine, elapsed| {
        let answer = CallPaths::new(&context, &engine.snapshot(), elapsed, engine.stopped);
        if json {
            print(&format!("{}\n", serde_json::to_string(&answer)?))
        } else {
            print(&tables::render(&answer, args.limit, width()))
        }
    };
    let begin = Instant::now();
    if args.pid.is_none() {
        engine.let_go()?;
    }
    let mut next = args.interval.map(|seconds| begin + seconds);
    while !stop.is_requested()
        && args.duration.is_none_or(|longest| begin.elapsed() < longest)
        && !procfs::is_over(pid)
        && !is_gone(&memory, anywhere)
    {
        sleep(LOOK);
        if let (Some(at), Some(interval)) = (next, args.interval)
            && Instant::now() >= at
        {
            show(engine, begin.elapsed())?;
            next = Some(at + interval);
        }
    }
    let elapsed = begin.elapsed();
    // A process that is about to end has no memory either.
    let has_memory = procfs::mappings(pid).is_ok_and(|mappings| !mappings.is_empty());
    if has_memory && is_gone(&memory, anywhere) {
        complain(&format!("process {pid} executed another program, whose calls are not counted"));
    }
    let is_over = !stop.is_requested() && args.duration.is_some_and(|longest| elapsed >= longest);
    let removed = engine.remove();
    show(engine, elapsed)?;
    removed?;
    Ok(if is_over { Ended::Duration } else { Ended::Otherwise })
}

fn remove_left_probes(pid: Pid, json: bool) -> anyhow::Result<()> {
    let removed = clean(pid)?;
    if json {
        return print_json(&serde_json::json!({"schema": 1, "processes": [pid.0], "removed": removed}));
    }
    let what = if removed { "the probes of process" } else { "there are no probes in process" };
    print(&format!("{what} {pid}{}\n", if removed { " are removed" } else { "" }))
}

fn metrics(chosen: &[Metric]) -> Metrics {
    let has = |metric| chosen.contains(&metric);
    let blocked = has(Metric::Blocked);
    let (wall, cpu) = (has(Metric::Wall) || blocked, has(Metric::Cpu) || blocked);
    Metrics { returns: wall || cpu, wall, cpu, blocked }
}
