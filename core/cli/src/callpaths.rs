//! `dwell callpaths`: who calls a function of a running program, how often, and what each way costs.
//!
//! Input: a process and names of functions. Output: calls by call path, while the program runs or at the end. The engine
//! (`dwell_probe`) is a process of its own: if this one is killed, it removes the probes.

mod follow;
mod keep;
mod tables;

use std::{
    ffi::OsString,
    fs::File,
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Child, ExitCode, ExitStatus},
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use dwell_collect::{CollectError, PausedCommand, Stop};
use dwell_probe::{
    answer::{CallPaths, CallSum, Context, ProcessCalls},
    calibration::calibrate,
    clean,
    engine::{Engine, Program as Followed},
    functions::{FindError, Found, find},
    process::{installation::is_gone, procfs},
    process_images::{MappedImage, new_images, process_images},
    recording::Recording,
    shared_memory::{Metrics, measure_ns_per_tick},
};
use dwell_profile::Pid;

use self::keep::Keeper;
use crate::{
    args::{CallpathsArgs, Metric},
    complain, exit, print, print_json,
    text::width,
};

/// How long to sleep before the end of the target, signals and intervals are looked at again.
const LOOK: Duration = Duration::from_millis(20);

/// One part in so many of the time may go into reading the mappings of a program.
const MAPPINGS_SHARE: u32 = 100;

/// A command may take so long to end after a signal.
const GRACE: Duration = Duration::from_secs(2);

