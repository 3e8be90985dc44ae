//! The process that probes: it survives the death of the one that asked for it, and then removes all probes.
//!
//! Enters: requests. Leaves: answers, and the file that the payload writes to, which the other process reads by itself. A
//! controller that is killed while it patches would leave a program with half a jump; so it is a process of its own, with its
//! own name and process group, which no signal to the other one reaches.

mod state;

use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd},
        unix::net::UnixStream,
    },
    time::{Duration, Instant},
};

use dwell_profile::{Pid, VirtualAddress};
use serde::{Deserialize, Serialize};

use self::state::State;
use crate::{
    channel::Channel,
    counters::attached::{Added, Executions},
    patch::{
        from_image::IndirectJumps,
        function_code::{FunctionCode, Part},
        plan::plan,
        trampoline::{Payload, assemble},
    },
    process::copied::Copied,
    shared_memory::{Metrics, SharedMemory, Snapshot},
};

/// When the other process is gone, the engine tries the removal again for so long, with so long in between.
const REMOVAL: Duration = Duration::from_secs(20);
const REMOVAL_EVERY: Duration = Duration::from_millis(10);

/// What the engine is asked to do.
#[derive(Debug, Serialize, Deserialize)]
enum Request {
    /// Attach to a process, to record paths of calls if `with_paths`.
    Attach { pid: Pid, with_paths: bool },
    /// Probe the functions that start at these addresses of the process.
    Add { addresses: Vec<VirtualAddress>, metrics: Metrics },
    /// Look for images that the process has mapped meanwhile.
    Refresh,
    /// Count the blocks of the procedures that have most of these samples.
    Count { samples: Vec<(VirtualAddress, u64)> },
    /// Count anchors alone.
    Rest,
    /// Read the counters.
    Executions,
    /// Remove everything.
    Remove,
    /// Follow a process to its next exec. If it is held, it goes on.
    Follow { pid: Pid },
    /// Say whether it has loaded a program.
    Program,
    /// Follow it no longer.
    Leave,
    /// Let the held process run.
    LetGo,
    /// Fork an engine for a copy of the process.
    Fork,
    /// Record in a process that was forked from that of the engine that this one was forked from. It has memory for that as this
    /// descriptor.
    Adopt { pid: Pid, descriptor: i32 },
    /// Say what a copy of the process will have.
    Copied,
}

/// What it did.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    /// It is attached; the descriptor in the engine's process of the shared memory.
    Attached { descriptor: i32, stopped_ns: u64 },
    /// For each function its number, or why it cannot be probed.
    Added { functions: Vec<Result<u32, String>>, stopped_ns: u64 },
    /// Paths go on in new images.
    Refreshed,
    /// Blocks are counted.
    Counting { added: Added, stopped_ns: u64 },
    /// Executions, if they are certain.
    Executions(Option<Executions>),
    /// All probes are removed.
    Removed { stopped_ns: u64 },
    /// The process is followed.
    Following,
    /// The process that is followed does this.
    Program(Program),
    /// It runs.
    Running,
    /// The engine that was forked; the socket comes with the answer.
    Forked { process: i32 },
    /// What a copy of the process will have.
    Copied(Copied),
    /// Nothing was done.
    Failed(String),
}

/// What a process does that is followed to its next exec.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Program {
    /// It has not executed a program yet, or is no longer followed.
    Runs,
    /// It has loaded a program and its libraries, and is held there: nothing of the program has run.
    Held,
    /// It has ended.
    Ended,
}

/// Our handle of the process. Dropping it removes all probes.
pub struct Engine {
    channel: Channel,
    process: libc::pid_t,
    /// Whether it is a child of this process.
    is_child: bool,
    shared: Option<SharedMemory>,
    /// The longest time that a thread was stopped.
    pub stopped: Duration,
}

