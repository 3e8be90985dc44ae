//! The instructions that a superblock executes if it is never left early.
//!
//! Enters: the address of its first instruction, and a reader of the program's code. Leaves: decoded instructions in the order
//! in which they execute. A path continues behind a conditional branch, or at its target if that lies before (a loop is
//! unrolled); it continues in a called function, and behind the call when that returns.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};

/// Largest number of instructions in a superblock.
pub const INSTRUCTIONS_MAX: usize = 100;
/// Largest number of bytes of an instruction.
pub const INSTRUCTION_BYTES_MAX: usize = 15;
/// How far a branch may go back to be followed as a loop, in bytes.
const LOOP_BYTES_MAX: u64 = 4096;

/// What comes after an instruction of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The instruction behind it.
    Behind,
    /// A conditional branch: the path continues at `follow`; it is left for `leave`. `follows_target`: whether the branch is taken on
    /// the path.
    Branch { leave: u64, follows_target: bool },
    /// A direct jump: the next instruction of the path is its target.
    Jump,
    /// A direct call: the next instruction is the function's first.
    Call,
    /// The return of a function that was called on the path, to this address if the return address is as it was.
    ReturnTo(u64),
    /// A jump, call or return to an address that only the program knows. It ends the path.
    Indirect,
    /// A system call. It ends the path.
    SystemCall,
}

/// An instruction of a path.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub instruction: Instruction,
    pub next: Next,
    bytes: [u8; INSTRUCTION_BYTES_MAX],
}

impl Step {
    /// Returns the bytes of the instruction.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.instruction.len()]
    }

    /// Returns the address of the instruction.
    pub fn pc(&self) -> u64 {
        self.instruction.ip()
    }
}

/// A path, and the address at which it ends if its last instruction does not end it.
#[derive(Clone, Debug, Default)]
pub struct Path {
    pub steps: Vec<Step>,
    pub end: u64,
}

/// Follows the path from `start`, for at most `limit` instructions. `code` returns the bytes at an address, at most [`INSTRUCTION_BYTES_MAX`]; fewer if there are no
/// more. The path is empty if the first instruction cannot be decoded or cannot be moved.
pub fn follow(start: u64, limit: usize, mut code: impl FnMut(u64) -> Vec<u8>) -> Path {
    let mut path = Path { steps: Vec::new(), end: start };
    let mut returns = Vec::new();
    while path.steps.len() < limit.min(INSTRUCTIONS_MAX) {
        let bytes = code(path.end);
        let mut decoder = Decoder::with_ip(64, &bytes, path.end, DecoderOptions::NONE);
        let instruction = decoder.decode();
        if instruction.is_invalid() || !can_move(&instruction) {
            break;
        }
        let (next, end) = next_of(&instruction, start, &mut returns);
        let mut own = [0; INSTRUCTION_BYTES_MAX];
        own[..instruction.len()].copy_from_slice(&bytes[..instruction.len()]);
        path.steps.push(Step { instruction, next, bytes: own });
        path.end = end;
        if matches!(next, Next::Indirect | Next::SystemCall) {
            break;
        }
    }
    path
}

fn next_of(instruction: &Instruction, start: u64, returns: &mut Vec<u64>) -> (Next, u64) {
    let behind = instruction.next_ip();
    match instruction.flow_control() {
        _ if instruction.mnemonic() == Mnemonic::Syscall => (Next::SystemCall, behind),
        FlowControl::ConditionalBranch => {
            let target = instruction.near_branch_target();
            let is_loop = target <= instruction.ip() && target.saturating_add(LOOP_BYTES_MAX) >= start;
            let (follow, leave) = if is_loop { (target, behind) } else { (behind, target) };
            (Next::Branch { leave, follows_target: is_loop }, follow)
        }
        FlowControl::UnconditionalBranch => (Next::Jump, instruction.near_branch_target()),
        FlowControl::Call => {
            returns.push(behind);
            (Next::Call, instruction.near_branch_target())
        }
        FlowControl::Return => match returns.pop().filter(|_| instruction.op_count() == 0) {
            Some(back) => (Next::ReturnTo(back), back),
            None => (Next::Indirect, behind),
        },
        FlowControl::IndirectBranch | FlowControl::IndirectCall => (Next::Indirect, behind),
        _ => (Next::Behind, behind),
    }
}

/// Returns whether a copy of the instruction elsewhere does the same. The others are executed where they are, one by one.
fn can_move(instruction: &Instruction) -> bool {
    use Mnemonic::*;
    let is_odd = match instruction.flow_control() {
        FlowControl::Interrupt | FlowControl::XbeginXabortXend | FlowControl::Exception => true,
        FlowControl::Call => !matches!(instruction.mnemonic(), Call | Syscall), // vmcall and its like
        FlowControl::IndirectCall | FlowControl::IndirectBranch => {
            instruction.is_call_far_indirect() || instruction.is_jmp_far_indirect()
        }
        FlowControl::Return => instruction.mnemonic() != Ret,
        _ => false,
    };
    // These read or change what the recorder uses: the gs segment, or whole sets of registers by way of it.
    let is_ours = instruction.segment_prefix() == iced_x86::Register::GS
        || matches!(
            instruction.mnemonic(),
            Wrgsbase
                | Rdgsbase
                | Swapgs
                | Wrfsbase
                | Sysenter
                | Int
                | Int3
                | Int1
                | Iretq
                | Iret
                | Iretd
                | Xrstors
        );
    !is_odd && !is_ours
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path_of(bytes: &[u8], start: u64) -> Vec<(u64, Next)> {
        let code = |pc: u64| {
            let at = (pc - 0x1000) as usize;
            bytes.get(at..).unwrap_or_default().iter().take(INSTRUCTION_BYTES_MAX).copied().collect()
        };
        follow(start, INSTRUCTIONS_MAX, code).steps.iter().map(|step| (step.pc(), step.next)).collect()
    }

    #[test]
    fn calls_and_their_returns_are_on_the_path() {
        // 1000: call 1006; 1005: ret; 1006: nop; 1007: ret
        let path = path_of(&[0xe8, 1, 0, 0, 0, 0xc3, 0x90, 0xc3], 0x1000);
        let wanted = [
            (0x1000, Next::Call),
            (0x1006, Next::Behind),
            (0x1007, Next::ReturnTo(0x1005)),
            (0x1005, Next::Indirect),
        ];
        assert_eq!(path, wanted);
    }

    #[test]
    fn a_loop_is_unrolled() {
        // 1000: dec eax; 1002: jne 1000
        let path = path_of(&[0xff, 0xc8, 0x75, 0xfc], 0x1000);
        assert_eq!(path.len(), INSTRUCTIONS_MAX);
        assert_eq!(path[3], (0x1002, Next::Branch { leave: 0x1004, follows_target: true }));
    }

    #[test]
    fn a_path_ends_before_what_cannot_be_moved() {
        assert_eq!(path_of(&[0x90, 0xcc], 0x1000).len(), 1, "int3");
        assert!(path_of(&[0x65, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0], 0x1000).is_empty(), "gs");
        assert!(path_of(&[], 0x1000).is_empty());
    }
}