/// Counts calls until the duration is over, all programs end or a signal comes. They are kept in `db`, if
/// there is one.
pub fn run(args: &CallpathsArgs, db: Option<&Path>, json: bool) -> anyhow::Result<ExitCode> {
    let mut pids: Vec<Pid> = Vec::new();
    for pid in args.pid.iter().copied().map(Pid) {
        if !pids.contains(&pid) {
            pids.push(pid);
        }
    }
    if args.clean {
        return remove_left_probes(&pids, json).map(|()| ExitCode::SUCCESS);
    }
    if args.follow_children {
        return follow::run(args, db, json);
    }
    // Engines are forks of this process, so they come first.
    let start = || Engine::start().context("cannot start the process that probes");
    let mut engines = (0..pids.len().max(1)).map(|_| start()).collect::<anyhow::Result<Vec<Engine>>>()?;
    let stop = Stop::on_signals()?;
    let keeper = Keeper::begin(db, args)?;
    let (mut child, mut is_held) = (None, false);
    let found = if pids.is_empty() {
        let mut launched = launch(&mut engines[0], &args.command)?;
        match find_in_programs(&mut engines[0], &mut launched, args, &stop)? {
            Some((found, held)) => {
                (child, is_held) = (Some(launched), held);
                vec![found]
            }
            None => {
                drop(engines);
                return end_of(launched, &stop);
            }
        }
    } else {
        find_all(&pids, &args.function)?
    };
    let metrics = metrics(&args.metric);
    let programs = match probe(engines, found, metrics) {
        Ok(programs) => programs,
        Err(error) => {
            let Some(child) = &mut child else { return Err(error) };
            if is_held {
                child.kill()?; // Nothing of it has run.
            } else if child.try_wait()?.is_some() {
                return Err(error.context("the command ended before it had probes"));
            }
            return Err(error);
        }
    };
    // The probes go before the command's end is awaited.
    let ended = count(args, programs, &stop, metrics, keeper, json)?;
    match child {
        Some(_) if ended == Ended::Duration => Ok(ExitCode::SUCCESS), // It goes on.
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

/// The reason for which a measurement ended.
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

/// Finds functions in processes. Each must be in one of them at least.
fn find_all(pids: &[Pid], texts: &[String]) -> anyhow::Result<Vec<Named>> {
    let open = |pid: &Pid| Ok(Named { pid: *pid, images: process_images(*pid)?, functions: Vec::new() });
    let mut all = pids.iter().map(open).collect::<anyhow::Result<Vec<Named>>>()?;
    for text in texts {
        let (mut is_found, mut missing) = (false, None);
        for Named { images, functions, .. } in &mut all {
            match find(images, text) {
                Ok(found) => {
                    is_found = true;
                    for function in found {
                        if !functions.contains(&function) {
                            functions.push(function);
                        }
                    }
                }
                Err(error @ FindError::TooMany { .. }) => return Err(error.into()),
                Err(error) => missing = Some(error),
            }
        }
        if let (false, Some(error)) = (is_found, missing) {
            return Err(error.into());
        }
    }
    Ok(all)
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
/// meant, and libraries may be loaded later. Returns them with whether the program is held, which it is at its beginning; `None`
/// if the command ended, or a signal came, before.
fn find_in_programs(
    engine: &mut Engine,
    child: &mut Child,
    args: &CallpathsArgs,
    stop: &Stop,
) -> anyhow::Result<Option<(Named, bool)>> {
    let pid = Pid(child.id());
    let mut images = 0;
    let mut is_missing = false;
    let mut next = None;
    while !stop.is_requested() {
        match next.take().map_or_else(|| engine.program(), Ok)? {
            Followed::Ended => break,
            Followed::Held => match find_all(&[pid], &args.function) {
                Ok(mut found) => return Ok(found.pop().map(|found| (found, true))),
                Err(error) if matches!(error.downcast_ref(), Some(FindError::TooMany { .. })) => {
                    child.kill()?; // Nothing of it has run.
                    return Err(error);
                }
                Err(error) => {
                    is_missing = true;
                    let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
                    complain(&format!(
                        "{}: {error}; the program runs without probes until it loads or executes that",
                        program.display()
                    ));
                    images = number_of_images(pid);
                    engine.follow(pid)?;
                }
            },
            Followed::Runs => {
                sleep(if is_missing { LOOK } else { LOOK / 20 });
                let now = if is_missing { number_of_images(pid) } else { images };
                if now == images {
                    continue;
                }
                images = now;
                let Ok(mut found) = find_all(&[pid], &args.function) else { continue };
                match engine.leave()? {
                    Followed::Runs => {
                        complain(
                            "the functions were loaded while the program ran: earlier calls are not counted",
                        );
                        return Ok(found.pop().map(|found| (found, false)));
                    }
                    other => next = Some(other), // It has executed another program or ended meanwhile.
                }
            }
        }
    }
    if is_missing && !stop.is_requested() {
        anyhow::bail!("no program of the command has the functions: nothing was counted");
    }
    Ok(None)
}

fn number_of_images(pid: Pid) -> usize {
    let mappings = procfs::mappings(pid).unwrap_or_default();
    mappings.iter().filter(|mapping| mapping.is_executable && mapping.file.is_some()).count()
}

/// A program with probes.
struct Program {
    engine: Engine,
    named: Named,
    /// Number of images that it has mapped.
    images: usize,
    /// When that is looked at again.
    look_at: Instant,
    /// Its memory, by which another program in the same process is noticed.
    memory: File,
}

/// Probes functions. Those that cannot be are reported, and left out.
fn probe(engines: Vec<Engine>, found: Vec<Named>, metrics: Metrics) -> anyhow::Result<Vec<Program>> {
    let mut programs = Vec::new();
    let mut refusals = Vec::new();
    for (engine, named) in engines.into_iter().zip(found) {
        if !named.functions.is_empty() {
            programs.extend(probe_program(engine, named, metrics, &mut refusals)?);
        }
    }
    refusals.dedup();
    if programs.is_empty() {
        anyhow::bail!("{}", refusals.join("; "));
    }
    refusals.iter().for_each(|refusal| complain(refusal));
    Ok(programs)
}

/// Probes the functions of a program; `None` if that is possible with none of them.
fn probe_program(
    mut engine: Engine,
    named: Named,
    metrics: Metrics,
    refusals: &mut Vec<String>,
) -> anyhow::Result<Option<Program>> {
    let Named { pid, images, functions: wanted } = named;
    engine.attach(pid)?;
    let addresses = wanted.iter().map(|function| function.address).collect();
    let added = engine.add(addresses, metrics)?;
    let mut functions = Vec::new();
    for (function, added) in wanted.into_iter().zip(added) {
        let image = images[function.image].path();
        match added {
            Ok(_) => functions.push(function),
            Err(reason) => refusals.push(format!("{} in {image} is not probed: {reason}", function.name)),
        }
    }
    if functions.is_empty() {
        return Ok(None);
    }
    Program::new(engine, Named { pid, images, functions }).map(Some)
}

impl Program {
    fn new(engine: Engine, named: Named) -> anyhow::Result<Self> {
        let pid = named.pid;
        let memory = File::open(format!("/proc/{pid}/mem")).with_context(|| format!("process {pid}"))?;
        let (images, look_at) = (number_of_images(pid), Instant::now());
        Ok(Program { engine, images, look_at, named, memory })
    }

    fn calls(&self) -> ProcessCalls<'_> {
        let Named { pid, images, functions } = &self.named;
        ProcessCalls { pid: pid.0, images, functions, snapshot: self.engine.snapshot() }
    }

    /// Lets paths go on in libraries that the program has loaded meanwhile. One part in `share` of the time may go into that.
    fn refresh(&mut self, share: u32) -> anyhow::Result<()> {
        let begin = Instant::now();
        if begin < self.look_at {
            return Ok(());
        }
        let Named { pid, images, .. } = &mut self.named;
        let number = number_of_images(*pid);
        // Reading thousands of mappings would keep the program from changing them.
        self.look_at = begin + begin.elapsed() * share;
        if number == self.images || number == 0 {
            return Ok(());
        }
        self.images = number;
        let new = new_images(*pid, images)?;
        if !new.is_empty() {
            self.engine.refresh()?;
            images.extend(new);
        }
        Ok(())
    }

    /// Returns whether nothing can be counted any more.
    fn is_over(&self) -> bool {
        procfs::is_over(self.named.pid) || is_gone(&self.memory, self.named.functions[0].address)
    }

    /// Returns whether another program runs in the process. One that is about to end has no memory.
    fn is_replaced(&self) -> bool {
        let has_memory = procfs::mappings(self.named.pid).is_ok_and(|mappings| !mappings.is_empty());
        has_memory && is_gone(&self.memory, self.named.functions[0].address)
    }
}

/// Shows the calls at intervals and at the end.
fn count(
    args: &CallpathsArgs,
    mut programs: Vec<Program>,
    stop: &Stop,
    metrics: Metrics,
    keeper: Option<Keeper>,
    json: bool,
) -> anyhow::Result<Ended> {
    let context = context(metrics);
    let sum = |programs: &[Program]| {
        let mut sum = CallSum::default();
        programs.iter().for_each(|program| sum.add(&program.calls()));
        sum
    };
    let show = |programs: &[Program], sum, elapsed| {
        let stopped = programs.iter().map(|program| program.engine.stopped).max().unwrap_or_default();
        show(&CallPaths::new(&context, sum, None, elapsed, stopped), args, json)
    };
    let begin = Instant::now();
    if args.pid.is_empty() {
        programs[0].engine.let_go()?;
    }
    let mut next = args.interval.map(|seconds| begin + seconds);
    while !stop.is_requested()
        && args.duration.is_none_or(|longest| begin.elapsed() < longest)
        && !programs.iter().all(Program::is_over)
    {
        sleep(LOOK);
        for program in programs.iter_mut().filter(|program| !program.is_over()) {
            // One that ends meanwhile has no images.
            if let Err(error) = program.refresh(MAPPINGS_SHARE)
                && !program.is_over()
            {
                return Err(error);
            }
        }
        if let (Some(at), Some(interval)) = (next, args.interval)
            && Instant::now() >= at
        {
            show(&programs, sum(&programs), begin.elapsed())?;
            next = Some(at + interval);
        }
    }
    let elapsed = begin.elapsed();
    let is_over = !stop.is_requested() && args.duration.is_some_and(|longest| elapsed >= longest);
    for program in programs.iter().filter(|program| program.is_replaced()) {
        complain(&format!(
            "process {} executed another program, whose calls are not counted",
            program.named.pid
        ));
    }
    let removed: Vec<_> = programs.iter_mut().map(|program| program.engine.remove()).collect();
    let sum = sum(&programs);
    let recording = keeper.map(|keeper| (keeper, Recording::new(&context, &sum)));
    show(&programs, sum, elapsed)?;
    recording.map_or(Ok(()), |(keeper, recording)| keeper.store(&recording))?;
    removed.into_iter().collect::<std::io::Result<()>>()?;
    Ok(if is_over { Ended::Duration } else { Ended::Otherwise })
}

fn context(metrics: Metrics) -> Context {
    let ns_per_tick = measure_ns_per_tick();
    Context { metrics, ns_per_tick, calibration: calibrate(metrics, ns_per_tick).ok() }
}

fn show(answer: &CallPaths, args: &CallpathsArgs, json: bool) -> anyhow::Result<()> {
    if json {
        print(&format!("{}\n", serde_json::to_string(answer)?))
    } else {
        print(&tables::render(answer, args.limit, width()))
    }
}

/// Removes what a killed engine left.
fn remove_left_probes(pids: &[Pid], json: bool) -> anyhow::Result<()> {
    anyhow::ensure!(!pids.is_empty(), "--clean needs -p PID");
    let mut is_any = false;
    for pid in pids {
        let removed = clean(*pid)?;
        is_any |= removed;
        if !json {
            let what = if removed { "the probes of process" } else { "there are no probes in process" };
            print(&format!("{what} {pid}{}\n", if removed { " are removed" } else { "" }))?;
        }
    }
    if json {
        let processes: Vec<u32> = pids.iter().map(|pid| pid.0).collect();
        print_json(&serde_json::json!({"schema": 1, "processes": processes, "removed": is_any}))?;
    }
    Ok(())
}

fn metrics(chosen: &[Metric]) -> Metrics {
    let has = |metric| chosen.contains(&metric);
    let blocked = has(Metric::Blocked);
    let (wall, cpu) = (has(Metric::Wall) || blocked, has(Metric::Cpu) || blocked);
    Metrics { returns: wall || cpu, wall, cpu, blocked }
}
