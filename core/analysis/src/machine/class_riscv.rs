//! Classes of RISC-V instructions, by capstone's mnemonics (without the `c.` of compressed ones).

use dwell_image::{Arch, Flow, Instruction, Operand};

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
        "addi" if is_move(i) => Move,
        "lb" | "lbu" | "lh" | "lhu" | "lw" | "lwu" | "ld" | "lwsp" | "ldsp" | "flw" | "fld" | "flwsp"
        | "fldsp" => Load,
        "sb" | "sh" | "sw" | "sd" | "swsp" | "sdsp" | "fsw" | "fsd" | "fswsp" | "fsdsp" => Store,
        "fence" | "fence.i" | "sfence.vma" => Barrier,
        "ecall" | "ebreak" | "wfi" | "mret" | "sret" => System,
        // The floating-point flags and rounding mode are control registers.
        _ if starts(&[
            "csr",
            "frflags",
            "fsflags",
            "frrm",
            "fsrm",
            "frcsr",
            "fscsr",
            "rdcycle",
            "rdtime",
            "rdinstret",
        ]) =>
        {
            System
        }
        _ if m.starts_with("amo") || starts(&["lr.", "sc."]) => Atomic,
        _ if starts(&["mul"]) => Multiply,
        _ if starts(&["div", "rem"]) => Divide,
        _ if starts(&["fdiv"]) => FpDivide,
        _ if starts(&["fsqrt"]) => FpSqrt,
        _ if starts(&["fmul", "fmadd", "fmsub", "fnm"]) => FpMultiply,
        // Moves to the integer registers, and sign operations, are no arithmetic.
        _ if starts(&["fcvt", "fmv", "feq", "flt", "fle", "fclass", "fsgnj", "fabs", "fneg"]) => Transfer,
        _ if m.starts_with('f') => FpAdd,
        // Zbb's and Zbs's counts, rotations and single bits; Zbc's products.
        _ if starts(&["clmul"]) => Multiply,
        _ if starts(&["sll", "srl", "sra", "rol", "ror", "clz", "ctz", "cpop", "rev8", "orc", "b"]) => Shift,
        _ if m.starts_with('v') => Vector,
        _ => Alu,
    }
}

/// `addi rd, zero, constant` and `addi rd, rs, 0`.
fn is_move(i: &Instruction) -> bool {
    match i.operands[..] {
        [_, Operand::Register { register, .. }, Operand::Immediate(constant)] => {
            constant == 0 || Some(register) == Arch::Riscv64.zero()
        }
        _ => false,
    }
}
