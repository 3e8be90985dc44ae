//! Follows a command and its children, and answers what stops them.
//!
//! Enters: a command. Leaves: a folder with the trace, and the command's status. All threads are traced by the one that runs this.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    ffi::{CString, OsString},
    fs,
    io::{self, Read},
    os::{
        fd::AsRawFd,
        unix::{ffi::OsStrExt, fs::FileExt},
    },
    path::PathBuf,
    rc::Rc,
};

use dwell_probe::process::{
    procfs,
    tracee::{Registers, Tracee},
};
use dwell_profile::{Pid, Tid, VirtualAddress};

use super::{
    ptrace::{
        SI_KERNEL, call, fault_address, is_caught, is_same_memory, send_again, set_siginfo, siginfo, step,
    },
    space::{CACHE_BYTES, CodeLog, Place, Space},
    thread::{Thread, open_memory},
};
use crate::{
    TraceError,
    emit::Trap,
    layout,
    store::{EventKind, Manifest, Mapping, Packer, ThreadEntry, VERSION, file_name, write_manifest},
    superblock::plan::{Detail, Target},
};

/// System calls that the tracer must see: they change what is traced.
const SEEN: [i64; 11] = [
    libc::SYS_rt_sigreturn,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_arch_prctl,
    libc::SYS_rseq,
];
/// Most instructions that a thread is stepped to where its registers are known.
const STEPS_MAX: usize = 100_000;

/// What is recorded, and where.
pub struct Recording {
    /// The folder of the trace, which must not exist.
    pub folder: PathBuf,
    /// What is recorded.
    pub detail: Detail,
    /// The command and its arguments.
    pub command: Vec<OsString>,
}

/// How a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The command's status, as `waitpid` reports it.
    pub status: i32,
    /// Size of the streams and of what belongs to them, before they are packed, in bytes.
    pub bytes: u64,
    /// Size of all files of the trace.
    pub packed_bytes: u64,
}

/// Runs a command and records it and all processes that it begins. If this fails, they are killed.
pub fn record(recording: &Recording) -> Result<Recorded, TraceError> {
    fs::create_dir(&recording.folder)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", recording.folder.display())))?;
    let packer = Packer::start();
    let log = packer.create(&recording.folder.join(file_name("code", 0)))?;
    let manifest = Manifest {
        version: VERSION,
        detail: recording.detail,
        command: recording.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        threads: Vec::new(),
    };
    let (command, mut failure) = start(&recording.command)?;
    let mut engine = Engine {
        recording,
        packer: &packer,
        log: Rc::new(RefCell::new(CodeLog::new(log))),
        manifest,
        threads: BTreeMap::new(),
        announced: BTreeMap::new(),
        early: Vec::new(),
        command,
        done: Recorded { status: 0, bytes: 0, packed_bytes: 0 },
    };
    engine.run()?;
    let mut done = engine.done;
    drop(engine);
    packer.finish()?;
    let mut error = [0; 4];
    if failure.read_exact(&mut error).is_ok() {
        fs::remove_dir_all(&recording.folder)?;
        let command =
            recording.command.first().map_or(String::new(), |word| word.to_string_lossy().into_owned());
        let source = io::Error::from_raw_os_error(i32::from_ne_bytes(error));
        return Err(TraceError::Command { command, source });
    }
    for file in fs::read_dir(&recording.folder)? {
        done.packed_bytes += file?.metadata()?.len();
    }
    Ok(done)
}

