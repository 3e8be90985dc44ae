//! A command from before its exec until its libraries are loaded, so that its first call is counted.
//!
//! Enters: a process that is about to execute a program. Leaves: the same process, *held* where no code of the program has run:
//! it runs in a loop of one jump, which needs no tracer, so probes come as to any other process. [`let_go`] ends that.
//!
//! Loaders call an empty function for debuggers, `_dl_debug_state`, when all libraries are mapped (`struct r_debug` in
//! elf/link.h of glibc). Programs without a loader are held at their entry.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle, sleep},
    time::Duration,
};

use dwell_profile::{Pid, Tid};

use super::{patcher::Change, procfs::mappings, tracee::Tracee};
use crate::{patch::plan::JUMP_BYTES, process_images::process_images};

const INT3: u8 = 0xcc;
/// A jump to itself.
const LOOP: [u8; 2] = [0xeb, 0xfe];
/// How long to sleep before the process is looked at again.
const LOOK: Duration = Duration::from_micros(500);
const HOOK: &str = "_dl_debug_state";
/// Of the auxiliary vector (include/uapi/linux/auxvec.h): where the loader is, and the program's entry.
const AT_BASE: u64 = 7;
const AT_ENTRY: u64 = 9;

/// A thread of ours that waits for the next program of a process.
pub struct Launch {
    thread: JoinHandle<io::Result<Followed>>,
    is_cancelled: Arc<AtomicBool>,
}

/// How following a process ended.
pub enum Followed {
    /// It has loaded a program, and is held in this way.
    Held(Change),
    /// It has ended.
    Ended,
    /// It goes on: following was cancelled.
    Left,
}

impl Launch {
    /// Follows a process; if it is held, it is let go.
    pub fn follow(pid: Pid, held: Option<Change>) -> io::Result<Self> {
        let (sender, followed) = mpsc::channel();
        let is_cancelled = Arc::new(AtomicBool::new(false));
        let cancelled = is_cancelled.clone();
        let thread = thread::spawn(move || {
            let begun = begin(pid, held);
            let tracee = *begun.as_ref().unwrap_or(&Tracee { tid: Tid(pid.0) });
            let is_begun = begun.is_ok();
            let _ = sender.send(begun.map(drop));
            if is_begun { wait_for_program(pid, tracee, &cancelled) } else { Ok(Followed::Left) }
        });
        followed.recv().map_err(|_| io::Error::other("the thread that follows ended"))??;
        Ok(Launch { thread, is_cancelled })
    }

    /// Returns whether [`Launch::end`] need not wait.
    pub fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    /// Ends following, unless the process has executed a program: then waits until that is loaded.
    pub fn end(self) -> io::Result<Followed> {
        self.is_cancelled.store(true, Ordering::Relaxed);
        self.thread.join().expect("following does not panic")
    }
}

fn begin(pid: Pid, held: Option<Change>) -> io::Result<Tracee> {
    let tracee = Tracee::seize_at_exec(Tid(pid.0))?;
    if let Some(hold) = held {
        stop_in_loop(tracee)?;
        restore(pid, &hold)?;
        tracee.resume(0)?;
    }
    Ok(tracee)
}

/// Lets a held process continue.
pub fn let_go(pid: Pid, hold: &Change) -> io::Result<()> {
    let tracee = Tracee::seize_at_exec(Tid(pid.0))?;
    stop_in_loop(tracee)?;
    restore(pid, hold)?;
    tracee.detach()
}

/// Stops a held process, which has one thread that makes no system calls.
fn stop_in_loop(tracee: Tracee) -> io::Result<()> {
    tracee.interrupt()?;
    loop {
        match tracee.next_stop()? {
            None => return Err(io::Error::from_raw_os_error(libc::ESRCH)),
            Some((libc::PTRACE_EVENT_STOP, libc::SIGTRAP)) => return Ok(()),
            Some((libc::PTRACE_EVENT_STOP, _)) => tracee.listen()?,
            Some((_, signal)) => tracee.resume(signal)?,
        }
    }
}

fn restore(pid: Pid, hold: &Change) -> io::Result<()> {
    open_memory(pid)?.write_all_at(&hold.from, hold.address)
}

fn open_memory(pid: Pid) -> io::Result<File> {
    File::options().read(true).write(true).open(format!("/proc/{pid}/mem"))
}

