//! Converts the steps of a burst to transfers between places in images.
//!
//! Enters: how often a thread went from one address to another. Leaves: a path burst. Never here: mappings, files, ptrace. The
//! cost is linear in the number of different steps, plus one decoded instruction for each new place.

use dwell_image::{Arch, Flow, ImageAddress};
use dwell_profile::{CodePlace, ControlTransfer, ExecutionEvidence, ImageId, VirtualAddress};

use crate::path::Path;

/// Length of the longest instruction in bytes.
pub const INSTRUCTION_BYTES_MAX: usize = 15;

/// Properties of an instruction that decide whether a step is a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepKind {
    length: u8,
    /// Whether it may continue with the next instruction or elsewhere: a conditional branch or an indirect jump.
    chooses: bool,
    repeats: bool,
}

impl StepKind {
    /// Returns the kind of the instruction at the start of `code`, or `None` if there is no code.
    pub fn decode(arch: Arch, code: &[u8]) -> Option<Self> {
        let instruction = dwell_image::instructions(arch, code, ImageAddress(0)).into_iter().next()?;
        let repeats = instruction.text.starts_with("rep");
        let chooses = matches!(instruction.flow, Flow::Branch { .. } | Flow::IndirectJump);
        Some(StepKind { length: instruction.length, chooses, repeats })
    }

    /// Returns whether the step to `to` is a transfer: it went or might have gone elsewhere than to the next instruction.
    fn is_transfer(self, from: u64, to: u64) -> bool {
        match to.wrapping_sub(from) {
            0 => !self.repeats,
            distance => self.chooses || distance != u64::from(self.length),
        }
    }
}

/// Returns the burst, and the number of its steps in code that could not be read. `place` resolves an address, `kind` reads
/// the instruction at a place, and `id` returns the ID of an image. The path of an emulated thread leads from block to block. Returns `None` for less than one step.
pub fn burst<I: Copy + Ord + std::hash::Hash>(
    path: &Path,
    is_emulated: bool,
    mut place: impl FnMut(VirtualAddress) -> CodePlace<I>,
    mut kind: impl FnMut(CodePlace<I>) -> Option<StepKind>,
    id: impl Fn(I) -> ImageId,
) -> Option<(ExecutionEvidence, u64)> {
    if path.steps == 0 {
        return None;
    }
    let mut transfers = Vec::new();
    let mut opaque = 0;
    for &(from, to, count) in &path.transfers {
        let (from, to) = (place(from), place(to));
        if from.image != to.image {
            transfers.push((from, to, count));
            continue;
        }
        match kind(from) {
            Some(kind) if kind.is_transfer(from.offset.0, to.offset.0) => transfers.push((from, to, count)),
            Some(_) => {}
            // Blocks of unknown code: nearly all of its transfers, and nothing else.
            None if is_emulated => {
                opaque += count;
                transfers.push((from, to, count));
            }
            None => opaque += count,
        }
    }
    transfers.sort_unstable();
    let named = |p: CodePlace<I>| CodePlace { image: id(p.image), offset: p.offset };
    let (first, last) = (named(place(path.first)), named(place(path.last)));
    let transfers = transfers
        .into_iter()
        .map(|(from, to, count)| ControlTransfer { from: named(from), to: named(to), count })
        .collect();
    Some((ExecutionEvidence::PathBurst { first, last, transfers, cpu_ns: None }, opaque))
}

#[cfg(test)]
mod tests {
    use dwell_profile::ImageOffset;

    use super::*;

    /// The tests use this code: `0: cmp; 3: jne 0; 5: rep movsb; 7: call 100; 12: jmp rax; 100: ret; 1000: jit`
    fn kind(place: CodePlace<u8>) -> Option<StepKind> {
        let kind = |length, chooses, repeats| Some(StepKind { length, chooses, repeats });
        match (place.image, place.offset.0) {
            (0, 0) => kind(3, false, false),
            (0, 3) => kind(2, true, false),
            (0, 5) => kind(2, false, true),
            (0, 7) => kind(5, false, false),
            (0, 12) => kind(2, true, false),
            (0, _) => kind(1, false, false),
            _ => None,
        }
    }

    fn place(pc: VirtualAddress) -> CodePlace<u8> {
        CodePlace { image: u8::from(pc.0 >= 1000), offset: ImageOffset(pc.0) }
    }

    fn check(pcs: &[u64], expected: &str, opaque: u64) {
        let id = |i: u8| ImageId::named(if i == 0 { "a" } else { "jit" });
        let (burst, found) = burst(&Path::through(pcs), false, place, kind, id).unwrap();
        let text: Vec<String> = burst
            .transfers()
            .iter()
            .map(|t| format!("{}>{}x{}", t.from.offset.0, t.to.offset.0, t.count))
            .collect();
        assert_eq!((text.join(" ").as_str(), found), (expected, opaque));
    }

    #[test]
    fn only_transfers_to_other_than_the_next_instruction_are_kept() {
        check(&[0, 3, 0, 3, 0, 3, 5], "3>0x2 3>5x1", 0);
        check(&[5, 5, 5, 5, 7], "", 0);
        check(&[7, 100, 12], "7>100x1 100>12x1", 0);
        check(&[7, 1000, 1004, 1008, 12], "7>1000x1 1008>12x1", 2);
        check(&[12, 14, 15, 12, 7], "12>7x1 12>14x1 15>12x1", 0);
    }

    #[test]
    fn steps_from_block_to_block_of_unknown_code_are_transfers() {
        let path = Path::through(&[7, 1000, 1008, 1000, 12]);
        let (burst, opaque) =
            burst(&path, true, place, kind, |i: u8| ImageId::named(&i.to_string())).unwrap();
        let counts: Vec<(u64, u64)> = burst.transfers().iter().map(|t| (t.from.offset.0, t.count)).collect();
        assert_eq!((counts, opaque), (vec![(7, 1), (1000, 1), (1000, 1), (1008, 1)], 2));
    }

    #[test]
    fn a_burst_without_a_step_is_dropped() {
        let id = |_| ImageId::named("a");
        assert!(burst(&Path::through(&[3]), false, place, kind, id).is_none());
        assert!(burst(&Path::through(&[]), false, place, kind, id).is_none());
    }

    #[test]
    fn kinds_are_read_from_code() {
        let kind = |code: &[u8]| StepKind::decode(Arch::X86_64, code).unwrap();
        assert_eq!(kind(&[0x75, 0xfe, 0x90]), StepKind { length: 2, chooses: true, repeats: false });
        assert_eq!(kind(&[0xf3, 0xa4, 0x90]), StepKind { length: 2, chooses: false, repeats: true });
        assert_eq!(kind(&[0xc3]), StepKind { length: 1, chooses: false, repeats: false });
        assert_eq!(kind(&[0xff, 0xe0]), StepKind { length: 2, chooses: true, repeats: false });
        assert_eq!(StepKind::decode(Arch::X86_64, &[]), None);
    }
}
