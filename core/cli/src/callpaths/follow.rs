//! `dwell callpaths --follow-children`: the calls of all processes of a command, added up.
//!
//! Enters: events of the follower (`dwell_probe::follower`). Leaves: probes in each program that has one of the functions, before
//! anything of it runs, and one answer. A process that ends leaves its counts here, and nothing else.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::{Child, ExitCode},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use dwell_collect::{CollectError, PausedCommand, Stop};
use dwell_probe::{
    answer::{CallPaths, CallSum, Context},
    engine::Engine,
    follower::Follower,
    functions::{FindError, find},
    process::{copied::Copied, followed::Event, procfs},
    process_images::{FileIdentity, ImageCache, MappedImage, file_identity},
    recording::Recording,
    shared_memory::Metrics,
};
use dwell_profile::Pid;

use super::{Keeper, LOOK, MAPPINGS_SHARE, Named, Program, context, end_of, metrics, probe_program, show};
use crate::{args::CallpathsArgs, complain};

/// So many programs that have none of the functions are remembered.
const LACKING_MAX: usize = 4096;

/// Counts the calls of all processes of a command until the duration is over, all have ended or a signal comes.
pub fn run(args: &CallpathsArgs, db: Option<&Path>, json: bool) -> anyhow::Result<ExitCode> {
    // Engines are forks of the follower, which is a fork of this process, so it comes first.
    let mut follower = Follower::start().context("cannot start the process that follows")?;
    let stop = Stop::on_signals()?;
    let keeper = Keeper::begin(db, args)?;
    let mut child = launch(&mut follower, args)?;
    let _ = raise_limit_of_files();
    let metrics = metrics(&args.metric);
    let mut command = Command::new(follower, args, metrics, Pid(child.id()));
    let context = context(metrics);
    let begin = Instant::now();
    let counted = command.count(&context, &stop, begin, json);
    if command.has_too_many {
        child.kill()?; // Nothing of it has run.
    }
    let ended = counted?;
    let elapsed = begin.elapsed();
    let Some(sum) = command.end()? else {
        if stop.is_requested() {
            return end_of(child, &stop);
        }
        if !command.uncounted.is_empty() {
            anyhow::bail!("no process of the command could be probed: nothing was counted");
        }
        anyhow::bail!("no program of the command has the functions: nothing was counted");
    };
    let recording = keeper.map(|keeper| (keeper, Recording::new(&context, &sum)));
    show(&command.calls(&context, sum, elapsed), args, json)?;
    recording.map_or(Ok(()), |(keeper, recording)| keeper.store(&recording))?;
    if ended == Ended::Duration { Ok(ExitCode::SUCCESS) } else { end_of(child, &stop) }
}

/// The reason for which a measurement ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    Duration,
    Signal,
    Over,
}

fn launch(follower: &mut Follower, args: &CallpathsArgs) -> anyhow::Result<Child> {
    let name = args.command.first().context("no command was given")?.to_string_lossy().into_owned();
    let failed = |source| CollectError::Command { command: name.clone(), source };
    let paused = PausedCommand::fork(&args.command, Some(follower.process())).map_err(failed)?;
    follower.follow(paused.pid())?;
    Ok(paused.resume().map_err(failed)?)
}

/// Each program with probes needs some open files. The command keeps the limit that it has.
fn raise_limit_of_files() -> rustix::io::Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
}

/// A program with probes, and what it has in common with its copies.
struct Member {
    program: Program,
    family: String,
}

/// The processes of a command.
struct Command<'a> {
    args: &'a CallpathsArgs,
    metrics: Metrics,
    /// The process that executes the command itself.
    first: Pid,
    /// `None`: no process is followed any more.
    follower: Option<Follower>,
    members: BTreeMap<Pid, Member>,
    /// The calls of programs that have ended.
    sum: CallSum,
    /// Programs that have none of the functions, by the files that they have mapped.
    lacking: BTreeSet<Vec<FileIdentity>>,
    images: ImageCache,
    /// Processes whose calls are not counted.
    uncounted: BTreeSet<Pid>,
    complaints: BTreeSet<String>,
    stopped: Duration,
    /// Whether the functions are too many in the first program.
    has_too_many: bool,
}

impl<'a> Command<'a> {
    fn new(follower: Follower, args: &'a CallpathsArgs, metrics: Metrics, first: Pid) -> Self {
        Command {
            args,
            metrics,
            first,
            follower: Some(follower),
            members: BTreeMap::new(),
            sum: CallSum::default(),
            lacking: BTreeSet::new(),
            images: ImageCache::default(),
            uncounted: BTreeSet::new(),
            complaints: BTreeSet::new(),
            stopped: Duration::ZERO,
            has_too_many: false,
        }
    }

