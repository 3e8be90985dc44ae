//! What is asked of a stopped thread by ptrace, beyond its registers.

use std::{fs, io};

use dwell_probe::process::tracee::{Registers, Tracee};
use dwell_profile::{Pid, Tid};

/// The code of signals that the processor causes.
pub const SI_KERNEL: i32 = 0x80;

/// Lets a stopped thread make a system call, by an instruction with an `int3` behind it.
pub fn call(tracee: Tracee, call_at: u64, number: i64, arguments: [u64; 6]) -> io::Result<u64> {
    let (before, mask) = (tracee.registers()?, tracee.signal_mask()?);
    tracee.set_signal_mask(!0)?;
    let [rdi, rsi, rdx, r10, r8, r9] = arguments;
    let registers = Registers {
        rip: call_at,
        rax: number as u64,
        orig_rax: u64::MAX,
        rdi,
        rsi,
        rdx,
        r10,
        r8,
        r9,
        ..before
    };
    tracee.set_registers(&registers)?;
    tracee.resume(0)?;
    let stop = tracee.next_stop()?.ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?;
    let result = tracee.registers()?;
    if stop != (0, libc::SIGTRAP) || result.rip != call_at + 3 {
        return Err(io::Error::other(format!(
            "a system call for the tracer stopped at {:#x}: {stop:?}",
            result.rip
        )));
    }
    tracee.set_registers(&before)?;
    tracee.set_signal_mask(mask)?;
    match result.rax as i64 {
        error @ -4095..0 => Err(io::Error::from_raw_os_error(-error as i32)),
        _ => Ok(result.rax),
    }
}

/// Lets a stopped thread execute one instruction, after it has taken a signal (0: none). Returns the signal that it stops with.
pub fn step(tracee: Tracee, signal: i32) -> io::Result<(i32, Registers)> {
    // SAFETY: the request takes numbers only.
    if unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, tracee.tid.0 as libc::pid_t, 0, signal as usize) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let (_, signal) = tracee.next_stop()?.ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?;
    Ok((signal, tracee.registers()?))
}

/// Sends a signal once more that stopped a thread where it could not be delivered; SIGTRAP is no such signal.
pub fn send_again(tracee: Tracee, process: Pid, signal: i32) -> io::Result<()> {
    // SAFETY: the call takes numbers only.
    let failed = signal != libc::SIGTRAP
        && unsafe { libc::syscall(libc::SYS_tgkill, process.0, tracee.tid.0, signal) } < 0;
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}

pub fn siginfo(tracee: Tracee) -> io::Result<libc::siginfo_t> {
    // SAFETY: zeros are a valid siginfo, and the kernel writes at most its size.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        match libc::ptrace(libc::PTRACE_GETSIGINFO, tracee.tid.0 as libc::pid_t, 0, &raw mut info) {
            0 => Ok(info),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

pub fn set_siginfo(tracee: Tracee, info: &mut libc::siginfo_t) -> io::Result<()> {
    // SAFETY: the kernel reads at most the size of the live siginfo.
    match unsafe { libc::ptrace(libc::PTRACE_SETSIGINFO, tracee.tid.0 as libc::pid_t, 0, &raw mut *info) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

pub fn fault_address(tracee: Tracee) -> Option<u64> {
    // SAFETY: a fault's siginfo has an address.
    siginfo(tracee).ok().map(|info| unsafe { info.si_addr() } as u64)
}

/// Returns whether the program handles a signal.
pub fn is_caught(tid: Tid, signal: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask & 1 << (signal - 1) != 0
}

/// Returns whether two processes share their memory, as after vfork.
pub fn is_same_memory(one: Pid, other: Pid) -> bool {
    const KCMP_VM: i32 = 1;
    // SAFETY: the call takes numbers only.
    unsafe { libc::syscall(libc::SYS_kcmp, one.0, other.0, KCMP_VM, 0, 0) == 0 }
}