/// Starts the command as a traced process. Returns it, and where the number of the error is found if it could not be executed.
fn start(command: &[OsString]) -> io::Result<(Pid, io::PipeReader)> {
    let text = |word: &OsString| CString::new(word.as_bytes()).map_err(io::Error::other);
    let words: Vec<CString> = command.iter().map(text).collect::<Result<_, _>>()?;
    let mut pointers: Vec<*const libc::c_char> = words.iter().map(|word| word.as_ptr()).collect();
    pointers.push(std::ptr::null());
    let (gate, opener) = io::pipe()?;
    let (failure, failed) = io::pipe()?;
    // SAFETY: the child calls functions that may be called there only: close, read, execvp, write, _exit.
    let pid = unsafe {
        let pid = libc::fork();
        if pid == 0 {
            let mut byte = 0_u8;
            libc::close(opener.as_raw_fd());
            libc::read(gate.as_raw_fd(), (&raw mut byte).cast(), 1);
            libc::execvp(pointers[0], pointers.as_ptr());
            let error = (*libc::__errno_location()).to_ne_bytes();
            libc::write(failed.as_raw_fd(), error.as_ptr().cast(), error.len());
            libc::_exit(127);
        }
        pid
    };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    let options = libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACEEXEC
        | libc::PTRACE_O_TRACEEXIT
        | libc::PTRACE_O_EXITKILL;
    // SAFETY: the request takes numbers only.
    if unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, 0, options) } < 0 {
        return Err(io::Error::last_os_error());
    }
    drop(opener);
    Ok((Pid(pid as u32), failure))
}

struct Engine<'r> {
    recording: &'r Recording,
    packer: &'r Packer,
    log: Rc<RefCell<CodeLog>>,
    manifest: Manifest,
    threads: BTreeMap<u32, Thread>,
    /// Threads and processes that were announced and have not stopped yet.
    announced: BTreeMap<u32, Announced>,
    /// Those that stopped before they were announced.
    early: Vec<u32>,
    command: Pid,
    done: Recorded,
}