    /// Answers events, and shows the calls at intervals.
    fn count(&mut self, context: &Context, stop: &Stop, begin: Instant, json: bool) -> anyhow::Result<Ended> {
        let mut next = self.args.interval.map(|seconds| begin + seconds);
        let mut look_at = begin + LOOK;
        loop {
            if stop.is_requested() {
                return Ok(Ended::Signal);
            }
            if self.args.duration.is_some_and(|longest| begin.elapsed() >= longest) {
                return Ok(Ended::Duration);
            }
            let event = self.follower()?.event(LOOK).context("the process that follows has ended")?;
            if event == Some(Event::Over) {
                return Ok(Ended::Over);
            }
            if let Some(event) = event {
                self.answer(event)?;
            }
            if Instant::now() >= look_at {
                self.refresh();
                look_at = Instant::now() + LOOK;
            }
            if let (Some(at), Some(interval)) = (next, self.args.interval)
                && Instant::now() >= at
            {
                show(&self.calls(context, self.sum(), begin.elapsed()), self.args, json)?;
                next = Some(at + interval);
            }
        }
    }

    fn follower(&mut self) -> anyhow::Result<&mut Follower> {
        self.follower.as_mut().context("no process is followed")
    }

    fn answer(&mut self, event: Event) -> anyhow::Result<()> {
        match event {
            Event::Loaded(pid) => self.loaded(pid)?,
            Event::Forked { pid, family, descriptor } => match self.adopt(pid, &family, descriptor) {
                Ok(()) => self.follower()?.go_probed(pid)?,
                Err(error) => {
                    self.follower()?.go(pid)?;
                    self.leave_out(pid, &format!("{error:#}"));
                }
            },
            Event::LeftOut { pid, message } => self.leave_out(pid, &message),
            Event::LoadedMore(pid) => {
                if !self.is_lacking(files(pid).as_ref())
                    && find_any(&mut self.images, pid, &self.args.function)
                        .is_ok_and(|named| !named.functions.is_empty())
                {
                    self.leave_out(pid, "it loaded the functions after its beginning");
                }
                self.follower()?.go(pid)?;
            }
            Event::Executed(pid) => self.drop_member(pid),
            Event::Ended(pid) => {
                self.drop_member(pid);
                if pid == self.first && !self.members.is_empty() {
                    complain(
                        "the command has ended; processes that it started go on, and are counted until they end or you interrupt",
                    );
                }
            }
            Event::Over => {}
        }
        Ok(())
    }

    fn is_lacking(&self, files: Option<&Vec<FileIdentity>>) -> bool {
        files.is_some_and(|files| self.lacking.contains(files))
    }

    /// A process has loaded a program, and waits.
    fn loaded(&mut self, pid: Pid) -> anyhow::Result<()> {
        let key = files(pid);
        if self.is_lacking(key.as_ref()) {
            return Ok(self.follower()?.go(pid)?);
        }
        let named = match find_any(&mut self.images, pid, &self.args.function) {
            Ok(named) => named,
            Err(error) => {
                let is_too_many = matches!(error.downcast_ref(), Some(FindError::TooMany { .. }));
                if is_too_many && pid == self.first && self.members.is_empty() && self.sum.is_empty() {
                    self.has_too_many = true;
                    return Err(error);
                }
                self.follower()?.go(pid)?;
                self.leave_out(pid, &format!("{error:#}"));
                return Ok(());
            }
        };
        if named.functions.is_empty() {
            self.lacking.extend(key.filter(|_| self.lacking.len() < LACKING_MAX));
            return Ok(self.follower()?.go(pid)?);
        }
        let engine = match self.follower()?.hold(pid) {
            Ok(engine) => engine,
            Err(error) => {
                self.follower()?.go(pid)?; // If it was killed meanwhile, that is the next event.
                self.leave_out(pid, &error.to_string());
                return Ok(());
            }
        };
        let copied = match self.probe(engine, named) {
            Ok(copied) => Some(copied),
            Err(error) => {
                self.leave_out(pid, &format!("{error:#}"));
                None
            }
        };
        Ok(self.follower()?.release(pid, copied)?)
    }

