//! Programs that are guarded while exceptions are lost, signals arrive and the collector is killed.

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{Child, ChildStdout, Command, ExitStatus, Stdio},
    time::Duration,
};

use super::*;
use crate::sys::{
    guard::{Protection, Turns},
    tracer::tests::Waits,
};

/// A program of `tests/guarded.c` that waits for a byte.
struct Target {
    child: Child,
    output: BufReader<ChildStdout>,
    _folder: tempfile::TempDir,
}

impl Target {
    fn start(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("guarded");
        let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/guarded.c");
        let built = Command::new("cc").args(["-O1", "-pthread", "-o"]).args([&program, &source]).status();
        assert!(built.unwrap().success());
        let child =
            Command::new(&program).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut target = Target { child, output, _folder: folder };
        assert_eq!(target.line(), "ready");
        target
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn pid(&self) -> Pid {
        Pid(self.child.id())
    }

    fn threads(&self) -> Vec<Tid> {
        threads(self.pid())
    }

    fn go(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
    }

    fn end(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    fn signal(&self, signal: libc::c_int) {
        // SAFETY: takes no pointer; the child has not been waited for.
        unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn threads(pid: Pid) -> Vec<Tid> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn tracer_of(pid: Pid) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().find_map(|line| line.strip_prefix("TracerPid:")).unwrap_or("").trim().to_owned()
}

/// Returns a protection with a helper, or `None` with a line that says why there is none.
fn protection(name: &str) -> Option<Protection> {
    let protection = Protection::start(&Turns::default());
    if protection.helper().is_none() {
        println!("SKIPPED {name}: guards are needed, and permitted, on virtual machines as root only");
    }
    protection.helper().map(|_| protection)
}

#[test]
fn a_lost_exception_is_told_from_int1() {
    assert!(is_lost_exception(1, [0xc3, 0x90]));
    // int1, before and at the program counter; int3; kill; a single step.
    for (code, around) in [(1, [0xf1, 0]), (1, [0, 0xf1]), (0x80, [0xcc, 0]), (0, [0, 0]), (2, [0, 0])] {
        assert!(!is_lost_exception(code, around));
    }
}

#[test]
fn a_guarded_program_survives_lost_exceptions() {
    let Some(protection) = protection("a_guarded_program_survives_lost_exceptions") else { return };
    let mut target = Target::start(&["lost", "500"]);
    let guard = protection.guard(target.pid(), &target.threads(), true).unwrap();
    target.go();
    assert!(target.end().success());
    assert_eq!(guard.release(), 2000);
    // Without a guard it does not: the test means something.
    let mut target = Target::start(&["lost", "1"]);
    target.go();
    assert_eq!(target.end().signal(), Some(libc::SIGTRAP));
}

#[test]
fn a_blocked_signal_stays_blocked() {
    let Some(protection) = protection("a_blocked_signal_stays_blocked") else { return };
    let mut target = Target::start(&["blocked"]);
    let guard = protection.guard(target.pid(), &target.threads(), true).unwrap();
    target.go();
    // The signal of this program waits, since it is not forced: nothing is taken away, and nothing changes.
    assert_eq!(target.end().code(), Some(0));
    assert_eq!(guard.release(), 0);
}

#[test]
fn traps_of_the_program_are_delivered() {
    let Some(protection) = protection("traps_of_the_program_are_delivered") else { return };
    let mut target = Target::start(&["int1"]);
    let guard = protection.guard(target.pid(), &target.threads(), true).unwrap();
    target.go();
    assert_eq!(target.end().signal(), Some(libc::SIGTRAP));
    assert_eq!(guard.release(), 0);
}

#[test]
fn what_a_guard_would_disturb_is_refused() {
    let Some(protection) = protection("what_a_guard_would_disturb_is_refused") else { return };
    for (mode, refusal) in [("handler", Refusal::HandlesTraps), ("children", Refusal::HasChildren)] {
        let target = Target::start(&[mode]);
        assert_eq!(protection.guard(target.pid(), &target.threads(), true).err(), Some(refusal));
        assert_eq!(tracer_of(target.pid()), "0");
    }
    // Afterwards others can be guarded.
    let target = Target::start(&["lost"]);
    let guard = protection.guard(target.pid(), &target.threads(), true).unwrap();
    let other = Protection::start(&Turns::default());
    let refused = other.guard(target.pid(), &target.threads(), true).err();
    assert_eq!(refused, Some(Refusal::NotPermitted));
    drop(guard);
}

#[test]
fn signals_stops_and_ends_are_as_without_a_guard() {
    let Some(protection) = protection("signals_stops_and_ends_are_as_without_a_guard") else { return };
    let mut target = Target::start(&["signals"]);
    let guard = protection.guard(target.pid(), &target.threads(), true).unwrap();
    target.go();
    for number in 1..=20 {
        target.signal(libc::SIGUSR1);
        assert_eq!(target.line(), number.to_string());
    }
    let reported = |flags| {
        let mut status = 0;
        // SAFETY: the kernel writes the live status of our child.
        let waited = unsafe { libc::waitpid(target.child.id() as libc::pid_t, &raw mut status, flags) };
        assert!(waited > 0);
        status
    };
    target.signal(libc::SIGSTOP);
    assert!(libc::WIFSTOPPED(reported(libc::WUNTRACED)));
    target.signal(libc::SIGCONT);
    assert!(libc::WIFCONTINUED(reported(libc::WCONTINUED)));
    target.signal(libc::SIGUSR1);
    assert_eq!(target.line(), "21");
    target.signal(libc::SIGTERM);
    assert_eq!(target.end().signal(), Some(libc::SIGTERM));
    drop(guard);
}

#[test]
fn a_guard_ends_with_the_collector() {
    let Some(_) = protection("a_guard_ends_with_the_collector") else { return };
    let mut target = Target::start(&["signals"]);
    let (pid, tids) = (target.pid(), target.threads());
    // SAFETY: the child only guards and exits.
    let collector = unsafe { libc::fork() };
    if collector == 0 {
        let guarded = Protection::start(&Turns::default()).guard(pid, &tids, true).is_ok();
        // SAFETY: ends the child as a kill would.
        unsafe { libc::_exit(i32::from(!guarded)) };
    }
    let mut status = 0;
    // SAFETY: the kernel writes the live status of our child.
    unsafe { libc::waitpid(collector, &raw mut status, 0) };
    assert_eq!(status, 0);
    let is_released = || {
        (0..3000).any(|_| {
            std::thread::sleep(Duration::from_millis(1));
            tracer_of(pid) == "0"
        })
    };
    assert!(is_released());
    target.go();
    target.signal(libc::SIGUSR1);
    assert_eq!(target.line(), "1");
}

/// Runs some of the calls of `waits.c` while their threads are guarded and released, and calls `between` for each thread.
fn guard_waits(protection: &Protection, first: u32, count: u32, between: impl Fn(Pid, Tid)) {
    let waits = Waits::build();
    let mut child = waits.start("1.5", first, count);
    let pid = Pid(child.id());
    let mut guards = 0;
    while child.try_wait().unwrap().is_none() {
        let tids: Vec<Tid> = threads(pid).into_iter().take(64).collect();
        if tids.len() > 1
            && let Ok(guard) = protection.guard(pid, &tids, true)
        {
            guards += 1;
            tids.iter().for_each(|tid| between(pid, *tid));
            drop(guard);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && guards > 5, "{guards} guards, {output:?}");
}

#[test]
fn system_calls_of_guarded_threads_notice_nothing() {
    let Some(protection) = protection("system_calls_of_guarded_threads_notice_nothing") else { return };
    guard_waits(&protection, 0, 38, |_, _| {});
}

/// Signals that a program ignores are not even sent to a thread that nobody traces. Here they interrupt calls, which are put
/// back. Not among them are transfers of many bytes, which may return less, and `nanosleep`, which stores what remains.
#[test]
fn ignored_signals_of_guarded_threads_interrupt_no_call() {
    let Some(protection) = protection("ignored_signals_of_guarded_threads_interrupt_no_call") else { return };
    guard_waits(&protection, 1, 11, |pid, tid| {
        // SAFETY: takes no pointer.
        unsafe { libc::syscall(libc::SYS_tgkill, pid.0, tid.0, libc::SIGWINCH) };
    });
}
