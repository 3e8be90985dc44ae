//! The process that follows all processes of a command. Like an engine, it survives the death of the one that asked for it, and then lets
//! all processes go.
//!
//! Enters: requests, and stops of the processes. Leaves: events, and an engine for each process that is to be probed: they are forks of
//! this process, which has one thread and little memory. Never here: which functions are wanted.

use std::{
    collections::VecDeque,
    io,
    os::{
        fd::{AsFd, FromRawFd, OwnedFd},
        unix::net::UnixStream,
    },
    time::Duration,
};

use dwell_profile::{Pid, Tid};
use rustix::event::{PollFd, PollFlags, poll};
use serde::{Deserialize, Serialize};

use crate::{
    channel::Channel,
    engine::{Engine, initialize_libraries, only_file, serve, set_up},
    process::{
        copied::Copied,
        followed::{Event, Followed},
    },
    shared_memory::measure_ns_per_tick,
};

/// What the follower is asked to do.
#[derive(Debug, Serialize, Deserialize)]
enum Request {
    /// Follow a process that is about to execute a program.
    Follow { pid: Pid },
    /// Let a process that waits go on without probes.
    Go { pid: Pid },
    /// Let a copy that waits go on, which has an engine.
    GoProbed { pid: Pid },
    /// Permit an engine to access a copy that waits.
    Permit { pid: Pid, tracer: Pid },
    /// Hold a process that waits, and make an engine for it.
    Hold { pid: Pid },
    /// Let a process that is held go on. Its forks are copies if it has probes.
    Release { pid: Pid, copied: Option<Copied> },
}

/// What it says.
#[derive(Debug, Serialize, Deserialize)]
enum Message {
    Event(Event),
    Done,
    /// The engine; the socket comes with the message.
    Engine {
        process: i32,
    },
    Failed(String),
}

/// Our handle of the process. Dropping it lets all processes go.
pub struct Follower {
    channel: Channel,
    process: libc::pid_t,
    events: VecDeque<Event>,
}

