//! Walks a copy of a stack from the innermost frame outwards.
//!
//! Input: three registers, a copy of the stack from the stack pointer on, and for each address how its caller is found.
//! Output: the addresses of frames, innermost first, and why there are no more. Cost: linear in the frames.
//!
//! The caller of a frame is where its return address leads. The frame of a caller is named by the last byte of its call, one
//! byte before the return address: the call may be the last instruction of its function, so that the return address
//! belongs to other code (framehop, `code_address.rs`, explains this at length). Where a signal interrupted code, and at
//! the sample itself, the address is the instruction's own.

use dwell_image::{Caller, CallerRbp};
use dwell_profile::{StackEnd, VirtualAddress};

/// Largest number of frames of a stack.
pub const FRAMES_MAX: usize = 1024;

/// The registers by which a stack is unwound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The instruction, or the return address.
    pub pc: VirtualAddress,
    /// The stack pointer.
    pub sp: VirtualAddress,
    /// The register rbp, which may hold any number.
    pub rbp: u64,
}

/// A copy of a stack.
#[derive(Clone, Copy, Debug)]
pub struct StackCopy<'a> {
    /// The address of the first byte: the stack pointer.
    pub start: VirtualAddress,
    /// The bytes.
    pub bytes: &'a [u8],
    /// Whether the stack may go on behind the bytes, because no more were asked for.
    pub is_cut: bool,
}

/// What is known of the code at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The caller is found by this rule.
    Rule(Caller, CallerRbp),
    /// There is no rule. The code may keep a frame pointer; otherwise the stack ends for this reason.
    WithoutRule(StackEnd),
    /// The address is in no code.
    None,
}

/// Offsets in the `ucontext` that the kernel pushes for a signal (arch/x86/include/uapi/asm/sigcontext.h).
const SIGNAL_RBP: u64 = 120;
const SIGNAL_RSP: u64 = 160;
const SIGNAL_RIP: u64 = 168;

/// The code of a process.
pub trait CodeOfProcess {
    /// Returns what is known of the code at an address.
    fn code(&mut self, address: VirtualAddress) -> Code;

    /// Returns whether the code before a return address may be a call.
    fn is_call_before(&mut self, address: VirtualAddress) -> bool;
}

/// Continues a stack that a walk left incomplete by the chain of frame pointers that the kernel followed at the sample: return
/// addresses, innermost first, behind the sampled address. Go keeps frame pointers everywhere, also where its runtime
/// changes from one stack to another, but says so in no rule. Returns whether the stack is complete now.
pub fn continue_by_chain(
    chain: &[VirtualAddress],
    image: &mut dyn CodeOfProcess,
    frames: &mut Vec<VirtualAddress>,
) -> bool {
    /// The kernel follows no more frames (kernel.perf_event_max_stack); a shorter chain ended by itself.
    const CHAIN_MAX: usize = 127;
    let Some(outermost) = frames.last().filter(|_| frames.len() > 1) else { return false };
    let returns_to = outermost.offset(1);
    let is_whole = chain.len() < CHAIN_MAX;
    let Some(at) = chain.iter().position(|address| *address == returns_to) else {
        // Where a thread of the runtime starts, rbp is 0: the chain ends there, and the walk went on into nothing.
        let is_known =
            |address: &VirtualAddress| frames.iter().rev().take(2).any(|name| *name == address.back(1));
        return is_whole && chain.last().is_some_and(is_known);
    };
    let outer = &chain[at + 1..];
    for (number, address) in (1..).zip(outer) {
        let name = address.back(1);
        // The outermost frame of a goroutine returns into `goexit` without having been called from there.
        let is_call = number == outer.len() || image.is_call_before(*address);
        if !is_call || image.code(name) == Code::None || frames.len() >= FRAMES_MAX {
            return false;
        }
        frames.push(name);
    }
    is_whole
}