    /// Probes a program that is held. Returns what its copies will have.
    fn probe(&mut self, engine: Engine, named: Named) -> anyhow::Result<Copied> {
        let pid = named.pid;
        let mut refusals = Vec::new();
        let program = probe_program(engine, named, self.metrics, &mut refusals)?;
        let Some(mut program) = program else { anyhow::bail!("{}", refusals.join("; ")) };
        for refusal in refusals {
            self.complain_once(refusal);
        }
        let copied = program.engine.copied()?;
        self.members.insert(pid, Member { program, family: copied.family.clone() });
        Ok(copied)
    }

    /// Counts the calls of a copy of a program with probes.
    fn adopt(&mut self, pid: Pid, family: &str, descriptor: i32) -> anyhow::Result<()> {
        let mut relatives = self.members.values_mut().filter(|member| member.family == family);
        let Member { program, .. } = relatives.next().context("its parent is gone")?;
        let mut engine = program.engine.fork()?;
        let images = program.named.images.iter().map(MappedImage::in_copy).collect();
        let named = Named { pid, images, functions: program.named.functions.clone() };
        self.follower()?.permit(pid, &engine)?;
        engine.adopt(pid, descriptor)?;
        let member = Member { program: Program::new(engine, named)?, family: family.to_owned() };
        self.members.insert(pid, member);
        Ok(())
    }

    /// Keeps the counts of a program that has ended.
    fn drop_member(&mut self, pid: Pid) {
        if let Some(Member { program, .. }) = self.members.remove(&pid) {
            self.stopped = self.stopped.max(program.engine.stopped);
            self.sum.add(&program.calls());
        }
    }

    /// Reports a process whose calls are not counted.
    fn leave_out(&mut self, pid: Pid, reason: &str) {
        if procfs::is_over(pid) {
            return;
        }
        self.uncounted.insert(pid);
        let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        self.complain_once(format!("{} is not counted: {reason}", program.display()));
    }

    /// Reports something once, without the process: there may be thousands.
    fn complain_once(&mut self, text: String) {
        if self.complaints.insert(text.clone()) {
            complain(&text);
        }
    }

    /// Lets paths go on in libraries that programs have loaded meanwhile.
    fn refresh(&mut self) {
        let share = MAPPINGS_SHARE.saturating_mul(self.members.len() as u32);
        for Member { program, .. } in self.members.values_mut() {
            // One that ends meanwhile has no images: its paths end where they are known.
            let _ = program.refresh(share);
        }
    }

    /// Returns the calls of all programs so far.
    fn sum(&self) -> CallSum {
        let mut sum = self.sum.clone();
        self.members.values().for_each(|member| sum.add(&member.program.calls()));
        sum
    }

    fn calls(&self, context: &Context, sum: CallSum, elapsed: Duration) -> CallPaths {
        let stopped = self.members.values().map(|member| member.program.engine.stopped).max();
        let stopped = self.stopped.max(stopped.unwrap_or_default());
        CallPaths::new(context, sum, Some(self.uncounted.len() as u64), elapsed, stopped)
    }

    /// Removes all probes, and returns the calls; `None` if no program had one of the functions.
    fn end(&mut self) -> anyhow::Result<Option<CallSum>> {
        self.follower = None; // Engines can trace the processes then.
        let mut removed = Ok(());
        for Member { program, .. } in self.members.values_mut() {
            removed = removed.and(program.engine.remove());
        }
        if !self.uncounted.is_empty() {
            let number = self.uncounted.len();
            let processes = if number == 1 { "process" } else { "processes" };
            complain(&format!("the calls of {number} {processes} are not counted"));
        }
        let is_any = !self.members.is_empty() || !self.sum.is_empty();
        let sum = is_any.then(|| self.sum());
        removed?;
        Ok(sum)
    }
}

/// Returns what a process has mapped as code; `None` if that is not certain.
fn files(pid: Pid) -> Option<Vec<FileIdentity>> {
    let mappings = procfs::mappings(pid).ok()?;
    let code = mappings.iter().filter(|mapping| mapping.is_executable && mapping.file.is_some());
    code.map(|mapping| file_identity(pid, mapping)).collect()
}

/// Finds those of the functions that a process has.
fn find_any(cache: &mut ImageCache, pid: Pid, texts: &[String]) -> anyhow::Result<Named> {
    let mut named = Named { pid, images: cache.process_images(pid)?, functions: Vec::new() };
    for text in texts {
        match find(&named.images, text) {
            Ok(found) => {
                for function in found {
                    if !named.functions.contains(&function) {
                        named.functions.push(function);
                    }
                }
            }
            Err(error @ FindError::TooMany { .. }) => return Err(error.into()),
            Err(_) => {}
        }
    }
    Ok(named)
}
