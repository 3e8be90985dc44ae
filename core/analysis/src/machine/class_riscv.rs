//! Classes of RISC-V instructions, from capstone's mnemonics (compressed ones lose their `c.`).

use dwell_image::{Flow, Instruction};

use super::OpcodeClass::{self, *};

pub fn classify(i: &Instruction) -> OpcodeClass {
    match i.flow {
        Flow::Branch { .. } => return Branch,
        Flow::Jump { .. } | Flow::IndirectJump => return Jump,
        Flow::Call { .. } => return Call,
        Flow::Return => return Return,
        Flow::Stop => return System,
        Flow::Next => {}
    }
    let m = i.mnemonic.strip_prefix("c.").unwrap_or(&i.mnemonic);
    let starts = |prefixes: &[&str]| prefixes.iter().any(|p| m.starts_with(p));
    match m {
        "nop" => Nop,
        "mv" | "li" | "lui" => Move,
        "lb" | "lbu" | "lh" | "lhu" | "lw" | "lwu" | "ld" | "lwsp" | "ldsp" | "flw" | "fld" | "flwsp"
        | "fldsp" => Load,
        "sb" | "sh" | "sw" | "sd" | "swsp" | "sdsp" | "fsw" | "fsd" | "fswsp" | "fsdsp" => Store,
        "fence" | "fence.i" | "sfence.vma" => Barrier,
        "ecall" | "ebreak" | "wfi" | "mret" | "sret" => System,
        _ if m.starts_with("csr") => System,
        _ if m.starts_with("amo") || starts(&["lr.", "sc."]) => Atomic,
        _ if starts(&["mul"]) => Multiply,
        _ if starts(&["div", "rem"]) => Divide,
        _ if starts(&["fdiv"]) => FpDivide,
        _ if starts(&["fsqrt"]) => FpSqrt,
        _ if starts(&["fmul", "fmadd", "fmsub", "fnm"]) => FpMultiply,
        _ if starts(&["fcvt", "fmv"]) => Transfer,
        _ if m.starts_with('f') => FpAdd,
        _ if starts(&["sll", "srl", "sra"]) => Shift,
        _ => Alu,
    }
}
