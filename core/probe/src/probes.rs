//! Probes in a running process.
//!
//! Enters: a process and functions of it. Leaves: their calls by path, while it runs. Never here: names of functions.

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    os::unix::fs::FileExt,
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use dwell_collect::keep_switches_watched;
use dwell_profile::{Pid, Tid};

use crate::{
    counters::attached::Counters,
    error::ProbeError,
    layout::FUNCTIONS_MAX,
    patch::{
        function_code::FunctionCode,
        plan::{Refusal, Region, plan},
        trampoline::{assemble, jump},
    },
    process::{
        code_memory::CodeMemory,
        copied::Copied,
        installation::{Installation, NAME, is_ours},
        patcher::{Change, exchange},
        placement::{Journal, Placement},
        procfs,
        signal_frames::any_returns_to,
        tracer::{Bases, Stop, Tracer},
    },
    shared_memory::{MappedTable, Metrics, Snapshot, measure_ns_per_tick},
};

/// How long to wait for threads to leave the payload.
const LEAVING: Duration = Duration::from_secs(2);
/// Room for the tables of images that are loaded later. Only pages that are used take memory.
const LATER_BYTES: usize = 64 << 20;
/// A generous size of a trampoline.
const TRAMPOLINE_BYTES: usize = 512;

/// A probed function.
pub struct Probe {
    function: u32,
    metrics: Metrics,
    changes: Vec<Change>,
}

impl Probe {
    /// Returns the changes that remove the probe.
    pub fn removals(&self) -> impl Iterator<Item = Change> + '_ {
        self.changes.iter().map(Change::removal)
    }
}

/// The probes of a process. Dropping this leaves them there: call [`Probes::remove`].
pub struct Probes {
    pub(crate) pid: Pid,
    pub(crate) installation: Installation,
    pub(crate) probes: BTreeMap<u64, Probe>,
    pub(crate) counters: Counters,
    next_function: u32,
    /// Whether the trampolines are those of another process.
    is_copy: bool,
    is_removed: bool,
    pub(crate) stopped_max: Duration,
}

impl Probes {
    /// Prepares a process. Nothing is measured yet.
    pub fn attach(pid: Pid, tables: &[MappedTable]) -> Result<Self, ProbeError> {
        refuse_unsuitable(pid)?;
        let ns_per_tick = measure_ns_per_tick();
        let tables_bytes: usize = tables.iter().map(|table| table.table.bytes() + 128).sum();
        let room = tables_bytes + LATER_BYTES;
        let (installation, stopped_max) = traced(pid, |tracer| {
            let installed = Installation::new(tracer, pid, room, ns_per_tick);
            let mut installed = installed.map_err(|source| system(pid, "install the payload", source))?;
            installed
                .shared
                .add_images(tables)
                .map_err(|source| system(pid, "store unwind tables", source))?;
            Ok(installed)
        })?;
        let (probes, counters) = (BTreeMap::new(), Counters::default());
        Ok(Probes {
            pid,
            installation,
            probes,
            counters,
            next_function: 0,
            is_copy: false,
            is_removed: false,
            stopped_max,
        })
    }

    /// Records calls in a process that was forked from this one, is stopped by its tracer, and has memory for that open as this
    /// descriptor, where the other one has its own. The probes of this process are not touched, and belong to another engine.
    pub fn adopt(mut self, pid: Pid, descriptor: i32, tables: &[MappedTable]) -> Result<Self, ProbeError> {
        let failed = |source| system(pid, "install the payload", source);
        self.installation.adopt(pid, descriptor).map_err(failed)?;
        self.installation.shared.add_images(tables).map_err(failed)?;
        for probe in self.probes.values() {
            self.installation.shared.set_function(probe.function, probe.metrics);
        }
        self.installation.write_journal(&self.removals()).map_err(failed)?;
        self.installation.enable().map_err(failed)?;
        Ok(Probes { pid, is_copy: true, stopped_max: Duration::ZERO, ..self })
    }

    /// Returns what a process that is forked from this one has of its probes.
    pub fn copied(&self) -> Result<Copied, ProbeError> {
        let failed = |source| system(self.pid, "find the payload", source);
        let Placement { shared_at, shared_bytes, syscall_at, .. } = self.installation.placement;
        let changes = self.probes.values().flat_map(|probe| &probe.changes);
        let originals = changes.map(|change| (change.address, change.own)).collect();
        let family = self.installation.family().map_err(failed)?;
        Ok(Copied { family, shared_at, shared_bytes, syscall_at, originals })
    }