/// Runs on the thread that traces the process.
fn wait_for_program(pid: Pid, tracee: Tracee, is_cancelled: &AtomicBool) -> io::Result<Followed> {
    let mut hook: Option<Hook> = None;
    loop {
        let stop = loop {
            match tracee.poll_stop()? {
                // The kernel lets the process go when this thread ends.
                None if hook.is_none() && is_cancelled.load(Ordering::Relaxed) => return Ok(Followed::Left),
                None => sleep(LOOK),
                Some(stop) => break stop,
            }
        };
        match (stop, &mut hook) {
            (None, _) => return Ok(Followed::Ended),
            (Some((libc::PTRACE_EVENT_EXEC, _)), hook) => {
                *hook = Some(Hook::set(pid)?);
                tracee.resume(0)?;
            }
            (Some((libc::PTRACE_EVENT_STOP, signal)), _) if signal != libc::SIGTRAP => tracee.listen()?,
            (Some((libc::PTRACE_EVENT_STOP, _)), _) => tracee.resume(0)?,
            (Some((_, libc::SIGTRAP)), Some(hook)) if hook.is_reached(tracee)? => {
                if hook.is_loaded(pid)? {
                    return hook.hold(tracee).map(Followed::Held);
                }
                hook.is_final = true; // glibc calls the function before it maps libraries, and afterwards.
                hook.skip(tracee)?;
                tracee.resume(0)?;
            }
            (Some((_, signal)), _) => tracee.resume(signal)?,
        }
    }
}

/// The place where a program is held, with an `int3`.
struct Hook {
    memory: File,
    address: u64,
    original: [u8; JUMP_BYTES],
    /// Whether everything is loaded when it is reached next.
    is_final: bool,
    /// Number of executable mappings before libraries are loaded.
    mapped: usize,
}

impl Hook {
    fn set(pid: Pid) -> io::Result<Self> {
        let memory = open_memory(pid)?;
        let auxiliary = std::fs::read(format!("/proc/{pid}/auxv"))?;
        let words: Vec<u64> =
            auxiliary.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
        let value =
            |kind| words.as_chunks::<2>().0.iter().find(|[key, _]| *key == kind).map(|[_, value]| *value);
        let all = mappings(pid)?;
        let loader = value(AT_BASE).and_then(|base| all.iter().find(|mapping| mapping.start == base));
        let loader_hook = loader.and_then(|loader| Some((find_hook(pid, loader.file.as_deref()?)?, loader)));
        let (address, is_final) = match loader_hook {
            Some((address, loader)) => (address, loader.path.contains("musl")),
            None => (value(AT_ENTRY).ok_or_else(|| io::Error::other("it has no entry"))?, true),
        };
        let mut original = [0; JUMP_BYTES];
        memory.read_exact_at(&mut original, address)?;
        memory.write_all_at(&[INT3], address)?;
        Ok(Hook { memory, address, original, is_final, mapped: executable_mappings(pid)? })
    }

    fn is_reached(&self, tracee: Tracee) -> io::Result<bool> {
        Ok(tracee.registers()?.rip.wrapping_sub(1) == self.address)
    }

    fn is_loaded(&self, pid: Pid) -> io::Result<bool> {
        Ok(self.is_final || executable_mappings(pid)? > self.mapped)
    }

    /// Returns from the function, which is empty.
    fn skip(&self, tracee: Tracee) -> io::Result<()> {
        let mut registers = tracee.registers()?;
        let mut caller = [0; 8];
        self.memory.read_exact_at(&mut caller, registers.rsp)?;
        registers.rip = u64::from_ne_bytes(caller);
        registers.rsp += 8;
        tracee.set_registers(&registers)
    }

    /// Holds the stopped process and releases it from its tracer.
    fn hold(&self, tracee: Tracee) -> io::Result<Change> {
        let mut to = self.original;
        to[..LOOP.len()].copy_from_slice(&LOOP);
        self.memory.write_all_at(&to, self.address)?;
        let mut registers = tracee.registers()?;
        registers.rip = self.address;
        tracee.set_registers(&registers)?;
        tracee.detach()?;
        let Hook { address, original: from, .. } = *self;
        Ok(Change { address, from, to, own: from, copies: Vec::new() })
    }
}

/// Returns the address of the loader's function for debuggers.
fn find_hook(pid: Pid, loader: &str) -> Option<u64> {
    let images = process_images(pid).ok()?;
    let loaders = images.iter().filter(|image| image.mapping.file.as_deref() == Some(loader));
    loaders.into_iter().find_map(|image| {
        let mut procedures = image.image.procedures().iter();
        let hook = procedures.find(|procedure| {
            procedure.name() == HOOK || procedure.aliases().iter().any(|alias| alias == HOOK)
        });
        Some(hook?.address.0.wrapping_add(image.bias))
    })
}

fn executable_mappings(pid: Pid) -> io::Result<usize> {
    let mappings = mappings(pid)?;
    Ok(mappings.iter().filter(|mapping| mapping.is_executable && mapping.file.is_some()).count())
}
