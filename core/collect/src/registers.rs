//! The user-mode registers of a sample.
//!
//! Enters: register values as the kernel, the module or the BPF program report them. Leaves: the same by name or number. Never
//! here: what code does with them.

use dwell_profile::VirtualAddress;
use dwell_unwind::Frame;

/// Number of registers in a sample: on x86-64 the general ones, pc and flags; on AArch64 x0 to x30, sp and pc.
pub const REGISTER_COUNT: usize = if cfg!(target_arch = "aarch64") { 33 } else { 18 };
/// Number of registers that our programs in the kernel report beside the pc.
pub const REGISTERS_REPORTED: usize = REGISTER_COUNT - 1;
/// Position of the user's pc among a sample's registers.
pub(crate) const PC: usize = if cfg!(target_arch = "aarch64") { 32 } else { 8 };
/// Position of the flags on x86-64.
pub(crate) const FLAGS: usize = 9;

/// A sample's registers, in the order of `sys::event::REGISTER_MASK`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registers(pub [u64; REGISTER_COUNT]);

impl Registers {
    /// Builds the registers of a sample in user mode at `pc` from the others in their order, as the module and the BPF program
    /// report them.
    pub fn of_user(pc: VirtualAddress, others: &[u64]) -> Self {
        let mut values = [0; REGISTER_COUNT];
        let (before, after) = others.split_at(PC.min(others.len()));
        let all = before.iter().chain(std::iter::once(&pc.0)).chain(after);
        values.iter_mut().zip(all).for_each(|(to, from)| *to = *from);
        Registers(values)
    }

    /// Returns the general register of x86-64 with this hardware number (see [`crate::x86`]).
    pub fn general(&self, number: u8) -> u64 {
        self.0[position(number)]
    }

    /// Returns the program counter.
    pub fn pc(&self) -> VirtualAddress {
        VirtualAddress(self.0[PC])
    }

    /// Sets a general register of x86-64.
    #[cfg(test)]
    pub fn set_general(&mut self, number: u8, value: u64) {
        self.0[position(number)] = value;
    }

    /// Returns the registers by which a stack is unwound on x86-64: pc, stack pointer and rbp.
    pub fn frame(&self) -> Option<Frame> {
        const RBP: usize = 6;
        const RSP: usize = 7;
        let sp = VirtualAddress(self.0[RSP]);
        cfg!(target_arch = "x86_64").then(|| Frame { pc: self.pc(), sp, rbp: self.0[RBP] })
    }

    /// Returns the address of the user's instruction that entered the kernel, for a sample there: it faulted, made a system call
    /// or was interrupted. On x86-64 `syscall` leaves the address of its successor in rcx and the flags in r11, by which it is
    /// recognized; on AArch64 the result for a system call is the address of its successor.
    pub fn entered_from(&self) -> VirtualAddress {
        const RCX: usize = 2;
        const R11: usize = 13;
        const SYSCALL_BYTES: u64 = 2;
        let (pc, values) = (self.pc(), &self.0);
        let is_call = cfg!(target_arch = "x86_64") && values[RCX] == pc.0 && values[R11] == values[FLAGS];
        if is_call { pc.back(SYSCALL_BYTES) } else { pc }
    }
}

/// Returns the position of an x86-64 register in a sample, by its hardware number.
pub(crate) fn position(number: u8) -> usize {
    const POSITIONS: [usize; 16] = [0, 2, 3, 1, 7, 6, 4, 5, 10, 11, 12, 13, 14, 15, 16, 17];
    POSITIONS[usize::from(number & 15)]
}