    /// Lets paths go on in images that the process has mapped meanwhile.
    pub fn add_images(&mut self, tables: &[MappedTable]) -> Result<(), ProbeError> {
        let added = self.installation.shared.add_images(tables);
        added.map_err(|source| system(self.pid, "store unwind tables", source))
    }

    /// Probes functions. Returns the number of each, by which [`Snapshot`] names it, or why it cannot be probed.
    pub fn add(
        &mut self,
        functions: &[(&FunctionCode, Metrics)],
    ) -> Result<Vec<Result<u32, Refusal>>, ProbeError> {
        let pid = self.pid;
        if self.is_copy {
            let source = io::Error::other("it was forked from a probed process");
            return Err(system(pid, "map code near a function", source));
        }
        let Probes { installation, probes, next_function, .. } = self;
        let (results, stopped) = traced(pid, |tracer| {
            let mut results = Vec::with_capacity(functions.len());
            let mut added = Vec::new();
            for (code, metrics) in functions {
                let function = *next_function;
                let changes = match plan(code, metrics.returns) {
                    Ok(_) if function as usize >= FUNCTIONS_MAX => Err(Refusal::TooMany),
                    Ok(regions) => place(installation, tracer, function, &regions)
                        .map_err(|source| system(pid, "map code near a function", source))?,
                    Err(refusal) => Err(refusal),
                };
                results.push(changes.map(|changes| {
                    installation.shared.set_function(function, *metrics);
                    *next_function += 1;
                    added.push((code.entry(), Probe { function, metrics: *metrics, changes }));
                    function
                }));
            }
            let changes: Vec<Change> = added.iter().flat_map(|(_, probe)| probe.changes.clone()).collect();
            verify_bytes(installation, &changes).map_err(|source| system(pid, "read the code", source))?;
            let all: Vec<Change> = probes
                .values()
                .chain(added.iter().map(|(_, probe)| probe))
                .flat_map(Probe::removals)
                .collect();
            installation.write_journal(&all).map_err(|source| system(pid, "write the journal", source))?;
            installation.enable().map_err(|source| system(pid, "switch on the payload", source))?;
            exchange(tracer, &installation.code(), &changes)
                .map_err(|source| system(pid, "patch the code", source))?;
            probes.extend(added);
            Ok(results)
        })?;
        self.stopped_max = self.stopped_max.max(stopped);
        Ok(results)
    }

    /// Returns the calls so far.
    pub fn snapshot(&self) -> Snapshot {
        self.installation.shared.snapshot()
    }

    /// Returns the addresses of the probed functions by their number.
    pub fn functions(&self) -> BTreeMap<u32, u64> {
        self.probes.iter().map(|(address, probe)| (probe.function, *address)).collect()
    }

    /// Returns the longest time that a thread was stopped.
    pub fn stopped_max(&self) -> Duration {
        self.stopped_max
    }

    /// The file of the shared memory.
    pub fn file(&self) -> &File {
        self.installation.shared.file()
    }

    /// Removes all probes and the payload, if that was not done before. A process that has ended, or has executed another program,
    /// needs no removal. The numbers can still be read.
    pub fn remove(&mut self) -> Result<(), ProbeError> {
        match self.remove_from_process() {
            Err(_) if procfs::is_over(self.pid) || self.installation.is_gone() => Ok(()),
            removed => removed,
        }
    }

    /// Returns the changes that remove everything that is patched.
    fn removals(&self) -> Vec<Change> {
        let probes = self.probes.values().flat_map(Probe::removals);
        probes.chain(self.counters.removals()).collect()
    }