impl Follower {
    /// Forks the process. Call it early, before there are threads.
    pub fn start() -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        initialize_libraries();
        measure_ns_per_tick(); // Engines have the result, too.
        // SAFETY: the child calls a function alone that does not return; what it needs of the C library works after a fork.
        match unsafe { libc::fork() } {
            0 => follow_all(Channel::new(only_file(theirs))),
            process @ 1.. => Ok(Follower { channel: Channel::new(ours), process, events: VecDeque::new() }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The follower's process.
    pub fn process(&self) -> Pid {
        Pid(self.process as u32)
    }

    /// Follows a process that is about to execute a program.
    pub fn follow(&mut self, pid: Pid) -> io::Result<()> {
        self.ask(&Request::Follow { pid }).map(drop)
    }

    /// Returns what happened next, if anything did in this time.
    pub fn event(&mut self, patience: Duration) -> io::Result<Option<Event>> {
        if let Some(event) = self.events.pop_front() {
            return Ok(Some(event));
        }
        if !self.channel.wait(patience)? {
            return Ok(None);
        }
        match self.channel.receive()? {
            Message::Event(event) => Ok(Some(event)),
            other => Err(unexpected(other)),
        }
    }

    /// Lets a process that waits go on without probes.
    pub fn go(&mut self, pid: Pid) -> io::Result<()> {
        self.channel.send(&Request::Go { pid })
    }

    /// Lets a copy that waits go on, which has an engine.
    pub fn go_probed(&mut self, pid: Pid) -> io::Result<()> {
        self.channel.send(&Request::GoProbed { pid })
    }

    /// Permits an engine to access a copy that waits.
    pub fn permit(&mut self, pid: Pid, engine: &Engine) -> io::Result<()> {
        self.ask(&Request::Permit { pid, tracer: engine.process() }).map(drop)
    }

    /// Holds a process that waits, so that the engine which is returned can attach to it.
    pub fn hold(&mut self, pid: Pid) -> io::Result<Engine> {
        let Message::Engine { process } = self.ask(&Request::Hold { pid })? else {
            return Err(io::Error::other("there is no engine"));
        };
        let socket = self.channel.take_file().ok_or_else(|| io::Error::other("there is no socket"))?;
        Ok(Engine::forked_elsewhere(socket.into(), process))
    }

    /// Lets a process that is held go on. `copied` is what its forks will have of the probes that it has.
    pub fn release(&mut self, pid: Pid, copied: Option<Copied>) -> io::Result<()> {
        self.channel.send(&Request::Release { pid, copied })
    }

    /// Sends a request and returns what is no event.
    fn ask(&mut self, request: &Request) -> io::Result<Message> {
        self.channel.send(request)?;
        loop {
            match self.channel.receive()? {
                Message::Event(event) => self.events.push_back(event),
                Message::Failed(message) => return Err(io::Error::other(message)),
                message => return Ok(message),
            }
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.channel.stream().shutdown(std::net::Shutdown::Both);
        // SAFETY: reaps our own child, which nobody else waits for, once it has let all processes go; no status is requested.
        unsafe { libc::waitpid(self.process, std::ptr::null_mut(), 0) };
    }
}

fn unexpected(message: Message) -> io::Error {
    io::Error::other(format!("unexpected message: {message:?}"))
}

/// Answers stops and requests until the channel is closed; then lets all processes go and ends this process.
fn follow_all(mut channel: Channel) -> ! {
    set_up();
    let mut followed = Followed::default();
    if let Ok(signals) = watch_children() {
        while turn(&mut channel, &signals, &mut followed).is_ok() {}
    }
    followed.end();
    // SAFETY: ends this process without running anything of the parent's.
    unsafe { libc::_exit(0) }
}

/// Waits for something to do, and does it.
fn turn(channel: &mut Channel, signals: &OwnedFd, followed: &mut Followed) -> io::Result<()> {
    followed.answer_stops()?;
    let wanted = PollFlags::IN | if followed.events.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
    let mut files = [
        PollFd::from_borrowed_fd(channel.stream().as_fd(), wanted),
        PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
    ];
    if !channel.has_message() {
        rustix::io::retry_on_intr(|| poll(&mut files, None))?;
    }
    let [on_channel, on_signals] = [0, 1].map(|file| files[file].revents());
    if !on_signals.is_empty() {
        rustix::io::read(signals, &mut [0; 128])?;
    }
    // The controller may send requests before it reads, so nothing is sent that would have to wait.
    if on_channel.contains(PollFlags::OUT)
        && let Some(event) = followed.events.pop_front()
    {
        channel.send(&Message::Event(event))?;
    }
    if channel.has_message() || on_channel.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
        answer(channel.receive()?, channel, followed)?;
    }
    Ok(())
}

fn answer(request: Request, channel: &mut Channel, followed: &mut Followed) -> io::Result<()> {
    let (pid, result) = match request {
        Request::Go { pid } => (pid, followed.go(pid)),
        Request::GoProbed { pid } => (pid, followed.go_probed(pid)),
        Request::Release { pid, copied } => (pid, followed.release(pid, copied)),
        Request::Follow { pid } => return channel.send(&reply(&followed.follow(pid))),
        Request::Permit { pid, tracer } => {
            let permitted = followed.permit(pid, tracer);
            channel.send(&reply(&permitted))?;
            (pid, permitted.or_else(killed_only))
        }
        Request::Hold { pid } => match start_engine(followed, pid) {
            Ok((process, socket)) => {
                channel.send_with(&Message::Engine { process }, socket.as_fd())?;
                (pid, Ok(()))
            }
            Err(error) => {
                let failed = Err(error);
                channel.send(&reply(&failed))?;
                (pid, failed.or_else(killed_only))
            }
        },
    };
    if let Err(error) = result {
        followed.failed(Tid(pid.0), &error);
    }
    Ok(())
}

fn reply(result: &io::Result<()>) -> Message {
    result.as_ref().map_or_else(|error| Message::Failed(error.to_string()), |()| Message::Done)
}

/// Returns an error if it may say that the process was killed. The controller handles others.
fn killed_only(error: io::Error) -> io::Result<()> {
    if error.raw_os_error() == Some(libc::ESRCH) { Err(error) } else { Ok(()) }
}

/// Forks an engine, permits it to trace the process, and holds the process.
fn start_engine(followed: &mut Followed, pid: Pid) -> io::Result<(libc::pid_t, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    // SAFETY: this process has one thread; the child calls functions alone that do not return.
    let process = match unsafe { libc::fork() } {
        0 => {
            unblock_signals();
            serve(only_file(theirs))
        }
        process @ 1.. => process,
        _ => return Err(io::Error::last_os_error()),
    };
    followed.permit(pid, Pid(process as u32))?;
    followed.hold(pid)?;
    Ok((process, ours))
}

/// Returns a file that can be read when a tracee has stopped.
fn watch_children() -> io::Result<OwnedFd> {
    // SAFETY: the set is initialized by the first call, and lives; the descriptor is owned at once.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        match libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC) {
            -1 => Err(io::Error::last_os_error()),
            file => Ok(OwnedFd::from_raw_fd(file)),
        }
    }
}

fn unblock_signals() {
    // SAFETY: the set is initialized by the first call, and lives.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
    }
}
