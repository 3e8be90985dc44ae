//! Numbers of the x86-64 registers. General registers have the order of the hardware encoding, so that an encoded or sampled
//! number is the register's number.

use std::borrow::Cow;

use super::register::{Register, numbered};

/// Register `rax`, number 0. This number and the next fifteen are those of instruction encodings.
pub const RAX: Register = Register(0);
/// Register `rcx`, number 1.
pub const RCX: Register = Register(1);
/// Register `rdx`, number 2.
pub const RDX: Register = Register(2);
/// Register `rbx`, number 3.
pub const RBX: Register = Register(3);
/// Stack pointer, number 4.
pub const RSP: Register = Register(4);
/// Register `rbp`, number 5.
pub const RBP: Register = Register(5);
/// Register `rsi`, number 6.
pub const RSI: Register = Register(6);
/// Register `rdi`, number 7. `r8` to `r15` follow.
pub const RDI: Register = Register(7);
/// The whole of rflags as one register, number 16.
pub const FLAGS: Register = Register(16);
/// Instruction pointer, number 17.
pub const RIP: Register = Register(17);
/// First vector register, number 32. `xmm`, `ymm` and `zmm` 0 to 31 share the numbers 32 to 63.
pub const ZMM0: Register = Register(32);
/// First mask register, number 64. `k0` to `k7` have the numbers 64 to 71.
pub const K0: Register = Register(64);

/// Names of the registers below 32, by number. An empty name is an unused number.
const LOW: [&str; 32] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
    "r15", "rflags", "rip", "cs", "ds", "es", "fs", "gs", "ss", "st(0)", "st(1)", "st(2)", "st(3)", "st(4)",
    "st(5)", "st(6)", "st(7)",
];

/// Numbers of the legacy general registers in encoding order, with their 8-, 16- and 32-bit names.
const LEGACY: [[&str; 4]; 8] = [
    ["al", "ax", "eax", "ah"],
    ["cl", "cx", "ecx", "ch"],
    ["dl", "dx", "edx", "dh"],
    ["bl", "bx", "ebx", "bh"],
    ["spl", "sp", "esp", ""],
    ["bpl", "bp", "ebp", ""],
    ["sil", "si", "esi", ""],
    ["dil", "di", "edi", ""],
];

/// Returns the general register with this hardware encoding (0 to 15).
pub fn general(encoding: u8) -> Option<Register> {
    (encoding < 16).then_some(Register(encoding))
}

pub(super) fn name(register: Register) -> Cow<'static, str> {
    match register.0 {
        n @ 0..32 => LOW[usize::from(n)].into(),
        n @ 32..64 => format!("zmm{}", n - 32).into(),
        n @ 64..72 => format!("k{}", n - 64).into(),
        72 => "fpsw".into(),
        n @ 80..96 => format!("cr{}", n - 80).into(),
        n @ 96..112 => format!("dr{}", n - 96).into(),
        n @ 112..116 => format!("bnd{}", n - 112).into(),
        n => format!("?{n}").into(),
    }
}

pub(super) fn named(name: &str) -> Option<Register> {
    let position = |found: Option<usize>| found.map(|n| Register(n as u8));
    position(LOW.iter().position(|n| *n == name))
        .or_else(|| position(LEGACY.iter().position(|row| !name.is_empty() && row.contains(&name))))
        .or(match name {
            "eflags" | "flags" => Some(FLAGS),
            "eip" | "ip" => Some(RIP),
            "fpsw" => Some(Register(72)),
            _ => None,
        })
        .or_else(|| general_part(name))
        .or_else(|| ["xmm", "ymm", "zmm"].iter().find_map(|p| numbered(name, p, ZMM0.0, 32)))
        .or_else(|| numbered(name, "k", K0.0, 8))
        // MMX registers are the mantissas of the slots of the x87 stack, whose top is assumed to be slot 0.
        .or_else(|| numbered(name, "mm", 24, 8).or_else(|| numbered(name, "fp", 24, 8)))
        .or_else(|| numbered(name, "cr", 80, 16))
        .or_else(|| numbered(name, "dr", 96, 16))
        .or_else(|| numbered(name, "bnd", 112, 4))
}

/// Parses names of parts of the newer general registers: `r8b`, `r8w`, `r8d` and so on.
fn general_part(name: &str) -> Option<Register> {
    let whole = name.strip_suffix(['b', 'w', 'd'])?;
    numbered(whole, "r", 0, 16).filter(|r| r.0 >= 8)
}

/// Returns the width in bits of the part that a name stands for (`al` 8, `eax` 32, `ymm0` 256).
pub(crate) fn width_bits(name: &str) -> u16 {
    let legacy = LEGACY.iter().find_map(|row| row.iter().position(|n| *n == name));
    match legacy {
        Some(1) => return 16,
        Some(2) => return 32,
        Some(_) => return 8,
        None => {}
    }
    match name.as_bytes() {
        [b'x', b'm', ..] => 128,
        [b'y', ..] => 256,
        [b'z', ..] => 512,
        [b's', b't', ..] => 80,
        [b'c' | b'd' | b'e' | b'f' | b'g' | b's', b's'] => 16,
        [b'r', .., b'b'] => 8,
        [b'r', .., b'w'] => 16,
        [b'r', .., b'd'] => 32,
        b"eip" | b"eflags" => 32,
        _ => 64,
    }
}