/// Appends the addresses of all frames, innermost first. `first` is the address that names the innermost frame.
pub fn walk(
    first: VirtualAddress,
    registers: Frame,
    stack: StackCopy<'_>,
    image: &mut dyn CodeOfProcess,
    frames: &mut Vec<VirtualAddress>,
) -> StackEnd {
    let (mut at, mut name) = (registers, first);
    let mut known = image.code(name);
    frames.push(name);
    if known == Code::None {
        return StackEnd::Broken;
    }
    for _ in 1..FRAMES_MAX {
        let (next, is_interrupted) = match known {
            Code::Rule(Caller::Outermost, _) => return StackEnd::Root,
            Code::Rule(Caller::Signal, _) => match stack.interrupted(at) {
                Some(next) => (next, true),
                None => return stack.end_at(at.sp.offset(SIGNAL_RIP)),
            },
            Code::Rule(caller, rbp) => match stack.caller(at, name, caller, rbp) {
                Ok(next) => (next, false),
                Err(end) => return end,
            },
            // The outermost frame has none: its function was entered with rbp = 0, as the ABI demands (x86-64 psABI, 3.4.1).
            Code::WithoutRule(_) if at.rbp == 0 && frames.len() > 1 => return StackEnd::Root,
            Code::WithoutRule(end) => match stack.caller_by_frame_pointer(at) {
                Some(next) => (next, false),
                None => return if stack.has_after(VirtualAddress(at.rbp)) { StackEnd::Cut } else { end },
            },
            Code::None => return StackEnd::Broken,
        };
        if next.pc == VirtualAddress(0) {
            return StackEnd::Root;
        }
        name = if is_interrupted { next.pc } else { next.pc.back(1) };
        let before = std::mem::replace(&mut known, image.code(name));
        match (before, known) {
            // What rbp pointed to was no frame.
            (Code::WithoutRule(end), known) if known == Code::None || !image.is_call_before(next.pc) => {
                return end;
            }
            (_, Code::None) => return StackEnd::Broken,
            _ => {}
        }
        frames.push(name);
        at = next;
    }
    StackEnd::TooDeep
}