impl Engine<'_> {
    fn run(&mut self) -> io::Result<()> {
        loop {
            let mut status = 0;
            // SAFETY: the kernel writes the live status.
            let tid = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL) };
            if tid < 0 {
                let error = io::Error::last_os_error();
                match error.raw_os_error() {
                    Some(libc::EINTR) => continue,
                    Some(libc::ECHILD) => break,
                    _ => return Err(error),
                }
            }
            if !libc::WIFSTOPPED(status) {
                self.ended(tid as u32, status)?;
                continue;
            }
            match self.stopped(tid as u32, status) {
                // It was killed meanwhile.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                done => done?,
            }
        }
        self.flush_code()?;
        write_manifest(&self.recording.folder, &self.manifest)
    }

    fn flush_code(&self) -> io::Result<()> {
        self.log.borrow_mut().file.flush()
    }

    fn ended(&mut self, tid: u32, status: i32) -> io::Result<()> {
        if tid == self.command.0 {
            self.done.status = status;
        }
        self.forget(tid)
    }

    /// Writes the rest of a thread's stream.
    fn forget(&mut self, tid: u32) -> io::Result<()> {
        let Some(mut thread) = self.threads.remove(&tid) else { return Ok(()) };
        self.flush_code()?;
        thread.flush()?;
        self.done.bytes += thread.bytes();
        Ok(())
    }

    /// Records which code a process has.
    fn map_code(&self, thread: &Thread) {
        let space = thread.space.borrow();
        for mapping in procfs::mappings(Pid(thread.tracee.tid.0)).unwrap_or_default() {
            if mapping.is_executable && !mapping.path.is_empty() {
                let procfs::Mapping { start, end, offset, path, .. } = mapping;
                space.map_code(Mapping { start, end, offset, path });
            }
        }
    }

    fn stopped(&mut self, tid: u32, status: i32) -> io::Result<()> {
        let (event, signal) = (status >> 16, libc::WSTOPSIG(status));
        let tracee = Tracee { tid: Tid(tid) };
        match event {
            libc::PTRACE_EVENT_EXEC => self.executed(tid),
            libc::PTRACE_EVENT_CLONE | libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK => {
                if let Some(new) = tracee.event_message() {
                    self.announce(tid, new)?;
                    if let Some(at) = self.early.iter().position(|early| *early == new) {
                        self.early.remove(at);
                        self.begun(new)?;
                    }
                }
                tracee.resume(0)
            }
            libc::PTRACE_EVENT_EXIT => {
                if let Some(thread) = self.threads.get_mut(&tid)
                    && let Ok(registers) = tracee.registers()
                {
                    let status = tracee.event_message().unwrap_or(0);
                    thread.event(&registers, EventKind::Exit { status });
                    thread.drain(registers.r15)?;
                    self.map_code(&self.threads[&tid]);
                }
                tracee.resume(0)
            }
            libc::PTRACE_EVENT_STOP if self.threads.contains_key(&tid) => match signal {
                libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU => tracee.listen(),
                _ => tracee.resume(0),
            },
            libc::PTRACE_EVENT_STOP if self.announced.contains_key(&tid) => self.begun(tid),
            libc::PTRACE_EVENT_STOP => {
                self.early.push(tid);
                Ok(())
            }
            _ if self.threads.contains_key(&tid) => self.signalled(tid, signal),
            _ => tracee.resume(signal),
        }
    }

    /// A program was executed: its memory is new.
    fn executed(&mut self, tid: u32) -> io::Result<()> {
        let tracee = Tracee { tid: Tid(tid) };
        self.forget(tid)?;
        let registers = tracee.registers()?;
        let memory = open_memory(tracee.tid)?;
        // The system call that executed the program is over when its first instruction is reached. There another is made, and the
        // instructions are put back.
        let mut first = [0; 3];
        memory.read_exact_at(&mut first, registers.rip)?;
        memory.write_all_at(&[0xcc], registers.rip)?;
        tracee.resume(0)?;
        let stop = tracee.next_stop()?.ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?;
        if stop != (0, libc::SIGTRAP) {
            return Err(io::Error::other(format!("a program stops before its first instruction: {stop:?}")));
        }
        let registers = Registers { rip: registers.rip, ..tracee.registers()? };
        memory.write_all_at(&[0x0f, 0x05, 0xcc], registers.rip)?;
        let mut space = Space::new(open_memory(tracee.tid)?, self.recording.detail, self.log.clone());
        self.add_cache(&mut space, tracee, registers.rip, registers.rip)?;
        memory.write_all_at(&first, registers.rip)?;
        let space = Rc::new(RefCell::new(space));
        self.add_thread(tid, Pid(tid), space, &registers)
    }

    /// A thread or process is begun by another, which has not gone on yet: a copy of its memory is as its space is now.
    fn announce(&mut self, by: u32, tid: u32) -> io::Result<()> {
        let Some(parent) = self.threads.get(&by) else { return Ok(()) };
        let process = procfs::process_of(Tid(tid)).map_or(Pid(tid), |(process, _)| process);
        let shares = process == parent.process || is_same_memory(parent.process, process);
        let space = match shares {
            true => parent.space.clone(),
            false => Rc::new(RefCell::new(parent.space.borrow().fork(open_memory(Tid(tid))?))),
        };
        let program_r15 = parent.program_r15()?;
        self.announced.insert(tid, Announced { process, program_r15, space });
        Ok(())
    }

    /// A thread or process that was announced has stopped at its beginning.
    fn begun(&mut self, tid: u32) -> io::Result<()> {
        let tracee = Tracee { tid: Tid(tid) };
        let Some(Announced { process, program_r15, space }) = self.announced.remove(&tid) else {
            return tracee.resume(0);
        };
        let registers = tracee.registers()?;
        let Place::BehindCall { superblock } = space.borrow().place(registers.rip) else {
            return Err(io::Error::other(format!("a new thread is at {:#x}", registers.rip)));
        };
        let rip = space.borrow().translated(superblock).path.end;
        let behind = Registers { rip, rcx: rip, r15: program_r15, gs_base: 0, ..registers };
        self.add_thread(tid, process, space, &behind)
    }

    /// Gives a thread, whose registers are the program's, memory of its own, and lets it go.
    fn add_thread(
        &mut self,
        tid: u32,
        process: Pid,
        space: Rc<RefCell<Space>>,
        program: &Registers,
    ) -> io::Result<()> {
        let tracee = Tracee { tid: Tid(tid) };
        let call_at = space.borrow().system_call_at().ok_or_else(|| io::Error::other("there is no cache"))?;
        let own =
            self.map(tracee, call_at, 0, u64::from(layout::BYTES), libc::PROT_READ | libc::PROT_WRITE)?;
        let guard = own + u64::from(layout::STREAM + layout::STREAM_BYTES);
        let protect = [guard, u64::from(layout::GUARD_BYTES), libc::PROT_NONE as u64, 0, 0, 0];
        call(tracee, call_at, libc::SYS_mprotect, protect)?;
        let memory = open_memory(tracee.tid)?;
        for number in SEEN {
            memory.write_all_at(&[1], own + u64::from(layout::SYSTEM_CALLS) + number as u64)?;
        }
        let number = self.manifest.threads.len() as u32;
        let mut thread =
            Thread::create(tracee.tid, process, space, own, (self.packer, &self.recording.folder, number))?;
        let space = thread.space.borrow().number;
        self.manifest.threads.push(ThreadEntry { process: process.0, thread: tid, space });
        write_manifest(&self.recording.folder, &self.manifest)?;
        self.need_cache(&thread, program.rip)?;
        thread.enter(program, thread.stream_at())?;
        self.threads.insert(tid, thread);
        tracee.resume(0)
    }

    fn map(&self, tracee: Tracee, call_at: u64, at: u64, bytes: u64, protection: i32) -> io::Result<u64> {
        let fixed = if at == 0 { 0 } else { libc::MAP_FIXED_NOREPLACE };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | fixed;
        call(tracee, call_at, libc::SYS_mmap, [at, bytes, protection as u64, flags as u64, u64::MAX, 0])
    }

    /// Makes a cache near `pc`.
    fn add_cache(&self, space: &mut Space, tracee: Tracee, call_at: u64, pc: u64) -> io::Result<()> {
        let start = room_near(&procfs::mappings(Pid(tracee.tid.0))?, pc)
            .ok_or_else(|| io::Error::other(format!("no room for a cache near {pc:#x}")))?;
        self.map(tracee, call_at, start, CACHE_BYTES, libc::PROT_READ | libc::PROT_EXEC)?;
        space.memory.write_all_at(&[0x0f, 0x05, 0xcc], start)?;
        space.add_cache(start);
        Ok(())
    }

    fn need_cache(&self, thread: &Thread, pc: u64) -> io::Result<()> {
        let mut space = thread.space.borrow_mut();
        if space.look_at_page(pc) {
            // The cache would keep copies of code that the program may change.
            let all = procfs::mappings(Pid(thread.tracee.tid.0))?;
            let of_pc = all.iter().find(|mapping| mapping.contains(VirtualAddress(pc)));
            if of_pc
                .is_some_and(|m| m.is_executable && (m.is_writable || m.file.is_none() && m.path.is_empty()))
            {
                return Err(io::Error::other(format!(
                    "process {} executes code at {pc:#x} that it makes itself: this cannot be traced yet, and it was ended",
                    thread.process
                )));
            }
        }
        if space.has_cache_for(pc) {
            return Ok(());
        }
        let call_at = space.system_call_at().ok_or_else(|| io::Error::other("there is no cache"))?;
        self.add_cache(&mut space, thread.tracee, call_at, pc)
    }

    fn signalled(&mut self, tid: u32, signal: i32) -> io::Result<()> {
        let tracee = Tracee { tid: Tid(tid) };
        let registers = tracee.registers()?;
        if signal == libc::SIGTRAP && tracee.signal_code() == Some(SI_KERNEL) {
            let stop = self.threads[&tid].space.borrow().stop_before(registers.rip);
            if let Some(stop) = stop {
                self.trapped(tid, registers, stop.superblock, stop.trap)?;
                return tracee.resume(0);
            }
        }
        let address = (signal == libc::SIGSEGV).then(|| fault_address(tracee)).flatten();
        if let Some(address) = address
            && self.threads[&tid].is_guard(address)
        {
            let place = self.drain(tid, registers.r15)?;
            tracee.set_registers(&Registers { r15: place, ..registers })?;
            return tracee.resume(0);
        }
        self.deliver(tid, registers, signal)
    }

    fn drain(&mut self, tid: u32, place: u64) -> io::Result<u64> {
        self.flush_code()?;
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(place) };
        let place = thread.drain(place)?;
        thread.flush()?;
        Ok(place)
    }

    /// Answers a stop of the code in the cache, without letting the thread go.
    fn trapped(&mut self, tid: u32, registers: Registers, superblock: u32, trap: Trap) -> io::Result<()> {
        let thread = &self.threads[&tid];
        let tracee = thread.tracee;
        let translated = thread.space.borrow().translated(superblock);
        let at = |offset: u32| translated.at + u64::from(offset);
        match trap {
            Trap::Link { exit, jump } => {
                if let Target::Direct(pc) = translated.plan.exits[usize::from(exit)].target {
                    self.need_cache(thread, pc)?;
                }
                thread.space.borrow_mut().link(superblock, exit, jump)?;
                tracee.set_registers(&Registers { rip: at(jump), orig_rax: u64::MAX, ..registers })
            }
            Trap::Miss { retry } => {
                self.need_cache(thread, registers.rax & 0xffff_ffff_ffff)?;
                thread.know_target(registers.rax)?;
                tracee.set_registers(&Registers { rip: at(retry), orig_rax: u64::MAX, ..registers })
            }
            Trap::Alone => self.alone(tid, registers, translated.path.end),
            Trap::SystemCall { go_on } => self.system_call(tid, registers, superblock, at(go_on)),
        }
    }

    /// Executes one instruction where it is.
    fn alone(&mut self, tid: u32, registers: Registers, pc: u64) -> io::Result<()> {
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
        let place = registers.r15;
        let mut program = registers;
        program.r15 = thread.program_r15()?;
        (program.rip, program.gs_base, program.orig_rax) = (pc, 0, u64::MAX);
        thread.tracee.set_registers(&program)?;
        let (mut signal, mut behind) = step(thread.tracee, 0)?;
        let mut held_back = Vec::new();
        while signal != libc::SIGTRAP {
            if thread.tracee.signal_code().is_some_and(|code| code > 0 && code != SI_KERNEL) {
                return Err(io::Error::other(format!(
                    "the instruction at {pc:#x} is not understood and fails"
                )));
            }
            held_back.push(signal);
            (signal, behind) = step(thread.tracee, 0)?;
        }
        for signal in held_back {
            send_again(thread.tracee, thread.process, signal)?;
        }
        let length = behind.rip.wrapping_sub(pc);
        let length = if length <= 15 { length as u8 } else { 0 };
        thread.event(&registers, EventKind::Alone { pc, length });
        let thread = &self.threads[&tid];
        self.need_cache(thread, behind.rip)?;
        self.enter(tid, &behind, place)
    }

    fn enter(&mut self, tid: u32, program: &Registers, place: u64) -> io::Result<()> {
        match self.threads.get_mut(&tid) {
            Some(thread) => thread.enter(program, place),
            None => Ok(()),
        }
    }

    fn system_call(&mut self, tid: u32, registers: Registers, superblock: u32, go_on: u64) -> io::Result<()> {
        let thread = &self.threads[&tid];
        let tracee = thread.tracee;
        let behind = thread.space.borrow().translated(superblock).path.end;
        match registers.rax as i64 {
            // Restartable sequences would have to be executed where they are.
            libc::SYS_rseq => {
                let program = Registers {
                    rax: -i64::from(libc::ENOSYS) as u64,
                    rip: behind,
                    rcx: behind,
                    r15: thread.program_r15()?,
                    ..registers
                };
                self.enter(tid, &program, registers.r15)
            }
            libc::SYS_rt_sigreturn | libc::SYS_arch_prctl => {
                let call_at = thread.space.borrow().system_call_at().unwrap_or_default();
                let is_return = registers.rax as i64 == libc::SYS_rt_sigreturn;
                tracee.set_registers(&Registers { rip: call_at, orig_rax: u64::MAX, ..registers })?;
                let (signal, mut program) = step(tracee, 0)?;
                send_again(tracee, thread.process, signal)?;
                if !is_return {
                    (program.rip, program.rcx) = (behind, behind);
                    program.r15 = thread.program_r15()?;
                }
                program.gs_base = 0;
                self.need_cache(thread, program.rip)?;
                self.enter(tid, &program, registers.r15)
            }
            libc::SYS_execve | libc::SYS_execveat => {
                // The memory with the stream is gone if it succeeds.
                let place = self.drain(tid, registers.r15)?;
                self.map_code(&self.threads[&tid]);
                tracee.set_registers(&Registers { rip: go_on, r15: place, orig_rax: u64::MAX, ..registers })
            }
            _ => tracee.set_registers(&Registers { rip: go_on, orig_rax: u64::MAX, ..registers }),
        }
    }

    /// Lets a signal have its effect: a handler runs, from the cache too, with the program's registers.
    fn deliver(&mut self, tid: u32, registers: Registers, signal: i32) -> io::Result<()> {
        let tracee = Tracee { tid: Tid(tid) };
        let fails =
            matches!(signal, libc::SIGSEGV | libc::SIGBUS | libc::SIGFPE | libc::SIGILL | libc::SIGTRAP)
                && tracee.signal_code().is_some_and(|code| code > 0);
        if !is_caught(tracee.tid, signal) {
            return tracee.resume(signal);
        }
        let mut registers = registers;
        let mut info = siginfo(tracee)?;
        for _ in 0..STEPS_MAX {
            let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
            if let Some((program, place)) = thread.leave(&registers, fails)? {
                tracee.set_registers(&program)?;
                set_siginfo(tracee, &mut info)?;
                let (stop, handler) = step(tracee, signal)?;
                let at = Registers { r15: place, ..handler };
                thread.event(&at, EventKind::Signal { number: signal as u8 });
                let thread = &self.threads[&tid];
                send_again(tracee, thread.process, stop)?;
                self.need_cache(thread, handler.rip)?;
                self.enter(tid, &handler, place)?;
                return tracee.resume(0);
            }
            let (stop, now) = step(tracee, 0)?;
            registers = now;
            if stop == libc::SIGTRAP && tracee.signal_code() == Some(SI_KERNEL) {
                let found = thread.space.borrow().stop_before(registers.rip);
                if let Some(found) = found {
                    self.trapped(tid, registers, found.superblock, found.trap)?;
                    registers = tracee.registers()?;
                }
            } else if stop == libc::SIGSEGV
                && fault_address(tracee).is_some_and(|a| self.threads[&tid].is_guard(a))
            {
                let place = self.drain(tid, registers.r15)?;
                registers.r15 = place;
                tracee.set_registers(&registers)?;
            }
        }
        Err(io::Error::other(format!(
            "thread {tid} does not reach a place where signal {signal} can be delivered"
        )))
    }
}

/// A thread or process that has not stopped yet.
struct Announced {
    process: Pid,
    /// The r15 of the thread that began it, as the program sees it.
    program_r15: u64,
    space: Rc<RefCell<Space>>,
}

/// Returns a place for a cache near an address: below the mappings around it, else above.
fn room_near(mappings: &[procfs::Mapping], pc: u64) -> Option<u64> {
    const APART: u64 = 256 << 20;
    const STEP: u64 = 16 << 20;
    const REACH: u64 = (1 << 30) - CACHE_BYTES;
    let is_free = |start: u64| {
        let (start, end) = (VirtualAddress(start), VirtualAddress(start + CACHE_BYTES));
        mappings.iter().all(|m| m.end <= start || m.start >= end)
    };
    let below = (0..)
        .map(|n| (pc & !0xfff).checked_sub(APART + n * STEP))
        .take_while(|start| start.is_some_and(|s| pc - s < REACH));
    let above = (0..)
        .map(|n| Some((pc & !0xfff) + 2 * APART + n * STEP))
        .take_while(|start| start.is_some_and(|s| s - pc < REACH));
    below.chain(above).flatten().find(|start| *start >= 1 << 16 && is_free(*start))
}
