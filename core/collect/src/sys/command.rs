//! Starts a command that waits before its exec until the events are open.

use std::{
    ffi::OsString,
    io::{self, Read, Write},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::process::CommandExt,
    },
    process::{Child, Command},
    thread::JoinHandle,
};

use dwell_profile::Pid;
use rustix::pipe::{PipeFlags, pipe_with};

/// A forked child that has not called exec yet.
pub struct PausedCommand {
    pid: Pid,
    go: OwnedFd,
    spawning: JoinHandle<io::Result<Child>>,
}

impl PausedCommand {
    /// Forks a child that stops right before its exec. Returns an error if the fork fails; [`PausedCommand::resume`] reports
    /// an exec that fails. `tracer` is a process that the command permits to trace it on systems where only parents may
    /// (Yama).
    pub fn fork(command: &[OsString], tracer: Option<Pid>) -> io::Result<Self> {
        let Some((program, arguments)) = command.split_first() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no command was given"));
        };
        let (pid_read, pid_write) = pipe_with(PipeFlags::CLOEXEC)?;
        let (go_read, go_write) = pipe_with(PipeFlags::CLOEXEC)?;
        let mut command = Command::new(program);
        command.args(arguments);
        pause_before_exec(
            &mut command,
            pid_write.as_raw_fd(),
            go_read.as_raw_fd(),
            go_write.as_raw_fd(),
            tracer,
        );
        // `spawn` returns only after the exec, so it runs on a separate thread, which keeps the child's ends open.
        let spawning = std::thread::spawn(move || {
            let _ends = (pid_write, go_read);
            command.spawn()
        });
        let mut pid = [0; 4];
        match std::fs::File::from(pid_read).read_exact(&mut pid) {
            Ok(()) => Ok(PausedCommand { pid: Pid(u32::from_ne_bytes(pid)), go: go_write, spawning }),
            // The ends were closed without data: the fork itself failed.
            Err(closed) => Err(join(spawning).err().unwrap_or(closed)),
        }
    }

    /// Returns the child's process id.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Lets the child continue to its exec. An error is that of exec (no such file, not executable, …).
    pub fn resume(self) -> io::Result<Child> {
        let written = std::fs::File::from(self.go).write_all(&[1]);
        let child = join(self.spawning)?;
        written.map(|()| child)
    }

    /// Ends the child before it has executed anything.
    pub fn abandon(self) {
        drop(self.go);
        let _ = join(self.spawning); // The error is the one that we caused.
    }
}

fn join(spawning: JoinHandle<io::Result<Child>>) -> io::Result<Child> {
    spawning.join().unwrap_or_else(|_| Err(io::Error::other("the thread that forks panicked")))
}

fn pause_before_exec(
    command: &mut Command,
    pid_write: i32,
    go_read: i32,
    go_write: i32,
    tracer: Option<Pid>,
) {
    let pause = move || {
        // SAFETY: getpid, write, close and read are async-signal-safe; the buffers live on this stack; the
        // descriptors were open at the fork. Our copy of `go_write` must go, or a dead parent would never read as end
        // of file.
        let went = unsafe {
            let pid = (libc::getpid() as u32).to_ne_bytes();
            libc::close(go_write);
            if let Some(tracer) = tracer {
                // Without Yama this fails, without harm.
                libc::prctl(libc::PR_SET_PTRACER, libc::c_ulong::from(tracer.0), 0, 0, 0);
            }
            let mut go = 0_u8;
            libc::write(pid_write, pid.as_ptr().cast(), pid.len()) == pid.len() as isize
                && libc::read(go_read, (&raw mut go).cast(), 1) == 1
        };
        if went { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ECANCELED)) }
    };
    // SAFETY: the closure runs in the child between fork and exec and makes async-signal-safe calls only.
    unsafe { command.pre_exec(pause) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn a_command_waits_then_runs_and_returns_its_status() {
        let paused = PausedCommand::fork(&command(&["sh", "-c", "exit 7"]), None).unwrap();
        let executable = std::fs::read_link(format!("/proc/{}/exe", paused.pid())).unwrap();
        assert_eq!(executable, std::env::current_exe().unwrap(), "no exec before `resume`");
        let status = paused.resume().unwrap().wait().unwrap();
        assert_eq!(status.code(), Some(7));
    }

    #[test]
    fn a_missing_program_is_reported_on_resume() {
        let paused = PausedCommand::fork(&command(&["/no/such/program"]), None).unwrap();
        assert_eq!(paused.resume().unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn an_abandoned_command_never_runs() {
        let paused = PausedCommand::fork(&command(&["touch", "/tmp/dwell-must-not-exist"]), None).unwrap();
        paused.abandon();
        assert!(!std::path::Path::new("/tmp/dwell-must-not-exist").exists());
    }
}
