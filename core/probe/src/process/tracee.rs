//! A thread that the calling thread traces.
//!
//! Enters: a thread's id. Leaves: its registers while it is stopped, and system calls that it makes for us. Never here: which
//! thread is stopped, and how.

use std::{io, mem};

use dwell_profile::Tid;

/// A traced thread. It is released when the tracing thread ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tracee {
    /// The thread's id.
    pub tid: Tid,
}

/// Where the base of gs is in `struct user`.
const GS_BASE_AT: usize = mem::offset_of!(libc::user_regs_struct, gs_base);

/// The registers of a thread.
pub type Registers = libc::user_regs_struct;

impl Tracee {
    /// Begins to trace a thread, which continues to run. New threads, and child processes, of it are traced from their beginning.
    pub fn seize(tid: Tid) -> io::Result<Tracee> {
        let options = libc::PTRACE_O_TRACECLONE
            | libc::PTRACE_O_TRACEFORK
            | libc::PTRACE_O_TRACEVFORK
            | libc::PTRACE_O_TRACESYSGOOD;
        let tracee = Tracee { tid };
        tracee.request(libc::PTRACE_SEIZE, 0, options as usize)?;
        Ok(tracee)
    }

    /// Begins to trace a process with one thread, which continues to run and stops when it has executed a program.
    pub fn seize_at_exec(tid: Tid) -> io::Result<Tracee> {
        let tracee = Tracee { tid };
        tracee.request(libc::PTRACE_SEIZE, 0, libc::PTRACE_O_TRACEEXEC as usize)?;
        Ok(tracee)
    }

    /// Begins to trace a process with one thread like [`Tracee::seize`], which also stops when it, or a child process, has executed
    /// a program, and when a thread is about to end.
    pub fn seize_with_children(tid: Tid) -> io::Result<Tracee> {
        let options = libc::PTRACE_O_TRACECLONE
            | libc::PTRACE_O_TRACEFORK
            | libc::PTRACE_O_TRACEVFORK
            | libc::PTRACE_O_TRACEEXEC
            | libc::PTRACE_O_TRACEEXIT
            | libc::PTRACE_O_TRACESYSGOOD;
        let tracee = Tracee { tid };
        tracee.request(libc::PTRACE_SEIZE, 0, options as usize)?;
        Ok(tracee)
    }

    /// Continues the stopped thread, which takes this signal (0: none).
    pub fn resume(self, signal: libc::c_int) -> io::Result<()> {
        self.request(libc::PTRACE_CONT, 0, signal as usize).map(drop)
    }

    /// Leaves the thread in its group stop and reports when that ends.
    pub fn listen(self) -> io::Result<()> {
        self.request(libc::PTRACE_LISTEN, 0, 0).map(drop)
    }

    /// Stops the thread wherever it is. The caller must know that no system call of it notices.
    pub fn interrupt(self) -> io::Result<()> {
        self.request(libc::PTRACE_INTERRUPT, 0, 0).map(drop)
    }

    /// Releases the stopped thread.
    pub fn detach(self) -> io::Result<()> {
        self.request(libc::PTRACE_DETACH, 0, 0).map(drop)
    }

