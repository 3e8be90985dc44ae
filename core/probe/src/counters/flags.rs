//! Where a program's flags are alive.
//!
//! Enters: the instructions of a procedure. Leaves: for each, whether a flag that `inc` changes may be read before it is written,
//! from there on. Calls, returns and jumps out of the procedure count as readers. Complexity: linear in the instructions, times
//! the nesting of loops.

use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register, RflagsBits};

/// The flags that `inc` changes: all arithmetic ones but the carry.
const CHANGED: u32 = RflagsBits::OF | RflagsBits::SF | RflagsBits::ZF | RflagsBits::AF | RflagsBits::PF;

/// Returns for each instruction whether one of the flags is alive before it. The instructions ascend.
pub fn alive_before(instructions: &[Instruction]) -> Vec<bool> {
    let targets: Vec<Option<usize>> =
        instructions.iter().map(|instruction| index_of_target(instructions, instruction)).collect();
    let mut alive = vec![0; instructions.len()];
    loop {
        let mut is_stable = true;
        for (at, instruction) in instructions.iter().enumerate().rev() {
            let next = alive.get(at + 1).copied().unwrap_or(CHANGED);
            let after = match instruction.flow_control() {
                FlowControl::Next => next,
                FlowControl::ConditionalBranch => next | targets[at].map_or(CHANGED, |target| alive[target]),
                FlowControl::UnconditionalBranch => targets[at].map_or(CHANGED, |target| alive[target]),
                _ => CHANGED,
            };
            let before = (instruction.rflags_read() | after & !written(instruction)) & CHANGED;
            is_stable &= before == alive[at];
            alive[at] = before;
        }
        if is_stable {
            return alive.into_iter().map(|flags| flags != 0).collect();
        }
    }
}

/// Returns the flags that an instruction certainly writes.
fn written(instruction: &Instruction) -> u32 {
    use Mnemonic::{Rcl, Rcr, Rol, Ror, Sal, Sar, Shl, Shld, Shr, Shrd};
    let shifts =
        matches!(instruction.mnemonic(), Rcl | Rcr | Rol | Ror | Sal | Sar | Shl | Shld | Shr | Shrd);
    let is_by_register = (0..instruction.op_count())
        .any(|i| instruction.op_kind(i) == OpKind::Register && instruction.op_register(i) == Register::CL);
    let repeats = instruction.has_rep_prefix() || instruction.has_repne_prefix();
    // A shift by zero, or a repetition of none, leaves the flags alone.
    if shifts && is_by_register || repeats { 0 } else { instruction.rflags_modified() }
}

fn index_of_target(instructions: &[Instruction], instruction: &Instruction) -> Option<usize> {
    let is_near = instruction.op_count() > 0 && instruction.op0_kind() == OpKind::NearBranch64;
    let target = is_near.then(|| instruction.near_branch_target())?;
    instructions.binary_search_by_key(&target, Instruction::ip).ok()
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions};

    use super::*;

    /// Checks before which instructions flags are alive: one character each, `!` where they are.
    fn check(code: &[u8], expected: &str) {
        let decoder = Decoder::with_ip(64, code, 0x1000, DecoderOptions::NONE);
        let alive = alive_before(&decoder.into_iter().collect::<Vec<_>>());
        let text: String = alive.iter().map(|is_alive| if *is_alive { '!' } else { '-' }).collect();
        assert_eq!(text, expected);
    }

    #[test]
    fn flags_live_from_writer_to_reader() {
        // cmp eax, ecx; mov edx, 1; jne +0; add eax, 1; ret
        check(&[0x39, 0xc8, 0xba, 1, 0, 0, 0, 0x75, 0, 0x83, 0xc0, 1, 0xc3], "-!!-!");
        // test eax, eax; je back to itself; mov eax, 0; ret
        check(&[0x85, 0xc0, 0x74, 0xfc, 0xb8, 0, 0, 0, 0, 0xc3], "-!!!");
    }

    #[test]
    fn what_may_write_nothing_does_not_end_a_life() {
        // shl eax, cl; sete al; shl eax, 1; sete al; xor eax, eax; ret
        check(&[0xd3, 0xe0, 0x0f, 0x94, 0xc0, 0xd1, 0xe0, 0x0f, 0x94, 0xc0, 0x31, 0xc0, 0xc3], "!!-!-!");
        // repe cmpsb; sete al; add eax, eax; ret
        check(&[0xf3, 0xa6, 0x0f, 0x94, 0xc0, 0x01, 0xc0, 0xc3], "!!-!");
        // setb al reads the carry alone, which inc leaves; cmp; ret
        check(&[0x0f, 0x92, 0xc0, 0x39, 0xc8, 0xc3], "--!");
    }

    #[test]
    fn calls_and_unknown_jumps_read_all() {
        // call +0; xor eax, eax; jmp far away
        check(&[0xe8, 0, 0, 0, 0, 0x31, 0xc0, 0xe9, 0, 1, 0, 0], "!-!");
    }
}