impl StackCopy<'_> {
    fn word(&self, address: VirtualAddress) -> Option<u64> {
        let at = usize::try_from(address.checked_bytes_since(self.start)?).ok()?;
        self.bytes.get(at..)?.first_chunk().map(|word| u64::from_le_bytes(*word))
    }

    /// Returns whether an address may be on the stack behind what was copied.
    fn has_after(&self, address: VirtualAddress) -> bool {
        /// The largest stack that Linux gives by default, times four.
        const STACK_BYTES_MAX: u64 = 32 << 20;
        let last_word = self.start.offset(self.bytes.len() as u64).back(8);
        let behind = address.bytes_since(last_word);
        self.is_cut && behind < STACK_BYTES_MAX
    }

    /// Returns why the word at an address could not be read.
    fn end_at(&self, address: VirtualAddress) -> StackEnd {
        if self.has_after(address) {
            StackEnd::Cut
        } else if address < self.start || address >= self.start.saturating_offset(self.bytes.len() as u64) {
            StackEnd::OtherStack
        } else {
            StackEnd::Broken
        }
    }

    /// Returns the registers of the code that a signal interrupted, at the return from its handler.
    fn interrupted(&self, at: Frame) -> Option<Frame> {
        let word = |offset| self.word(at.sp.offset(offset));
        let (pc, sp) = (VirtualAddress(word(SIGNAL_RIP)?), VirtualAddress(word(SIGNAL_RSP)?));
        Some(Frame { pc, sp, rbp: word(SIGNAL_RBP)? })
    }

    fn caller(
        &self,
        at: Frame,
        name: VirtualAddress,
        caller: Caller,
        rbp: CallerRbp,
    ) -> Result<Frame, StackEnd> {
        let read = |address: VirtualAddress| self.word(address).ok_or_else(|| self.end_at(address));
        let read_address = |address: VirtualAddress| read(address).map(VirtualAddress);
        let plus = |address: VirtualAddress, offset: i32| address.offset(i64::from(offset) as u64);
        let frame_pointer = VirtualAddress(at.rbp);
        let cfa = match caller {
            Caller::StackPointer(offset) => plus(at.sp, offset),
            Caller::FramePointer(offset) => plus(frame_pointer, offset),
            Caller::StoredAtFramePointer(offset) => read_address(plus(frame_pointer, offset))?,
            Caller::StoredAtStackPointer { at: offset, plus: more } => {
                plus(read_address(plus(at.sp, offset))?, more)
            }
            Caller::LinkageStub(from) => at.sp.offset(if name.0 % 16 >= from.into() { 16 } else { 8 }),
            Caller::Signal | Caller::Outermost | Caller::Unknown => return Err(StackEnd::Broken),
        };
        // Each frame holds at least its return address, so a walk that goes on always ends.
        if cfa < at.sp.saturating_offset(8) {
            return Err(StackEnd::Broken);
        }
        let rbp = match rbp {
            CallerRbp::Unchanged => at.rbp,
            // Epilogues do not say when they have restored rbp; a slot below the stack pointer was popped.
            CallerRbp::Saved(offset) if plus(cfa, offset) < at.sp => at.rbp,
            CallerRbp::Saved(offset) => read(plus(cfa, offset))?,
            CallerRbp::SavedAtFramePointer => read(frame_pointer)?,
        };
        Ok(Frame { pc: read_address(cfa.back(8))?, sp: cfa, rbp })
    }

    /// Returns the caller of code that keeps a frame pointer: rbp points to the caller's rbp, behind which is the return
    /// address.
    fn caller_by_frame_pointer(&self, at: Frame) -> Option<Frame> {
        let frame_pointer = VirtualAddress(at.rbp);
        if frame_pointer < at.sp || !at.rbp.is_multiple_of(8) {
            return None;
        }
        let (rbp, pc) = (self.word(frame_pointer)?, self.word(frame_pointer.offset(8))?);
        Some(Frame { pc: VirtualAddress(pc), sp: frame_pointer.offset(16), rbp })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const START: u64 = 0x7000;

    /// The code is `leaf` (0x100), `framed` (0x200, whose caller is found by rbp), `main` (0x300), `_start` (0x400,
    /// outermost), `restore` (0x500, behind a signal handler), `jit` (0x600, without a rule), and nothing above 0x700. All
    /// but the address 0x3ff follows a call.
    struct Program;

    impl CodeOfProcess for Program {
        fn code(&mut self, address: VirtualAddress) -> Code {
            match address.0 >> 8 {
                1 => Code::Rule(Caller::StackPointer(8), CallerRbp::Unchanged),
                2 => Code::Rule(Caller::FramePointer(16), CallerRbp::Saved(-16)),
                3 => Code::Rule(Caller::StackPointer(16), CallerRbp::Unchanged),
                4 => Code::Rule(Caller::Outermost, CallerRbp::Unchanged),
                5 => Code::Rule(Caller::Signal, CallerRbp::Unchanged),
                6 => Code::WithoutRule(StackEnd::NoUnwindInformation),
                _ => Code::None,
            }
        }

        fn is_call_before(&mut self, address: VirtualAddress) -> bool {
            address.0 != 0x3ff
        }
    }

    fn addresses(numbers: &[u64]) -> Vec<VirtualAddress> {
        numbers.iter().copied().map(VirtualAddress).collect()
    }

    fn numbers(addresses: Vec<VirtualAddress>) -> Vec<u64> {
        addresses.into_iter().map(|address| address.0).collect()
    }

    /// Walks a stack of words that starts at [`START`].
    fn check(registers: Frame, words: &[u64], is_cut: bool) -> (Vec<u64>, StackEnd) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut frames = Vec::new();
        let stack = StackCopy { start: VirtualAddress(START), bytes: &bytes, is_cut };
        let end = walk(registers.pc, registers, stack, &mut Program, &mut frames);
        (numbers(frames), end)
    }

    fn at(pc: u64, rbp: u64) -> Frame {
        Frame { pc: VirtualAddress(pc), sp: VirtualAddress(START), rbp }
    }

    #[test]
    fn frames_are_found_up_to_the_root() {
        // leaf, called by framed (whose frame is at word 3), called by main, called by _start.
        let words = [0x210, 7, 7, 0x1234, 0x310, 9, 0x410];
        let (frames, end) = check(at(0x110, START + 24), &words, false);
        assert_eq!((frames, end), (vec![0x110, 0x20f, 0x30f, 0x40f], StackEnd::Root));
    }

    #[test]
    fn the_end_of_an_incomplete_stack_has_a_cause() {
        let end = |frame, words: &[u64], is_cut| check(frame, words, is_cut).1;
        assert_eq!(end(at(0x110, 0), &[0x310, 9], true), StackEnd::Cut);
        assert_eq!(end(at(0x110, 0), &[0x310, 9], false), StackEnd::OtherStack);
        assert_eq!(end(at(0x110, 0), &[0x910], false), StackEnd::Broken, "a return address in no code");
        assert_eq!(end(at(0x900, 0), &[0x310], false), StackEnd::Broken, "the sample is in no code");
        assert_eq!(end(at(0x210, START - 16), &[0x310], false), StackEnd::Broken, "a frame further in");
        assert_eq!(end(at(0x610, 5), &[0x310], false), StackEnd::NoUnwindInformation);
        assert_eq!(end(at(0x610, START + 8), &[1, 2, 0x900], false), StackEnd::NoUnwindInformation);
        assert_eq!(end(at(0x610, START + 8), &[1, 2, 0x3ff], false), StackEnd::NoUnwindInformation);
        assert_eq!(end(at(0x110, 0), &[0x110; 2000], false), StackEnd::TooDeep);
        assert_eq!(check(at(0x110, 0), &[0x110; 2000], false).0.len(), FRAMES_MAX);
    }

    #[test]
    fn code_without_a_rule_is_followed_by_its_frame_pointer() {
        // jit calls jit calls main; then rbp = 0 in the outermost code.
        let words = [7, START + 24, 0x620, 0x5555, 0x310, 9, 0x410];
        let (frames, end) = check(at(0x610, START + 8), &words, false);
        assert_eq!((frames, end), (vec![0x610, 0x61f, 0x30f, 0x40f], StackEnd::Root));
        let (frames, end) = check(at(0x610, START + 8), &[7, 0, 0x620], false);
        assert_eq!((frames, end), (vec![0x610, 0x61f], StackEnd::Root));
    }

    #[test]
    fn a_chain_of_frame_pointers_continues_a_walk() {
        let go_on = |chain: &[u64], frames: &[u64]| {
            let mut frames = addresses(frames);
            let is_whole = continue_by_chain(&addresses(chain), &mut Program, &mut frames);
            (numbers(frames), is_whole)
        };
        // The walk ended behind the second frame; the chain leads to two more. The last one need not follow a call.
        let continued = go_on(&[0x110, 0x210, 0x310, 0x3ff], &[0x110, 0x20f]);
        assert_eq!(continued, (vec![0x110, 0x20f, 0x30f, 0x3fe], true));
        assert_eq!(go_on(&[0x110, 0x210, 0x3ff, 0x310], &[0x110, 0x20f]), (vec![0x110, 0x20f], false));
        assert_eq!(go_on(&[0x110, 0x210, 0x910], &[0x110, 0x20f]), (vec![0x110, 0x20f], false));
        assert!(!go_on(&[0x110, 0x310], &[0x110, 0x20f]).1, "the chain does not contain the frame");
        assert_eq!(go_on(&[0x110, 0x210], &[0x110, 0x20f, 0x30f]), (vec![0x110, 0x20f, 0x30f], true));
        assert!(!go_on(&[0x210; 127], &[0x110, 0x20f]).1, "the kernel may have followed no more");
    }

    #[test]
    fn a_popped_frame_pointer_is_in_its_register() {
        // The function at 0x700 has popped rbp, whose slot was 24 bytes below the canonical frame address.
        let start = VirtualAddress(START);
        let stack = StackCopy { start, bytes: &0x310_u64.to_le_bytes(), is_cut: false };
        let frame = at(0x700, 0x7777);
        let caller = stack.caller(frame, frame.pc, Caller::StackPointer(8), CallerRbp::Saved(-24));
        assert_eq!(caller, Ok(Frame { sp: start.offset(8), ..at(0x310, 0x7777) }));
    }

    #[test]
    fn interrupted_code_is_named_by_its_own_address() {
        let mut words = [0; 40];
        words[0] = 0x510; // The handler (a leaf) returns to `restore`, whose stack pointer is at word 1.
        words[1 + (SIGNAL_RIP / 8) as usize] = 0x120;
        words[1 + (SIGNAL_RSP / 8) as usize] = START + 8 * 35;
        (words[35], words[36], words[37]) = (0x310, 9, 0x410);
        let (frames, end) = check(at(0x110, 0), &words, false);
        assert_eq!((frames, end), (vec![0x110, 0x50f, 0x120, 0x30f, 0x40f], StackEnd::Root));
    }

    proptest! {
        /// Whatever is on the stack, a walk ends, and each frame is in code.
        #[test]
        fn any_stack_ends(
            words in prop::collection::vec(prop_oneof![0x100..0x700_u64, START..START + 800, any::<u64>()], 0..100),
            pc in 0x100..0x700_u64,
            rbp in prop_oneof![START..START + 800, any::<u64>()],
            sp in prop_oneof![Just(START), any::<u64>()],
            is_cut: bool,
        ) {
            let (frames, end) = check(Frame { sp: VirtualAddress(sp), ..at(pc, rbp) }, &words, is_cut);
            prop_assert!(!frames.is_empty() && frames.len() <= FRAMES_MAX);
            prop_assert!(frames.iter().all(|frame| (1..7).contains(&(frame >> 8))));
            prop_assert!(frames.len() == FRAMES_MAX || end != StackEnd::TooDeep);
        }
    }
}