impl Engine {
    /// Forks the process. Call it early: it has copies of this process's memory.
    pub fn start() -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        initialize_libraries();
        // SAFETY: the child calls a function alone that does not return; what it needs of the C library works after a fork.
        let process = unsafe { libc::fork() };
        match process {
            0 => serve(only_file(theirs)),
            1.. => {
                let mut engine = Self::forked_elsewhere(ours, process);
                engine.is_child = true;
                Ok(engine)
            }
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Returns the handle of an engine that another process has forked.
    pub(crate) fn forked_elsewhere(socket: UnixStream, process: libc::pid_t) -> Self {
        let channel = Channel::new(socket);
        Engine { channel, process, is_child: false, shared: None, stopped: Duration::ZERO }
    }

    /// Forks an engine that can adopt a copy of the process.
    pub fn fork(&mut self) -> io::Result<Engine> {
        match self.ask(&Request::Fork)? {
            Answer::Forked { process } => {
                let socket =
                    self.channel.take_file().ok_or_else(|| io::Error::other("there is no socket"))?;
                Ok(Self::forked_elsewhere(socket.into(), process))
            }
            other => Err(unexpected(other)),
        }
    }

    /// Records calls in a process that was forked from that of the engine that this one was forked from. It has memory for that open
    /// as this descriptor.
    pub fn adopt(&mut self, pid: Pid, descriptor: i32) -> io::Result<()> {
        let answer = self.ask(&Request::Adopt { pid, descriptor })?;
        self.attached(answer)
    }

    /// Returns what a copy of the process will have.
    pub fn copied(&mut self) -> io::Result<Copied> {
        match self.ask(&Request::Copied)? {
            Answer::Copied(copied) => Ok(copied),
            other => Err(unexpected(other)),
        }
    }

    /// The engine's process.
    pub fn process(&self) -> Pid {
        Pid(self.process as u32)
    }

    /// Attaches to a process, to record paths of calls.
    pub fn attach(&mut self, pid: Pid) -> io::Result<()> {
        self.attach_with(pid, true)
    }

    /// Attaches to a process, to count its blocks.
    pub fn attach_to_count(&mut self, pid: Pid) -> io::Result<()> {
        self.attach_with(pid, false)
    }

    fn attach_with(&mut self, pid: Pid, with_paths: bool) -> io::Result<()> {
        let answer = self.ask(&Request::Attach { pid, with_paths })?;
        self.attached(answer)
    }

    fn attached(&mut self, answer: Answer) -> io::Result<()> {
        match answer {
            Answer::Attached { descriptor, stopped_ns } => {
                let path = format!("/proc/{}/fd/{descriptor}", self.process);
                self.shared = Some(SharedMemory::open(File::options().read(true).write(true).open(path)?)?);
                self.note(stopped_ns);
                Ok(())
            }
            other => Err(unexpected(other)),
        }
    }

    /// Probes the functions that start at these addresses of the process. Returns for each its number, or why it cannot be
    /// probed.
    pub fn add(
        &mut self,
        addresses: Vec<VirtualAddress>,
        metrics: Metrics,
    ) -> io::Result<Vec<Result<u32, String>>> {
        match self.ask(&Request::Add { addresses, metrics })? {
            Answer::Added { functions, stopped_ns } => {
                self.note(stopped_ns);
                Ok(functions)
            }
            other => Err(unexpected(other)),
        }
    }

    /// Returns the calls so far, without asking the engine.
    pub fn snapshot(&self) -> Snapshot {
        self.shared.as_ref().map(SharedMemory::snapshot).unwrap_or_default()
    }

    /// Lets paths go on in images that the process has mapped meanwhile.
    pub fn refresh(&mut self) -> io::Result<()> {
        match self.ask(&Request::Refresh)? {
            Answer::Refreshed => Ok(()),
            other => Err(unexpected(other)),
        }
    }

    /// Counts the blocks of the procedures that have most of the samples, which are addresses of the process with their numbers. In those
    /// that are counted already, chooses again which blocks have counters, by what was counted so far. What is counted meanwhile
    /// is lost.
    pub fn count(&mut self, samples: Vec<(VirtualAddress, u64)>) -> io::Result<Added> {
        self.ask_for_counters(&Request::Count { samples })
    }

    /// Counts one block of each procedure alone, its anchor, which is not executed often.
    pub fn rest(&mut self) -> io::Result<Added> {
        self.ask_for_counters(&Request::Rest)
    }

    fn ask_for_counters(&mut self, request: &Request) -> io::Result<Added> {
        match self.ask(request)? {
            Answer::Counting { added, stopped_ns } => {
                self.note(stopped_ns);
                Ok(added)
            }
            other => Err(unexpected(other)),
        }
    }

    /// Returns the executions since the last call of each block whose executions are known, named by the address of its first
    /// instruction; `None` if threads are new, which may have used the same counters.
    pub fn executions(&mut self) -> io::Result<Option<Executions>> {
        match self.ask(&Request::Executions)? {
            Answer::Executions(executions) => Ok(executions),
            other => Err(unexpected(other)),
        }
    }

    /// Removes all probes. The numbers can still be read.
    pub fn remove(&mut self) -> io::Result<()> {
        match self.ask(&Request::Remove)? {
            Answer::Removed { stopped_ns } => {
                self.note(stopped_ns);
                Ok(())
            }
            other => Err(unexpected(other)),
        }
    }

    /// Follows a process, which is about to execute a program or is held, to its next exec.
    pub fn follow(&mut self, pid: Pid) -> io::Result<()> {
        match self.ask(&Request::Follow { pid })? {
            Answer::Following => Ok(()),
            other => Err(unexpected(other)),
        }
    }

    /// Returns what the process does that is followed.
    pub fn program(&mut self) -> io::Result<Program> {
        match self.ask(&Request::Program)? {
            Answer::Program(program) => Ok(program),
            other => Err(unexpected(other)),
        }
    }

    /// Follows the process no longer, so that it can be attached to. It may have come to be held meanwhile.
    pub fn leave(&mut self) -> io::Result<Program> {
        match self.ask(&Request::Leave)? {
            Answer::Program(program) => Ok(program),
            other => Err(unexpected(other)),
        }
    }

    /// Lets the process run, if it is held.
    pub fn let_go(&mut self) -> io::Result<()> {
        match self.ask(&Request::LetGo)? {
            Answer::Running => Ok(()),
            other => Err(unexpected(other)),
        }
    }

    fn note(&mut self, stopped_ns: u64) {
        self.stopped = self.stopped.max(Duration::from_nanos(stopped_ns));
    }

    fn ask(&mut self, request: &Request) -> io::Result<Answer> {
        self.channel.send(request)?;
        self.channel.receive()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = self.channel.stream().shutdown(std::net::Shutdown::Write);
        // It answers nothing, and its end closes the channel.
        while self.channel.receive::<Answer>().is_ok() {}
        if !self.is_child {
            return;
        }
        // SAFETY: reaps our own child, which nobody else waits for, once it has removed the probes; no status is requested.
        unsafe { libc::waitpid(self.process, std::ptr::null_mut(), 0) };
    }
}

/// Lets libraries initialize what they do at first use. If another thread did that during the fork, the child would wait for it for
/// ever.
pub(crate) fn initialize_libraries() {
    // push rbp; mov rbp, rsp; xor eax, eax; pop rbp; ret; int3…
    let mut bytes = vec![0x55, 0x48, 0x89, 0xe5, 0x31, 0xc0, 0x5d, 0xc3];
    let length = bytes.len();
    bytes.extend([0xcc; 8]);
    let part = Part { address: 0x1000, bytes, length };
    let code = FunctionCode::decode(vec![part], IndirectJumps::default());
    let regions = code.and_then(|code| plan(&code, true)).expect("this function can be patched");
    let payload = Payload { gate: 0x8000, enter: 0x9000, leave: 0xa000 };
    for region in regions {
        assemble(&region, 0, payload, 0xb000).expect("everything is near");
    }
}

fn unexpected(answer: Answer) -> io::Error {
    match answer {
        Answer::Failed(message) => io::Error::other(message),
        other => io::Error::other(format!("unexpected answer: {other:?}")),
    }
}

/// The descriptor of the channel in an engine.
const KEPT: libc::c_int = 3;

/// Closes all files but this one and the standard ones: other engines' channels must end with their own processes.
pub(crate) fn only_file(channel: UnixStream) -> UnixStream {
    // SAFETY: nothing else uses the files in this process; the copy is owned once, and the original is closed here or is the copy.
    unsafe {
        libc::dup2(channel.into_raw_fd(), KEPT);
        // By its number: C libraries before 2.34 have no function for it.
        libc::syscall(libc::SYS_close_range, KEPT as libc::c_uint + 1, libc::c_uint::MAX, 0);
        UnixStream::from_raw_fd(KEPT)
    }
}

/// Answers requests until the channel is closed; then removes all probes and ends this process.
pub(crate) fn serve(socket: UnixStream) -> ! {
    set_up();
    // SAFETY: takes no pointer. Engines that are forked from this one are not waited for.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    let mut channel = Channel::new(socket);
    let mut state = State::default();
    while let Ok(request) = channel.receive::<Request>() {
        let answer = match request {
            Request::Fork => match fork_engine() {
                Ok(None) => {
                    state.become_copy();
                    continue;
                }
                Ok(Some((process, socket))) => {
                    if channel.send_with(&Answer::Forked { process }, socket.as_fd()).is_err() {
                        break;
                    }
                    continue;
                }
                Err(error) => Answer::Failed(error.to_string()),
            },
            request => state.answer(request).unwrap_or_else(Answer::Failed),
        };
        if channel.send(&answer).is_err() {
            break;
        }
    }
    state.let_all_go();
    let end = Instant::now() + REMOVAL;
    while !state.remove() && Instant::now() < end {
        std::thread::sleep(REMOVAL_EVERY);
    }
    // SAFETY: ends this process without running anything of the parent's.
    unsafe { libc::_exit(0) }
}

/// Forks an engine of this one, which has one thread now. Returns it with its channel, or `None` in the new one, where that replaces
/// the channel of this one.
fn fork_engine() -> io::Result<Option<(libc::pid_t, UnixStream)>> {
    let (ours, theirs) = UnixStream::pair()?;
    // SAFETY: there is one thread, so the child may do what this process may; the descriptor is that of the channel, which stays open.
    unsafe {
        match libc::fork() {
            0 => {
                libc::setpgid(0, 0);
                libc::dup2(theirs.as_raw_fd(), KEPT);
                Ok(None)
            }
            process @ 1.. => Ok(Some((process, ours))),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Gives this process a name and a process group of its own, and ignores the signals of a terminal.
pub(crate) fn set_up() {
    // SAFETY: no call takes a pointer but for the name, which lives forever.
    unsafe {
        libc::setpgid(0, 0);
        libc::prctl(libc::PR_SET_NAME, c"dwell-probe".as_ptr());
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGPIPE, libc::SIGQUIT] {
            libc::signal(signal, libc::SIG_IGN);
        }
    }
}
