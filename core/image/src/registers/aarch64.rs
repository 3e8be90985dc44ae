//! AArch64 register numbers.

use std::borrow::Cow;

use super::register::{Register, numbered};

/// 0. `x0` to `x30` are 0 to 30.
pub const X0: Register = Register(0);
/// 29. The frame pointer.
pub const FP: Register = Register(29);
/// 30. The link register.
pub const LR: Register = Register(30);
/// 31.
pub const SP: Register = Register(31);
/// 32. The condition flags.
pub const NZCV: Register = Register(32);
/// 33.
pub const PC: Register = Register(33);
/// 34. `xzr` and `wzr`; an operand only, never read or written.
pub const ZERO: Register = Register(34);
/// 64. `v0` to `v31` (`b`, `h`, `s`, `d`, `q` and SVE's `z` are parts) are 64 to 95.
pub const V0: Register = Register(64);
/// 96. SVE's predicates `p0` to `p15` are 96 to 111.
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

/// How many bits of its register a name means (`w0` 32, `d3` 64, `q3` 128).
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