    fn remove_from_process(&mut self) -> Result<(), ProbeError> {
        let pid = self.pid;
        if self.is_removed {
            return Ok(());
        }
        let changes = self.removals();
        let Probes { installation, probes, .. } = self;
        let ((), stopped) = traced(pid, |tracer| {
            if installation.placement.counters_at != 0 {
                tracer.bases = Some(Bases { is_over: true, ..installation.bases.clone() });
            }
            exchange(tracer, &installation.code(), &changes)
                .map_err(|source| system(pid, "restore the code", source))?;
            probes.clear();
            leave_payload(tracer, &installation.memory, &installation.placement, pid)
        })?;
        self.stopped_max = self.stopped_max.max(stopped);
        let Installation { placement, memory, .. } = &self.installation;
        traced(pid, |tracer| {
            placement.unmap(tracer, pid, memory).map_err(|source| system(pid, "unmap the payload", source))
        })?;
        self.is_removed = true;
        Ok(())
    }
}

/// Removes the probes that a killed process left in another one. Returns whether there were any.
pub fn clean(pid: Pid) -> Result<bool, ProbeError> {
    let open = File::options().read(true).write(true).open(format!("/proc/{pid}/mem"));
    let memory = open.map_err(|source| match source.raw_os_error() {
        Some(libc::ENOENT | libc::ESRCH) => ProbeError::Gone(pid),
        _ => ProbeError::NotPermitted { pid, source },
    })?;
    let journal = Journal::read(pid, &memory).map_err(|source| system(pid, "read the journal", source))?;
    let Some(Journal { controller, placement, changes }) = journal else { return Ok(false) };
    let name = std::fs::read_to_string(format!("/proc/{controller}/comm")).unwrap_or_default();
    if name.trim() == NAME && !procfs::is_over(Pid(controller)) {
        return Err(ProbeError::Controlled { pid, controller });
    }
    // Places where the program's own code is again, or never was replaced, need no change.
    let is_patched = |change: &Change| {
        let mut bytes = [0; 5];
        memory.read_exact_at(&mut bytes, change.address).is_ok() && bytes != change.to
    };
    let changes: Vec<Change> = changes.into_iter().filter(is_patched).collect();
    let areas = CodeMemory::open_areas(pid, &placement);
    let areas = areas.map_err(|source| system(pid, "open the shared memory", source))?;
    traced(pid, |tracer| {
        exchange(tracer, &CodeMemory::new(&memory, &placement, &areas), &changes)
            .map_err(|source| system(pid, "restore the code", source))?;
        leave_payload(tracer, &memory, &placement, pid)
    })?;
    traced(pid, |tracer| {
        placement.unmap(tracer, pid, &memory).map_err(|source| system(pid, "unmap the payload", source))
    })?;
    Ok(true)
}

/// Writes the trampolines of a function's regions, and returns the jumps to them.
fn place(
    installation: &mut Installation,
    tracer: &mut Tracer,
    function: u32,
    regions: &[Region],
) -> io::Result<Result<Vec<Change>, Refusal>> {
    let mut changes = Vec::with_capacity(regions.len());
    for region in regions {
        let Some((payload, at)) = installation.place(tracer, region.address, TRAMPOLINE_BYTES)? else {
            return Ok(Err(Refusal::TooFar));
        };
        let trampoline = assemble(region, function, payload, at);
        let (Ok(trampoline), Some(to)) = (trampoline, jump(region.address, at)) else {
            return Ok(Err(Refusal::TooFar));
        };
        installation.write_trampoline(at, &trampoline.code);
        changes.push(Change {
            address: region.address,
            from: region.original,
            to,
            own: region.original,
            copies: trampoline.copies,
        });
    }
    Ok(Ok(changes))
}

/// Names the action that failed in an error.
pub fn system(pid: Pid, what: &'static str, source: io::Error) -> ProbeError {
    match source.raw_os_error() {
        Some(libc::ESRCH) => ProbeError::Gone(pid),
        _ if source.kind() == io::ErrorKind::TimedOut => ProbeError::Late { pid },
        _ => ProbeError::System { pid, what, source },
    }
}

