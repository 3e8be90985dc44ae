//! Emulates string instructions. All repetitions of an instruction are one step.

use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use super::{
    End, RCX, RDI, RSI, Thread,
    memory::{Fetch, PAGE_BYTES},
};
use crate::x86::Flags;

/// The direction flag: string instructions go to lower addresses.
const DIRECTION: u64 = 1 << 10;
/// Number of repetitions after which emulation ends, while the thread stands still, and while it runs.
pub const REPETITIONS_MAX: u64 = 256 << 10;
pub const REPETITIONS_MAX_BESIDE: u64 = 64 << 20;

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
        let mut repetitions = 0;
        while repetitions < self.repetitions_max {
            if is_repeated && self.registers.general[RCX] == 0 {
                return Ok(());
            }
            let elements = if is_repeated { self.elements(work, bytes) } else { 1 };
            if elements > 1 {
                self.several(work, bytes, elements)?
            } else {
                self.element(work, bytes)?
            }
            if !is_repeated {
                return Ok(());
            }
            self.registers.general[RCX] -= elements;
            repetitions += elements;
            if tests && (Flags(self.registers.flags).has(Flags::ZERO)) == ends_at_zero {
                return Ok(());
            }
        }
        Err(End::Repeating)
    }

    /// Returns the number of elements that can be moved or stored at once: upward, on one page, and if none of them is read after it
    /// was written. At least one.
    fn elements(&self, work: Work, bytes: usize) -> u64 {
        let [count, source, target] = [RCX, RSI, RDI].map(|number| self.registers.general[number]);
        let room = |address: u64| ((PAGE_BYTES - address as usize % PAGE_BYTES) / bytes) as u64;
        let possible = match work {
            _ if self.registers.flags & DIRECTION != 0 => 1,
            Work::Store => count.min(room(target)),
            Work::Move => {
                let possible = count.min(room(target)).min(room(source));
                if target.wrapping_sub(source) < possible * bytes as u64 { 1 } else { possible }
            }
            Work::Load | Work::Compare | Work::Scan => 1,
        };
        possible.max(1)
    }

    /// Moves or stores as many elements as [`Thread::elements`] permits.
    fn several(&mut self, work: Work, bytes: usize, elements: u64) -> Result<(), End> {
        let mut buffer = [0; PAGE_BYTES];
        let all = &mut buffer[..elements as usize * bytes];
        let [rax, source, target] = [0, RSI, RDI].map(|number| self.registers.general[number]);
        if work == Work::Move {
            self.memory.read(source, all)?;
            self.registers.general[RSI] = source.wrapping_add(all.len() as u64);
        } else {
            all.chunks_exact_mut(bytes)
                .for_each(|element| element.copy_from_slice(&rax.to_le_bytes()[..bytes]));
        }
        self.memory.write(target, all)?;
        self.registers.general[RDI] = target.wrapping_add(all.len() as u64);
        Ok(())
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
