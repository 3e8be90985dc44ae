//! The memory that compiled blocks use: registers, tables, and the code itself.
//!
//! Enters: code of blocks, pages, places to go. Leaves: why the code was left. Never here: what an instruction does
//! ([`super::translate`]), which block is next ([`crate::emulate`]).
//!
//! Everything is at fixed addresses below 2 GiB, so that code names it without a register. While blocks run, all registers of
//! the processor, the stack pointer included, are those of the other program. So exceptions need a stack of their own.

use std::{cell::Cell, io, mem::offset_of, ptr};

use iced_x86::{Code, Instruction, Register};

use super::{
    Registers,
    assemble::{Assembler, place},
    encode::Vectors,
};

/// Size of the memory for code.
const CODE_BYTES: usize = 8 << 20;
/// Number of entries of a table. An entry is found by the low 16 bits of a number.
const ENTRIES: usize = 1 << 16;
/// Most indirect jumps before the code is left.
const JUMPS_MAX: usize = 4096;
/// Most edges that can be counted.
pub const EDGES_MAX: usize = 1 << 18;
/// Size of the stack for exceptions. The kernel stores all registers on it, 11 KB on a machine with AMX.
const EXCEPTION_STACK_BYTES: usize = 64 << 10;
/// Size of the window, and of what an operand at its end reaches.
const REACH: u64 = (1 << 32) + 64;
/// Size of a jump.
pub const JUMP_BYTES: usize = 5;
/// Bytes of the instruction before the one that writes to the list of jumps.
const LOAD_BYTES: u64 = 8;
/// The number of an exit that stands for "the list of jumps is full".
const FULL: u32 = u32::MAX;
/// The number of an exit that stands for an exception.
const FAULT: u32 = u32::MAX - 1;
/// The number of an exit that stands for an access to a page of the window that is not permitted.
const ACCESS: u32 = u32::MAX - 2;

/// What compiled code reads and writes.
#[repr(C, align(4096))]
struct Frame {
    registers: Registers,
    segments: [u64; 2],
    saved: [u64; 3],
    pc: u64,
    target: u64,
    jumps: u64,
    turns: u32,
    own_stack: u64,
    exit: u32,
    /// The address of the window.
    window: u64,
    /// Where an exception was raised, and for which address.
    left_at: u64,
    address: u64,
    /// Execution continues here after it: if the list of jumps is full, if it was an access to the window, and otherwise.
    on_full: u64,
    on_access: u64,
    on_fault: u64,
}

/// The tables. An empty entry holds a number that no address matches whose entry it is.
#[repr(C, align(4096))]
struct Tables {
    /// Negated addresses of blocks, and where their code is.
    block: [u64; ENTRIES],
    code: [u64; ENTRIES],
}

#[repr(C, align(4096))]
struct Layout {
    frame: Frame,
    tables: Tables,
    /// Indirect jumps: the target, and the number of the block.
    jumps: [[u64; 2]; JUMPS_MAX],
    /// A write to it raises an exception.
    end: [u8; 4096],
    /// These count how often each edge was taken.
    edges: [u32; EDGES_MAX],
    code: [u8; CODE_BYTES],
}

/// Returns the negated address of a block in another entry.
fn no_block(entry: u16) -> u64 {
    u64::from(entry == 0)
}

thread_local! {
    /// The memory of the blocks that this thread is running.
    static RUNNING: Cell<*mut Layout> = const { Cell::new(ptr::null_mut()) };
}

/// Why blocks were left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// By an exit of a block, with the exit's number.
    By(u32),
    /// The list of jumps is full. The code goes on at this address.
    Full(u64),
    /// The code at `at` would access the window in a way that is not permitted, at this distance
    /// from its beginning. It has changed nothing.
    Access { at: u64, distance: u64 },
    /// The code at this address raised an exception.
    Fault(u64),
}

/// The memory of compiled blocks.
pub struct Area {
    layout: *mut Layout,
    used: usize,
    /// How much of that is no block.
    kept: usize,
    stack: Vec<u8>,
    /// Addresses of code that begins and ends a run of blocks.
    enter: u64,
    leave: u64,
    /// Entries of the table of blocks that are in use.
    blocks: Vec<u16>,
}

