//! Executes single instructions of another program, on the other program's registers.
//!
//! Enters: a decoded instruction without control flow, registers, and the bytes of its memory operand. Leaves: the registers
//! and bytes afterwards. Never here: addresses of the other program. All memory that an instruction reads or writes is
//! redirected to [`Operand`], so it cannot reach ours. Blocks of many instructions run in [`area`]. x86-64 only.
//!
//! The processor itself is the interpreter: each instruction is encoded again between loads and stores of the registers that
//! it names ([`encode`]). So everything up to AVX-512 works exactly as in the other program, and this code need not know
//! what instructions do. An instruction that faults (a division by zero) returns a [`Fault`].

pub mod area;
pub mod assemble;
pub mod encode;
pub mod window;

use std::{arch::asm, cell::Cell, io, mem, ptr};

/// Size of the memory for code: enough for some ten thousand instructions.
const CODE_BYTES: usize = 2 << 20;

/// The registers of a thread. The code that [`encode`] generates depends on the offsets of the fields.
#[repr(C, align(64))]
#[derive(Clone)]
pub struct Registers {
    /// General registers in the order of their numbers: rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15.
    pub general: [u64; 16],
    /// Arithmetic flags and the direction flag.
    pub flags: u64,
    /// Control and status of vector arithmetic.
    pub mxcsr: u32,
    own_mxcsr: u32,
    resume_stack: u64,
    resume_at: u64,
    /// Mask registers k0 to k7.
    pub masks: [u64; 8],
    unused: [u64; 4],
    /// Vector registers zmm0 to zmm31.
    pub vectors: [[u8; 64]; 32],
    /// State as written by `fxsave`. Only the x87 part is used.
    pub x87: [u8; 512],
}

impl Registers {
    /// Returns registers of zeros, with vector and x87 arithmetic as in a new process.
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

/// The place where an instruction's code begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry(usize);

/// Executable memory for code.
pub struct Processor {
    code: *mut u8,
    used: usize,
    vectors: encode::Vectors,
}

// SAFETY: the mapping belongs to this value alone, whichever thread has it.
unsafe impl Send for Processor {}

thread_local! {
    /// The registers of the instruction that this thread executes. [`on_fault`] needs them.
    static RUNNING: Cell<*mut Registers> = const { Cell::new(ptr::null_mut()) };
}

impl Processor {
    /// Maps the memory. Returns an error where memory may not be both writable and executable.
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

    /// Installs the handler of this process's exceptions. Only for a process that does nothing else.
    pub fn take_exceptions(&self) {
        // SAFETY: the handler touches a live `Registers` and its own context alone; masks are plain data.
        unsafe {
            let mut action: libc::sigaction = mem::zeroed();
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_fault;
            action.sa_sigaction = handler as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_ONSTACK;
            let mut faults: libc::sigset_t = mem::zeroed();
            for signal in [libc::SIGFPE, libc::SIGILL, libc::SIGSEGV, libc::SIGBUS] {
                libc::sigaction(signal, &raw const action, ptr::null_mut());
                libc::sigaddset(&raw mut faults, signal);
            }
            libc::sigprocmask(libc::SIG_UNBLOCK, &raw const faults, ptr::null_mut());
        }
    }

    /// Generates the code of an instruction. Returns `None` if the instruction must not or cannot be executed outside its
    /// program, and [`Full`] if no more code fits.
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

    /// Discards all generated code. Entries from before must not be used any more.
    pub fn clear(&mut self) {
        self.used = 0;
    }

    /// Executes a prepared instruction.
    pub fn execute(
        &self,
        entry: Entry,
        registers: &mut Registers,
        operand: &mut Operand,
    ) -> Result<(), Fault> {
        assert!(entry.0 < self.used, "prepared since the last clear");
        let registers = &raw mut *registers;
        RUNNING.set(registers);
        let faulted: u64;
        // SAFETY: the code at `entry` was made by `encode`: it reads and writes `registers` and `operand` alone, keeps the
        // stack, and returns. A fault continues at label 2 with the stack as it was saved there. Everything that it may
        // change is declared, except rbx and rbp, which are saved here.
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
        RUNNING.set(ptr::null_mut());
        if faulted == 0 {
            return Ok(());
        }
        let own_mxcsr: u32 = 0x1f80;
        // SAFETY: restores our own arithmetic state; only status flags that nothing reads are lost.
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

/// There is no room for more code: call [`Processor::clear`], and prepare again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Continues after the instruction that raised an exception. An exception in our own code ends the process.
extern "C" fn on_fault(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let registers = RUNNING.get();
    // SAFETY: the kernel passes live structs; registers are live while an instruction is being executed.
    unsafe {
        if area::resume(info, context.cast()) {
            return;
        }
        if registers.is_null() {
            libc::signal(signal, libc::SIG_DFL);
            return; // It faults again, and ends the process as it would without this handler.
        }
        let context = context.cast::<libc::ucontext_t>();
        (*context).uc_mcontext.gregs[libc::REG_RSP as usize] = (*registers).resume_stack as i64;
        (*context).uc_mcontext.gregs[libc::REG_RIP as usize] = (*registers).resume_at as i64;
    }
}

#[cfg(test)]
mod tests;
