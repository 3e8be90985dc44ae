//! Classes of AArch64 instructions, by capstone's mnemonics.

use dwell_image::{Flow, Instruction, Operand};

use super::OpcodeClass::{self, *};

/// The beginnings of the mnemonics of vector multiplications.
const MULTIPLIES: [&str; 18] = [
    "mul", "mla", "mls", "smul", "umul", "smla", "umla", "smls", "umls", "smmla", "ummla", "sdot", "udot",
    "usdot", "pmul", "aes", "sha", "sqdm",
];

pub fn classify(i: &Instruction) -> OpcodeClass {
    let m = &*i.mnemonic;
    match i.flow {
        Flow::Branch { .. } => return Branch,
        Flow::Jump { .. } | Flow::IndirectJump => return Jump,
        Flow::Call { .. } => return Call,
        Flow::Return => return Return,
        Flow::Stop => return System,
        Flow::Next => {}
    }
    let starts = |prefixes: &[&str]| prefixes.iter().any(|p| m.starts_with(p));
    match m {
        "nop" | "bti" | "hint" | "yield" | "paciasp" | "autiasp" | "pacibsp" | "autibsp" | "xpaclri"
        | "csdb" | "esb" => Nop,
        "dmb" | "dsb" | "isb" | "clrex" | "sb" | "ssbb" | "pssbb" => Barrier,
        "svc" | "hvc" | "smc" | "mrs" | "msr" | "sys" | "dc" | "ic" | "tlbi" | "at" | "wfi" | "wfe"
        | "eret" => System,
        _ if starts(&["prfm", "prfum"]) => Prefetch,
        _ if starts(&["ldxr", "ldaxr", "ldxp", "ldaxp", "stxr", "stlxr", "stxp", "stlxp", "cas", "swp"]) => {
            Atomic
        }
        _ if starts(&["ldadd", "ldclr", "ldset", "ldeor", "ldsmax", "ldsmin", "ldumax", "ldumin"]) => Atomic,
        _ if starts(&["stadd", "stclr", "stset", "steor"]) => Atomic,
        _ if starts(&["ld"]) => Load,
        _ if starts(&["st"]) => Store,
        "mul" | "madd" | "msub" | "mneg" | "smull" | "umull" | "smaddl" | "umaddl" | "smulh" | "umulh"
        | "smsubl" | "umsubl" | "smnegl" | "umnegl"
            if !is_vector(i) =>
        {
            Multiply
        }
        _ if starts(&["crc32"]) => Multiply,
        "sdiv" | "udiv" => Divide,
        "fdiv" => FpDivide,
        "fsqrt" => FpSqrt,
        _ if starts(&["fcvt", "scvtf", "ucvtf", "umov", "smov", "ins", "dup"]) => Transfer,
        "fmov" | "mov" if mixes_files(i) => Transfer,
        "fmov" => Vector,
        _ if starts(&["fmul", "fmadd", "fmsub", "fnm", "fmla", "fmls"]) => FpMultiply,
        _ if m.starts_with('f') => FpAdd,
        _ if is_vector(i) && starts(&MULTIPLIES) => VectorMultiply,
        _ if is_vector(i) => Vector,
        "mov" | "movz" | "movn" => Move,
        "lsl" | "lsr" | "asr" | "ror" | "lslv" | "lsrv" | "asrv" | "rorv" | "ubfx" | "sbfx" | "ubfiz"
        | "sbfiz" | "bfi" | "bfxil" | "ubfm" | "sbfm" | "bfm" | "extr" | "uxtb" | "uxth" | "sxtb"
        | "sxth" | "sxtw" | "clz" | "cls" | "rbit" | "rev" | "rev16" | "rev32" => Shift,
        _ if i.writes.is_empty() && i.reads.is_empty() => Unknown,
        _ => Alu,
    }
}

/// Names of SIMD registers begin with one of these and a digit.
fn is_vector(i: &Instruction) -> bool {
    register_words(i).any(is_simd)
}

fn mixes_files(i: &Instruction) -> bool {
    let has_constant = i.operands.iter().any(|o| matches!(o, Operand::Immediate(_)));
    !has_constant && register_words(i).any(is_simd) && register_words(i).any(|w| w.starts_with(['x', 'w']))
}

fn is_simd(word: &str) -> bool {
    word.starts_with(['v', 'q', 'd', 's', 'h', 'b']) && word[1..].starts_with(|c: char| c.is_ascii_digit())
}

/// Returns the operands' names. Register numbers would make this file depend on their numbering.
fn register_words(i: &Instruction) -> impl Iterator<Item = &str> {
    let operands = i.text.split_once(char::is_whitespace).map_or("", |(_, operands)| operands);
    operands.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty())
}