// SAFETY: the mapping belongs to this value alone, whichever thread has it.
unsafe impl Send for Area {}

impl Area {
    /// Maps the memory. Returns an error where that is not possible.
    pub fn new() -> io::Result<Area> {
        let protection = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_32BIT | libc::MAP_NORESERVE;
        let size = size_of::<Layout>();
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let mapped = unsafe { libc::mmap(ptr::null_mut(), size, protection, flags, -1, 0) };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let layout = mapped.cast::<Layout>();
        let mut area = Area {
            layout,
            used: 0,
            kept: 0,
            stack: vec![0; EXCEPTION_STACK_BYTES],
            enter: 0,
            leave: 0,
            blocks: Vec::new(),
        };
        // SAFETY: within the mapping; nothing else uses this page.
        if unsafe { libc::mprotect((&raw mut (*layout).end).cast(), 4096, libc::PROT_NONE) } != 0 {
            return Err(io::Error::last_os_error());
        }
        area.empty_block(0);
        area.make_ends(Vectors::of_this_machine()).ok_or(io::ErrorKind::Unsupported)?;
        area.touch();
        Ok(area)
    }

    /// Lets the kernel map what will soon be used. Page by page, on first use, that would cost several times as much, while a thread
    /// waits. Kernels before Linux 5.14 do not do that, and nothing is lost then.
    fn touch(&self) {
        let first = offset_of!(Layout, end);
        let code = (self.layout as usize + offset_of!(Layout, code), CODE_BYTES / 8);
        for (start, length) in [(self.layout as usize, first), code] {
            // SAFETY: within the mapping; it changes no byte.
            unsafe { libc::madvise(ptr::without_provenance_mut(start), length, libc::MADV_POPULATE_WRITE) };
        }
    }

    /// Returns the registers of the other program, while none of its blocks runs.
    pub fn registers(&mut self) -> &mut Registers {
        // SAFETY: within the mapping, initialized with zeros, for which registers are valid; `&mut self` excludes others.
        unsafe { &mut (*self.layout).frame.registers }
    }

    /// Sets the base addresses of fs and gs.
    pub fn set_segments(&mut self, fs: u64, gs: u64) {
        // SAFETY: within the mapping; `&mut self` excludes others.
        unsafe { (*self.layout).frame.segments = [fs, gs] }
    }

