//! Another program's instructions, executed one at a time on registers of its own.
//!
//! Enters: a decoded instruction without control flow, registers, and the bytes of its memory operand. Leaves: the
//! registers and bytes afterwards. Never here: addresses of the other program: whatever an instruction reads or writes
//! in memory is redirected to [`Operand`], so it cannot reach ours. x86-64 only.
//!
//! The processor itself is the interpreter: each instruction is encoded once more between loads and stores of the
//! registers that it names ([`encode`]), so that everything up to AVX-512 works as it does there, and nothing of it
//! has to be known here. An instruction that faults (a division by zero) comes back as a [`Fault`].

mod encode;

use std::{
    arch::asm,
    io, mem, ptr,
    sync::atomic::{AtomicPtr, Ordering},
};

/// Room for the code of some ten thousand instructions.
const CODE_BYTES: usize = 2 << 20;

/// Registers. The places of the fields are known to the code that [`encode`] makes.
#[repr(C, align(64))]
#[derive(Clone)]
pub struct Registers {
    /// In the order of their numbers: rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15.
    pub general: [u64; 16],
    /// Arithmetic flags and the direction.
    pub flags: u64,
    /// Control and status of vector arithmetic.
    pub mxcsr: u32,
    own_mxcsr: u32,
    resume_stack: u64,
    resume_at: u64,
    /// k0 to k7.
    pub masks: [u64; 8],
    unused: [u64; 4],
    /// zmm0 to zmm31.
    pub vectors: [[u8; 64]; 32],
    /// As `fxsave` writes it, of which the x87 part counts.
    pub x87: [u8; 512],
}

impl Registers {
    /// All zeros, vector and x87 arithmetic as a new process has them.
    pub fn new() -> Registers {
        let mut x87 = [0; 512];
        x87[..2].copy_from_slice(&0x37f_u16.to_le_bytes());
        x87[24..28].copy_from_slice(&0x1f80_u32.to_le_bytes());
        Registers {
            general: [0; 16],
            flags: 0,
            mxcsr: 0x1f80,
            own_mxcsr: 0x1f80,
            resume_stack: 0,
            resume_at: 0,
            masks: [0; 8],
            unused: [0; 4],
            vectors: [[0; 64]; 32],
            x87,
        }
    }
}

/// The bytes of a memory operand.
#[repr(C, align(64))]
#[derive(Clone)]
pub struct Operand(pub [u8; 64]);

/// The instruction raised an exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault;

/// Where an instruction's code begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry(usize);

/// Memory for code. One at a time in a process: exceptions find it by a static.
pub struct Processor {
    code: *mut u8,
    used: usize,
    vectors: encode::Vectors,
}

// SAFETY: the mapping belongs to this value alone, whichever thread has it.
unsafe impl Send for Processor {}

/// The registers of the instruction that is being executed, for [`on_fault`].
static RUNNING: AtomicPtr<Registers> = AtomicPtr::new(ptr::null_mut());