    /// Waits until the thread stops.
    pub fn wait_for_stop(self) -> io::Result<()> {
        self.next_stop()?.map(drop).ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))
    }

    /// Waits until the thread stops, and returns the event (`PTRACE_EVENT_…`, 0: a signal) and the signal; `None` if it ended.
    pub fn next_stop(self) -> io::Result<Option<(libc::c_int, libc::c_int)>> {
        Ok(self.wait(0)?.flatten())
    }

    /// Returns what [`Tracee::next_stop`] would, or `None` if the thread runs.
    pub fn poll_stop(self) -> io::Result<Option<Option<(libc::c_int, libc::c_int)>>> {
        self.wait(libc::WNOHANG)
    }

    fn wait(self, flags: libc::c_int) -> io::Result<Option<Option<(libc::c_int, libc::c_int)>>> {
        let mut status = 0;
        // SAFETY: the kernel writes the live status.
        match unsafe { libc::waitpid(self.tid.0 as libc::pid_t, &raw mut status, libc::__WALL | flags) } {
            -1 => Err(io::Error::last_os_error()),
            0 => Ok(None),
            _ if libc::WIFSTOPPED(status) => Ok(Some(Some((status >> 16, libc::WSTOPSIG(status))))),
            _ => Ok(Some(None)),
        }
    }

    /// Returns the registers of the stopped thread.
    pub fn registers(self) -> io::Result<Registers> {
        // SAFETY: zeros are valid registers, and the kernel writes at most their size.
        unsafe {
            let mut registers: Registers = mem::zeroed();
            self.request(libc::PTRACE_GETREGS, 0, &raw mut registers as usize)?;
            Ok(registers)
        }
    }

    /// Sets the registers of the stopped thread.
    pub fn set_registers(self, registers: &Registers) -> io::Result<()> {
        self.request(libc::PTRACE_SETREGS, 0, &raw const *registers as usize).map(drop)
    }

    /// Returns the base of the stopped thread's gs segment.
    pub fn gs_base(self) -> io::Result<u64> {
        let mut base = 0u64;
        // The system call, unlike the C library's function, writes the word.
        self.request_raw(libc::PTRACE_PEEKUSER, GS_BASE_AT, &raw mut base as usize)?;
        Ok(base)
    }

    /// Sets the base of the stopped thread's gs segment.
    pub fn set_gs_base(self, base: u64) -> io::Result<()> {
        self.request(libc::PTRACE_POKEUSER, GS_BASE_AT, base as usize).map(drop)
    }

    /// Returns the signals that the stopped thread blocks.
    pub fn signal_mask(self) -> io::Result<u64> {
        let mut mask = 0u64;
        self.request(libc::PTRACE_GETSIGMASK, mem::size_of::<u64>(), &raw mut mask as usize)?;
        Ok(mask)
    }

    /// Sets the signals that the stopped thread blocks.
    pub fn set_signal_mask(self, mask: u64) -> io::Result<()> {
        self.request(libc::PTRACE_SETSIGMASK, mem::size_of::<u64>(), &raw const mask as usize).map(drop)
    }

    /// Returns the code of the signal that the stopped thread is about to take.
    pub fn signal_code(self) -> Option<libc::c_int> {
        // SAFETY: zeros are a valid siginfo, and the kernel writes at most its size.
        unsafe {
            let mut info: libc::siginfo_t = mem::zeroed();
            self.request(libc::PTRACE_GETSIGINFO, 0, &raw mut info as usize).ok()?;
            Some(info.si_code)
        }
    }

    /// Returns the number that an event stop reports: the new thread's or process's id.
    pub fn event_message(self) -> Option<u32> {
        let mut message: libc::c_ulong = 0;
        self.request(libc::PTRACE_GETEVENTMSG, 0, &raw mut message as usize).ok()?;
        u32::try_from(message).ok()
    }

    /// Lets the stopped thread continue until it enters or leaves a system call.
    fn resume_to_call(self) -> io::Result<()> {
        self.request(libc::PTRACE_SYSCALL, 0, 0).map(drop)
    }

    /// Lets the thread, which is stopped in user mode, make a system call, by the `syscall` instruction at `syscall_at`. Afterwards
    /// its registers and its signal mask are as they were.
    pub fn system_call(self, syscall_at: u64, number: i64, arguments: [u64; 6]) -> io::Result<u64> {
        let before = self.registers()?;
        let mask = self.signal_mask()?;
        self.set_signal_mask(!0)?; // A signal now would save registers that are ours.
        let mut registers = before;
        registers.rip = syscall_at;
        registers.orig_rax = u64::MAX; // It is not about to restart a call.
        registers.rax = number as u64;
        [registers.rdi, registers.rsi, registers.rdx, registers.r10, registers.r8, registers.r9] = arguments;
        self.set_registers(&registers)?;
        let mut stops = 0;
        while stops < 2 {
            self.resume_to_call()?;
            stops += usize::from(self.is_at_call()?); // Else an interrupt came late.
        }
        let result = self.registers()?.rax as i64;
        self.set_registers(&before)?;
        self.set_signal_mask(mask)?;
        match result {
            -4095..0 => Err(io::Error::from_raw_os_error(-result as i32)),
            _ => Ok(result as u64),
        }
    }

    /// Waits until the thread stops, and returns whether it enters or leaves a system call.
    fn is_at_call(self) -> io::Result<bool> {
        let stop = self.next_stop()?.ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?;
        Ok(stop.1 == libc::SIGTRAP | 0x80)
    }

    fn request_raw(self, request: libc::c_uint, address: usize, data: usize) -> io::Result<()> {
        // SAFETY: as below.
        let result = unsafe {
            libc::syscall(
                libc::SYS_ptrace,
                request as libc::c_long,
                self.tid.0 as libc::c_long,
                address,
                data,
            )
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn request(self, request: libc::c_uint, address: usize, data: usize) -> io::Result<libc::c_long> {
        // SAFETY: every request that is made through here reads or writes live values of the size that it expects.
        let result = unsafe { libc::ptrace(request, self.tid.0 as libc::pid_t, address, data) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
    }
}
