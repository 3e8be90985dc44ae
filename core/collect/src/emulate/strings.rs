//! Emulates string instructions. All repetitions of an instruction are one step.

use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use super::{End, RCX, RDI, RSI, Thread, memory::Fetch};
use crate::x86::Flags;

/// The direction flag: string instructions go to lower addresses.
const DIRECTION: u64 = 1 << 10;
/// Number of repetitions after which emulation ends.
const REPETITIONS_MAX: u32 = 256 << 10;

/// The work of one repetition.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    Move,
    Store,
    Load,
    Compare,
    Scan,
}

impl<F: Fetch> Thread<F> {
    pub(super) fn string(&mut self, instruction: &Instruction) -> Result<(), End> {
        let (work, bytes) = work(instruction).ok_or(End::Unknown)?;
        let is_repeated = instruction.has_rep_prefix() || instruction.has_repne_prefix();
        let ends_at_zero = instruction.has_repne_prefix();
        let tests = matches!(work, Work::Compare | Work::Scan);
        for _ in 0..REPETITIONS_MAX {
            if is_repeated && self.registers.general[RCX] == 0 {
                return Ok(());
            }
            self.element(work, bytes)?;
            if !is_repeated {
                return Ok(());
            }
            self.registers.general[RCX] -= 1;
            if tests && (Flags(self.registers.flags).has(Flags::ZERO)) == ends_at_zero {
                return Ok(());
            }
        }
        Err(End::Repeating)
    }

    fn element(&mut self, work: Work, bytes: usize) -> Result<(), End> {
        let is_down = self.registers.flags & DIRECTION != 0;
        let step = if is_down { (bytes as u64).wrapping_neg() } else { bytes as u64 };
        let (source, target) = (self.registers.general[RSI], self.registers.general[RDI]);
        let rax = self.registers.general[0];
        let mut word = [0; 8];
        match work {
            Work::Move | Work::Load | Work::Compare => self.memory.read(source, &mut word[..bytes])?,
            Work::Store | Work::Scan => word[..bytes].copy_from_slice(&rax.to_le_bytes()[..bytes]),
        }
        match work {
            Work::Move | Work::Store => self.memory.write(target, &word[..bytes])?,
            Work::Load => self.registers.general[0] = merged(rax, u64::from_le_bytes(word), bytes),
            Work::Compare | Work::Scan => {
                let mut other = [0; 8];
                self.memory.read(target, &mut other[..bytes])?;
                let (a, b) = (u64::from_le_bytes(word), u64::from_le_bytes(other));
                let flags = Flags::from_subtraction(a, b, 8 * bytes as u32);
                self.registers.flags = self.registers.flags & !Flags::ARITHMETIC | flags.0;
            }
        }
        let moves = |registers: &[usize], general: &mut [u64; 16]| {
            registers.iter().for_each(|&r| general[r] = general[r].wrapping_add(step));
        };
        match work {
            Work::Move | Work::Compare => moves(&[RSI, RDI], &mut self.registers.general),
            Work::Load => moves(&[RSI], &mut self.registers.general),
            Work::Store | Work::Scan => moves(&[RDI], &mut self.registers.general),
        }
        Ok(())
    }
}

/// Returns the work and the size of an element in bytes; `None` for 32-bit addresses, other segments, and input or output.
fn work(instruction: &Instruction) -> Option<(Work, usize)> {
    use Mnemonic::*;
    let is_far =
        |i| !matches!(instruction.op_kind(i), OpKind::Register | OpKind::MemorySegRSI | OpKind::MemoryESRDI);
    if (0..instruction.op_count()).any(is_far) || instruction.segment_prefix() != Register::None {
        return None;
    }
    Some(match instruction.mnemonic() {
        Movsb => (Work::Move, 1),
        Movsw => (Work::Move, 2),
        Movsd => (Work::Move, 4),
        Movsq => (Work::Move, 8),
        Stosb => (Work::Store, 1),
        Stosw => (Work::Store, 2),
        Stosd => (Work::Store, 4),
        Stosq => (Work::Store, 8),
        Lodsb => (Work::Load, 1),
        Lodsw => (Work::Load, 2),
        Lodsd => (Work::Load, 4),
        Lodsq => (Work::Load, 8),
        Cmpsb => (Work::Compare, 1),
        Cmpsw => (Work::Compare, 2),
        Cmpsd => (Work::Compare, 4),
        Cmpsq => (Work::Compare, 8),
        Scasb => (Work::Scan, 1),
        Scasw => (Work::Scan, 2),
        Scasd => (Work::Scan, 4),
        Scasq => (Work::Scan, 8),
        _ => return None,
    })
}

/// Returns rax after a load into its low bytes.
fn merged(rax: u64, value: u64, bytes: usize) -> u64 {
    match bytes {
        8 | 4 => value,
        _ => rax & (u64::MAX << (8 * bytes)) | value,
    }
}