/// Runs `work` on a thread that traces all threads of the process, and whose end releases them.
pub fn traced<T: Send>(
    pid: Pid,
    work: impl FnOnce(&mut Tracer) -> Result<T, ProbeError> + Send,
) -> Result<(T, Duration), ProbeError> {
    let tid = AtomicU32::new(0);
    let trace = || {
        // SAFETY: takes no pointer.
        tid.store(unsafe { libc::gettid() } as u32, Ordering::Relaxed);
        let _switches = keep_switches_watched();
        let mut tracer = Tracer::seize(pid).map_err(|source| match source.raw_os_error() {
            Some(libc::ESRCH | libc::ENOENT) => ProbeError::Gone(pid),
            _ if source.kind() == io::ErrorKind::TimedOut => ProbeError::Late { pid },
            _ => ProbeError::NotPermitted { pid, source },
        })?;
        let result = work(&mut tracer);
        let finished = tracer.finish().map_err(|source| system(pid, "release the threads", source));
        let result = result?;
        finished?;
        Ok((result, tracer.stopped_max))
    };
    let traced = thread::scope(|scope| scope.spawn(trace).join().expect("tracing does not panic"));
    // The kernel releases tracees somewhat later than a thread is known to have ended.
    let task = format!("/proc/self/task/{}", tid.load(Ordering::Relaxed));
    while std::path::Path::new(&task).exists() {
        thread::sleep(Duration::from_micros(50));
    }
    traced
}

fn refuse_unsuitable(pid: Pid) -> Result<(), ProbeError> {
    let status = procfs::status(pid, Tid(pid.0)).ok_or(ProbeError::Gone(pid))?;
    if status.tracer != 0 {
        return Err(ProbeError::Traced { pid, tracer: status.tracer });
    }
    let trap = 1 << (libc::SIGTRAP - 1);
    let reason = if status.seccomp != 0 {
        Some("a seccomp filter restricts its system calls")
    } else if status.has_shadow_stack {
        Some("it has a shadow stack")
    } else if (status.signals.ignored | status.signals.caught) & trap != 0 {
        Some("it handles or ignores SIGTRAP")
    } else if !has_fsgsbase() {
        Some("this processor or kernel has no rdfsbase")
    } else {
        None
    };
    if let Some(reason) = reason {
        return Err(ProbeError::Unsuitable { pid, reason });
    }
    let mappings = procfs::mappings(pid).map_err(|source| ProbeError::NotPermitted { pid, source })?;
    if mappings.iter().any(is_ours) {
        return Err(ProbeError::Probed(pid));
    }
    Ok(())
}

/// Returns whether programs may read their fs register.
fn has_fsgsbase() -> bool {
    const HWCAP2_FSGSBASE: u64 = 1 << 1;
    // SAFETY: takes no pointer.
    unsafe { libc::getauxval(libc::AT_HWCAP2) & HWCAP2_FSGSBASE != 0 }
}

/// Checks that the code is as it was when it was planned.
pub fn verify_bytes(installation: &Installation, changes: &[Change]) -> io::Result<()> {
    for change in changes {
        let mut bytes = [0; 5];
        installation.memory.read_exact_at(&mut bytes, change.address)?;
        if bytes != change.from {
            return Err(io::Error::other(format!(
                "the code at {:#x} is not that of its file (another tool patched it?)",
                change.address
            )));
        }
    }
    Ok(())
}

/// Waits until no thread is in the payload or a trampoline, or will return there from a signal handler.
fn leave_payload(
    tracer: &mut Tracer,
    memory: &File,
    placement: &Placement,
    pid: Pid,
) -> Result<(), ProbeError> {
    let wait = || -> io::Result<bool> {
        let end = Instant::now() + LEAVING;
        // Stack pointers of threads that ran.
        let mut pointers = BTreeMap::new();
        tracer.uncheck();
        loop {
            let is_complete = tracer.check(&|pc| !placement.contains(pc))?;
            while let Some((tid, stop)) = tracer.next_stop(Duration::from_micros(200))? {
                if let Stop::Running(pc) = stop {
                    pointers.insert(tid, tracer.tracee(tid).registers()?.rsp);
                    if placement.contains(pc) {
                        tracer.uncheck_one(tid);
                    }
                }
                tracer.release(tid)?;
            }
            if is_complete && !any_returns_to(memory, pid, &pointers, &|pc| placement.contains(pc))? {
                return Ok(true);
            }
            if Instant::now() > end {
                return if is_complete { Ok(false) } else { Err(io::ErrorKind::TimedOut.into()) };
            }
            if is_complete {
                tracer.uncheck();
                thread::sleep(Duration::from_millis(1));
            }
        }
    };
    match { wait }() {
        Ok(true) => Ok(()),
        Ok(false) => Err(ProbeError::Held { pid }),
        Err(source) => Err(system(pid, "wait for threads in the payload", source)),
    }
}