    /// Lets code that the calling thread runs access the window at `base`. Nothing else in this process uses segment gs.
    pub fn set_window(&mut self, base: u64) -> io::Result<()> {
        const ARCH_SET_GS: libc::c_int = 0x1001;
        // SAFETY: within the mapping; `&mut self` excludes others. The call changes a register of this thread that only compiled
        // code uses.
        unsafe {
            (*self.layout).frame.window = base;
            if libc::syscall(libc::SYS_arch_prctl, ARCH_SET_GS, base) != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    }

    /// Returns where an indirect jump goes after it was left.
    pub fn pc(&self) -> u64 {
        // SAFETY: within the mapping.
        unsafe { (*self.layout).frame.pc }
    }

    /// Returns the address for the next code.
    pub fn next(&self) -> u64 {
        // SAFETY: within the mapping, or its end.
        unsafe { (&raw const (*self.layout).code).cast::<u8>().add(self.used) as u64 }
    }

    /// Returns the address of the code that every exit jumps to.
    pub fn leave(&self) -> u64 {
        self.leave
    }

    /// Appends code that was made for [`Area::next`]. Returns its address, or `None` if there is no room.
    pub fn append(&mut self, code: &[u8]) -> Option<u64> {
        let address = self.next();
        if self.used + code.len() > CODE_BYTES {
            return None;
        }
        // SAFETY: within the mapping, as was just checked; no code runs meanwhile.
        unsafe { ptr::copy_nonoverlapping(code.as_ptr(), address as *mut u8, code.len()) };
        self.used += code.len();
        Some(address)
    }

    /// Lets a branch whose distance is at `patch` lead to `target`. Both are in this memory.
    pub fn patch(&mut self, patch: u64, target: u64) {
        let start = self.next() - self.used as u64;
        assert!(patch >= start && patch + 4 <= self.next(), "a branch of the code");
        let distance = target.wrapping_sub(patch + 4) as u32;
        // SAFETY: within the code, as was just checked; no code runs meanwhile.
        unsafe { (patch as *mut u32).write_unaligned(distance) };
    }

    /// Lets the code at `from` jump to `to`, and returns what was there. Both are in this memory.
    pub fn divert(&mut self, from: u64, to: u64) -> [u8; JUMP_BYTES] {
        let before = self.replace(from, [0xe9, 0, 0, 0, 0]);
        self.patch(from + 1, to);
        before
    }

    /// Replaces code, and returns what was there.
    pub fn replace(&mut self, at: u64, code: [u8; JUMP_BYTES]) -> [u8; JUMP_BYTES] {
        let start = self.next() - self.used as u64;
        assert!(at >= start && at + JUMP_BYTES as u64 <= self.next(), "code");
        // SAFETY: within the code, as was just checked; no code runs meanwhile.
        unsafe { (at as *mut [u8; JUMP_BYTES]).replace(code) }
    }

    /// Lets indirect jumps to the address `pc` find the code of its block.
    pub fn add_block(&mut self, pc: u64, code: u64) {
        let entry = pc as u16;
        // SAFETY: within the mapping; an index of 16 bits is within the table.
        unsafe {
            let tables = &mut (*self.layout).tables;
            if tables.block[usize::from(entry)] == no_block(entry) {
                self.blocks.push(entry);
            }
            tables.block[usize::from(entry)] = pc.wrapping_neg();
            tables.code[usize::from(entry)] = code;
        }
    }

    fn empty_block(&mut self, entry: u16) {
        // SAFETY: as above.
        unsafe { (*self.layout).tables.block[usize::from(entry)] = no_block(entry) };
    }

    /// Discards all code, except what this value needs itself.
    pub fn forget_blocks(&mut self) {
        for entry in std::mem::take(&mut self.blocks) {
            self.empty_block(entry);
        }
        self.used = self.kept;
    }

    /// Runs from the code at `target` on until an exit, an exception, or until `turns` loops or indirect jumps were made. Adds the
    /// indirect jumps to `jumps`: the target, and the number of the block.
    pub fn run(&mut self, target: u64, turns: usize, jumps: &mut Vec<[u64; 2]>) -> Left {
        let layout = self.layout;
        // SAFETY: `enter` and the blocks were made by this module and by `translate` from one frame's layout. They keep what the
        // calling convention wants kept, and access this mapping and the window alone. Exceptions are handled on a
        // stack of their own.
        unsafe {
            let list = (&raw mut (*layout).jumps).cast::<[u64; 2]>();
            let begin = list.add(JUMPS_MAX - turns.clamp(1, JUMPS_MAX));
            let frame = &raw mut (*layout).frame;
            (*frame).jumps = begin as u64;
            (*frame).turns = turns.max(1) as u32;
            (*frame).target = target;
            RUNNING.set(layout);
            let enter: extern "sysv64" fn() = std::mem::transmute(self.enter);
            enter();
            RUNNING.set(ptr::null_mut());
            let count = ((*frame).jumps - begin as u64) as usize / size_of::<[u64; 2]>();
            jumps.extend_from_slice(std::slice::from_raw_parts(begin, count));
            match (*frame).exit {
                FULL => Left::Full((*frame).left_at - LOAD_BYTES),
                FAULT => Left::Fault((*frame).left_at),
                ACCESS => Left::Access {
                    at: (*frame).left_at,
                    distance: (*frame).address.wrapping_sub((*frame).window),
                },
                exit => Left::By(exit),
            }
        }
    }

    /// Returns the number of loops that the last run had left.
    pub fn turns_left(&self) -> usize {
        // SAFETY: within the mapping.
        unsafe { (*self.layout).frame.turns as usize }
    }

    /// Returns how often each edge was taken.
    pub fn edges(&mut self) -> &mut [u32; EDGES_MAX] {
        // SAFETY: within the mapping, initialized with zeros; `&mut self` excludes others.
        unsafe { &mut (*self.layout).edges }
    }

    /// Gives the calling thread this value's stack for exceptions, until what is returned is dropped.
    pub fn take_stack(&mut self) -> ExceptionStack {
        /// Also a stack pointer of the program that lies in it does not mean that it is in use (Linux 4.7).
        const SS_AUTODISARM: libc::c_int = i32::MIN;
        let ours = libc::stack_t {
            ss_sp: self.stack.as_mut_ptr().cast(),
            ss_flags: SS_AUTODISARM,
            ss_size: self.stack.len(),
        };
        // SAFETY: the memory lives as long as `self`, and nothing else uses it; the kernel writes the live struct.
        unsafe {
            let mut before = std::mem::zeroed();
            libc::sigaltstack(&raw const ours, &raw mut before);
            ExceptionStack(before)
        }
    }

    /// Makes the code around blocks. Returns `None` if it cannot be made.
    fn make_ends(&mut self, vectors: Vectors) -> Option<()> {
        let places = self.places();
        self.enter = self.next();
        let mut code = Assembler::new(self.enter);
        let kept = [Register::RBX, Register::RBP, Register::R12, Register::R13, Register::R14, Register::R15];
        kept.iter().for_each(|r| code.built(Instruction::with1(Code::Push_r64, *r)));
        code.store(place(places.own_stack), Register::RSP);
        code.built(Instruction::with1(
            Code::Ldmxcsr_m32,
            place(places.registers + offset_of!(Registers, mxcsr) as u64),
        ));
        let vector = |n: usize| place(places.registers + (offset_of!(Registers, vectors) + 64 * n) as u64);
        let mask = |n: usize| place(places.registers + (offset_of!(Registers, masks) + 8 * n) as u64);
        let general = |n: usize| place(places.registers + (offset_of!(Registers, general) + 8 * n) as u64);
        let flags = place(places.registers + offset_of!(Registers, flags) as u64);
        for number in 0..vectors.count() {
            let (load, _, register) = vectors.moves(number);
            code.built(Instruction::with2(load, register, vector(number)));
        }
        let masks = if vectors == Vectors::Avx512 { 8 } else { 0 };
        for number in 0..masks {
            code.built(Instruction::with2(
                Code::VEX_Kmovq_kr_km64,
                Register::K0 + number as u32,
                mask(number),
            ));
        }
        code.built(Instruction::with1(Code::Push_rm64, flags));
        code.one(Code::Popfq);
        (0..16).for_each(|n| code.load(Register::RAX + n as u32, general(n)));
        code.built(Instruction::with1(Code::Jmp_rm64, place(places.target)));

        self.leave = code.at;
        (0..16).for_each(|n| code.store(general(n), Register::RAX + n as u32));
        code.load(Register::RSP, place(places.own_stack));
        code.one(Code::Pushfq);
        code.built(Instruction::with1(Code::Pop_rm64, flags));
        for number in 0..vectors.count() {
            let (_, store, register) = vectors.moves(number);
            code.built(Instruction::with2(store, vector(number), register));
        }
        for number in 0..masks {
            code.built(Instruction::with2(
                Code::VEX_Kmovq_m64_kr,
                mask(number),
                Register::K0 + number as u32,
            ));
        }
        code.built(Instruction::with1(
            Code::Stmxcsr_m32,
            place(places.registers + offset_of!(Registers, mxcsr) as u64),
        ));
        let end = |code: &mut Assembler| {
            code.one(Code::Cld);
            code.built(Instruction::with1(
                Code::Ldmxcsr_m32,
                place(places.registers + offset_of!(Registers, own_mxcsr) as u64),
            ));
            if vectors != Vectors::Sse {
                code.one(Code::VEX_Vzeroupper);
            }
            kept.iter().rev().for_each(|r| code.built(Instruction::with1(Code::Pop_r64, *r)));
            code.one(Code::Retnq);
        };
        end(&mut code);

        let on_full = code.at;
        code.store_number(place(places.exit), FULL);
        code.branch(Code::Jmp_rel32_64, self.leave);

        let on_access = code.at;
        code.store_number(place(places.exit), ACCESS);
        code.branch(Code::Jmp_rel32_64, self.leave);

        let on_fault = code.at;
        code.load(Register::RSP, place(places.own_stack));
        code.store_number(place(places.exit), FAULT);
        end(&mut code);

        // SAFETY: within the mapping; `&mut self` excludes others.
        unsafe {
            (*self.layout).frame.on_full = on_full;
            (*self.layout).frame.on_access = on_access;
            (*self.layout).frame.on_fault = on_fault;
        }
        let is_sound = code.is_sound;
        self.append(&code.take())?;
        self.kept = self.used;
        is_sound.then_some(())
    }

    /// Returns the addresses that code names.
    pub fn places(&self) -> Places {
        let at = |offset: usize| self.layout as u64 + offset as u64;
        let frame = |offset: usize| at(offset_of!(Layout, frame) + offset);
        let table = |offset: usize| at(offset_of!(Layout, tables) + offset);
        Places {
            registers: frame(offset_of!(Frame, registers)),
            segments: [0, 8].map(|offset| frame(offset_of!(Frame, segments) + offset)),
            saved: [0, 8, 16].map(|offset| frame(offset_of!(Frame, saved) + offset)),
            pc: frame(offset_of!(Frame, pc)),
            target: frame(offset_of!(Frame, target)),
            jumps: frame(offset_of!(Frame, jumps)),
            turns: frame(offset_of!(Frame, turns)),
            edges: at(offset_of!(Layout, edges)),
            own_stack: frame(offset_of!(Frame, own_stack)),
            exit: frame(offset_of!(Frame, exit)),
            block: table(offset_of!(Tables, block)),
            code: table(offset_of!(Tables, code)),
        }
    }
}

/// Addresses of what compiled code uses.
#[derive(Clone, Copy)]
pub struct Places {
    registers: u64,
    /// The bases of fs and gs.
    pub segments: [u64; 2],
    /// Three registers while they are used for an address.
    pub saved: [u64; 3],
    /// The target of an indirect jump.
    pub pc: u64,
    /// The code to go to.
    pub target: u64,
    /// The next indirect jump is noted here.
    pub jumps: u64,
    /// Number of loops before the code is left.
    pub turns: u64,
    /// The number of times that each edge was taken, in 4 bytes.
    pub edges: u64,
    own_stack: u64,
    /// The number of the exit that was taken.
    pub exit: u64,
    pub block: u64,
    pub code: u64,
}

/// Gives the thread back the stack that it had for exceptions.
pub struct ExceptionStack(libc::stack_t);

impl Drop for ExceptionStack {
    fn drop(&mut self) {
        // SAFETY: as the kernel returned it.
        unsafe { libc::sigaltstack(&raw const self.0, ptr::null_mut()) };
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: mapped by us; code cannot run without `self`.
        unsafe { libc::munmap(self.layout.cast(), size_of::<Layout>()) };
    }
}

/// Continues after an exception in compiled code of this thread. Returns whether it was one.
///
/// # Safety
/// `info` and `context` must be live and what the kernel passed to the handler.
pub unsafe fn resume(info: *const libc::siginfo_t, context: *mut libc::ucontext_t) -> bool {
    let layout = RUNNING.get();
    if layout.is_null() {
        return false;
    }
    // SAFETY: the layout is live while its code runs.
    unsafe {
        let frame = &raw mut (*layout).frame;
        let rip = &raw mut (*context).uc_mcontext.gregs[libc::REG_RIP as usize];
        let address = (*info).si_addr() as u64;
        ((*frame).left_at, (*frame).address) = (*rip as u64, address);
        // Only the list of jumps leads to that page. An instruction of the program may fault just when the list is full.
        let is_full = address == (&raw const (*layout).end) as u64;
        let is_access = (*info).si_signo == libc::SIGSEGV && address.wrapping_sub((*frame).window) < REACH;
        *rip = match () {
            () if is_full => (*frame).on_full,
            () if is_access => (*frame).on_access,
            () => (*frame).on_fault,
        } as i64;
    }
    true
}
