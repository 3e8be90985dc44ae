//! Numbers of the RISC-V registers.

use std::borrow::Cow;

use super::register::{Register, numbered};

/// Register `x0`, which is always 0; number 0. It is only an operand, never read or written. `x1` to `x31` have the numbers
/// 1 to 31.
pub const ZERO: Register = Register(0);
/// Return address (`x1`), number 1.
pub const RA: Register = Register(1);
/// Stack pointer (`x2`), number 2.
pub const SP: Register = Register(2);
/// Alternate link register (`x5`), number 5.
pub const T0: Register = Register(5);
/// Register `f0`, number 32. `f0` to `f31` have the numbers 32 to 63.
pub const F0: Register = Register(32);
/// Register `v0`, number 64. `v0` to `v31` have the numbers 64 to 95.
pub const V0: Register = Register(64);
/// Program counter, number 96.
pub const PC: Register = Register(96);
/// Rounding mode and exception flags of floating point, number 97.
pub const FCSR: Register = Register(97);

/// Names of `x0` to `x31` in the calling convention.
const INTEGER: [&str; 32] = [
    "zero", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "s0", "s1", "a0", "a1", "a2", "a3", "a4", "a5", "a6",
    "a7", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "t3", "t4", "t5", "t6",
];

/// Names of `f0` to `f31` in the calling convention.
const FLOAT: [&str; 32] = [
    "ft0", "ft1", "ft2", "ft3", "ft4", "ft5", "ft6", "ft7", "fs0", "fs1", "fa0", "fa1", "fa2", "fa3", "fa4",
    "fa5", "fa6", "fa7", "fs2", "fs3", "fs4", "fs5", "fs6", "fs7", "fs8", "fs9", "fs10", "fs11", "ft8",
    "ft9", "ft10", "ft11",
];

pub(super) fn name(register: Register) -> Cow<'static, str> {
    match register.0 {
        n @ 0..32 => INTEGER[usize::from(n)].into(),
        n @ 32..64 => FLOAT[usize::from(n - 32)].into(),
        n @ 64..96 => format!("v{}", n - 64).into(),
        96 => "pc".into(),
        97 => "fcsr".into(),
        n => format!("?{n}").into(),
    }
}

pub(super) fn named(name: &str) -> Option<Register> {
    let at =
        |names: &[&str], first: u8| names.iter().position(|n| *n == name).map(|n| Register(first + n as u8));
    match name {
        "pc" => Some(PC),
        "fcsr" => Some(FCSR),
        "fp" => Some(Register(8)),
        _ => at(&INTEGER, 0)
            .or_else(|| at(&FLOAT, F0.0))
            .or_else(|| numbered(name, "x", 0, 32))
            .or_else(|| numbered(name, "f", F0.0, 32))
            .or_else(|| numbered(name, "v", V0.0, 32)),
    }
}
