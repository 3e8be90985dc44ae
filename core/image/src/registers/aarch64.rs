//! Numbers of the AArch64 registers.

use std::borrow::Cow;

use super::register::{Register, numbered};

/// Register `x0`, number 0. `x0` to `x30` have the numbers 0 to 30.
pub const X0: Register = Register(0);
/// Frame pointer, number 29.
pub const FP: Register = Register(29);
/// Link register, number 30.
pub const LR: Register = Register(30);
/// Stack pointer, number 31.
pub const SP: Register = Register(31);
/// Condition flags, number 32.
pub const NZCV: Register = Register(32);
/// Program counter, number 33.
pub const PC: Register = Register(33);
/// Zero register (`xzr`, `wzr`), number 34. It is only an operand, never read or written.
pub const ZERO: Register = Register(34);
/// Register `v0`, number 64. `v0` to `v31` have the numbers 64 to 95; `b`, `h`, `s`, `d`, `q` and SVE's `z` are parts of the
/// same registers.
pub const V0: Register = Register(64);
/// Predicate register `p0` of SVE, number 96. `p0` to `p15` have the numbers 96 to 111.
pub const P0: Register = Register(96);

pub(super) fn name(register: Register) -> Cow<'static, str> {
    match register.0 {
        n @ 0..31 => format!("x{n}").into(),
        31 => "sp".into(),
        32 => "nzcv".into(),
        33 => "pc".into(),
        34 => "xzr".into(),
        n @ 64..96 => format!("v{}", n - 64).into(),
        n @ 96..112 => format!("p{}", n - 96).into(),
        112 => "ffr".into(),
        n => format!("?{n}").into(),
    }
}

pub(super) fn named(name: &str) -> Option<Register> {
    match name {
        "sp" | "wsp" => return Some(SP),
        "nzcv" => return Some(NZCV),
        "pc" => return Some(PC),
        "xzr" | "wzr" => return Some(ZERO),
        "fp" => return Some(FP),
        "lr" => return Some(LR),
        "ffr" => return Some(Register(112)),
        _ => {}
    }
    ["x", "w"]
        .iter()
        .find_map(|p| numbered(name, p, X0.0, 31))
        .or_else(|| ["v", "b", "h", "s", "d", "q", "z"].iter().find_map(|p| numbered(name, p, V0.0, 32)))
        .or_else(|| numbered(name, "p", P0.0, 16))
}

/// Returns the width in bits of the part that a name stands for (`w0` 32, `d3` 64, `q3` 128).
pub(crate) fn width_bits(name: &str) -> u16 {
    match name.as_bytes() {
        [b'w', ..] => 32,
        [b'b', ..] => 8,
        [b'h', ..] => 16,
        [b's', digit, ..] if digit.is_ascii_digit() => 32,
        [b'q' | b'v' | b'z', ..] => 128,
        b"nzcv" => 4,
        _ => 64,
    }
}