impl Processor {
    /// Fails where memory may not be written and executed.
    pub fn new() -> io::Result<Processor> {
        let protection = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let code = unsafe { libc::mmap(ptr::null_mut(), CODE_BYTES, protection, flags, -1, 0) };
        if code == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Processor { code: code.cast(), used: 0, vectors: encode::Vectors::of_this_machine() })
    }

    /// Takes exceptions of this process from now on: only for a process that does nothing else.
    pub fn take_exceptions(&self) {
        // SAFETY: the handler touches a live `Registers` and its own context alone; masks are plain data.
        unsafe {
            let mut action: libc::sigaction = mem::zeroed();
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_fault;
            action.sa_sigaction = handler as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
            let mut faults: libc::sigset_t = mem::zeroed();
            for signal in [libc::SIGFPE, libc::SIGILL, libc::SIGSEGV, libc::SIGBUS] {
                libc::sigaction(signal, &raw const action, ptr::null_mut());
                libc::sigaddset(&raw mut faults, signal);
            }
            libc::sigprocmask(libc::SIG_UNBLOCK, &raw const faults, ptr::null_mut());
        }
    }

    /// Makes an instruction ready; `None` where it must not or cannot be executed apart. `Full` when nothing more fits.
    pub fn prepare(&mut self, instruction: &iced_x86::Instruction) -> Result<Option<Entry>, Full> {
        let Some(code) = encode::code(instruction, self.vectors) else { return Ok(None) };
        if self.used + code.len() > CODE_BYTES {
            return Err(Full);
        }
        // SAFETY: within the mapping, as was just checked; nobody executes it meanwhile.
        unsafe { ptr::copy_nonoverlapping(code.as_ptr(), self.code.add(self.used), code.len()) };
        let entry = Entry(self.used);
        self.used += code.len();
        Ok(Some(entry))
    }

    /// Forgets all that was prepared: entries from before must not be used any more.
    pub fn clear(&mut self) {
        self.used = 0;
    }

    /// Executes what was prepared.
    pub fn execute(
        &self,
        entry: Entry,
        registers: &mut Registers,
        operand: &mut Operand,
    ) -> Result<(), Fault> {
        assert!(entry.0 < self.used, "prepared since the last clear");
        let registers = &raw mut *registers;
        RUNNING.store(registers, Ordering::Relaxed);
        let faulted: u64;
        // SAFETY: the code at `entry` was made by `encode`: it reads and writes `registers` and `operand` alone, keeps the
        // stack, and returns. A fault continues at label 2 with the stack as it was saved there. Everything that it may
        // change is declared, but for rbx and rbp, which are saved here.
        unsafe {
            asm!(
                "push rbx",
                "push rbp",
                "lea rax, [rip + 2f]",
                "mov [rdi + {resume_at}], rax",
                "mov [rdi + {resume_stack}], rsp",
                "call rcx",
                "xor eax, eax",
                "jmp 3f",
                "2:",
                "mov eax, 1",
                "3:",
                "cld",
                "pop rbp",
                "pop rbx",
                resume_at = const mem::offset_of!(Registers, resume_at),
                resume_stack = const mem::offset_of!(Registers, resume_stack),
                in("rcx") self.code.add(entry.0),
                in("rdi") registers,
                in("rsi") (&raw mut *operand),
                lateout("rax") faulted,
                out("r12") _, out("r13") _, out("r14") _, out("r15") _,
                clobber_abi("sysv64"),
            );
        }
        RUNNING.store(ptr::null_mut(), Ordering::Relaxed);
        if faulted == 0 {
            return Ok(());
        }
        let own_mxcsr: u32 = 0x1f80;
        // SAFETY: gives our own arithmetic back; only status that nobody looks at is lost.
        unsafe { asm!("fninit", "ldmxcsr [{}]", in(reg) &raw const own_mxcsr, options(nostack)) };
        Err(Fault)
    }
}

impl Drop for Processor {
    fn drop(&mut self) {
        // SAFETY: mapped by us; entries cannot be executed without `self`.
        unsafe { libc::munmap(self.code.cast(), CODE_BYTES) };
    }
}

/// No room for more code: [`Processor::clear`], and prepare again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Continues behind the instruction that raised an exception; one of our own ends the process.
extern "C" fn on_fault(signal: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let registers = RUNNING.load(Ordering::Relaxed);
    // SAFETY: the kernel passes a live context; registers are live while an instruction is being executed.
    unsafe {
        if registers.is_null() {
            libc::signal(signal, libc::SIG_DFL);
            return; // It faults again, and ends the process as if nobody had been here.
        }
        let context = context.cast::<libc::ucontext_t>();
        (*context).uc_mcontext.gregs[libc::REG_RSP as usize] = (*registers).resume_stack as i64;
        (*context).uc_mcontext.gregs[libc::REG_RIP as usize] = (*registers).resume_at as i64;
    }
}

#[cfg(test)]
mod tests;
