//! Decodes the 16-bit instructions of RISC-V (Unprivileged ISA 20191213, §16 "C").

use super::riscv_builder::{Builder, f, field, signed, x};
use crate::Flow;
use crate::riscv::{RA, SP, ZERO};

pub(super) fn decode(word: u32, out: &mut Builder) {
    match word & 3 {
        0 => quadrant_0(word, out),
        1 => quadrant_1(word, out),
        _ => quadrant_2(word, out),
    }
}

/// Assembles an immediate from pieces: each is (bit of the instruction, width, bit of the result).
fn gather<const N: usize>(word: u32, pieces: [(u32, u32, u32); N]) -> u32 {
    pieces.iter().fold(0, |sum, (from, bits, to)| sum | field(word, *from, *bits) << to)
}

/// Returns the number of a register in a three-bit field, which stands for `x8` to `x15` or `f8` to `f15`.
fn short(word: u32, low: u32) -> u32 {
    8 + field(word, low, 3)
}

fn quadrant_0(word: u32, out: &mut Builder) {
    let (low, base) = (short(word, 2), x(short(word, 7)));
    let by_4: i64 = gather(word, [(10, 3, 3), (6, 1, 2), (5, 1, 6)]).into();
    let by_8: i64 = gather(word, [(10, 3, 3), (5, 2, 6)]).into();
    match field(word, 13, 3) {
        // An instruction of all zeros is defined to be illegal.
        0 if field(word, 5, 8) == 0 => out.flow(Flow::Stop),
        0 => {
            let immediate = gather(word, [(11, 2, 4), (7, 4, 6), (6, 1, 2), (5, 1, 3)]);
            out.write(x(low)).read(SP).immediate(immediate.into());
        }
        1 => out.write(f(low)).load(base, by_8, 8),
        2 => out.write(x(low)).load(base, by_4, 4),
        3 => out.write(x(low)).load(base, by_8, 8),
        5 => out.read(f(low)).store(base, by_8, 8),
        6 => out.read(x(low)).store(base, by_4, 4),
        7 => out.read(x(low)).store(base, by_8, 8),
        _ => {}
    }
}

fn quadrant_1(word: u32, out: &mut Builder) {
    let rd = x(field(word, 7, 5));
    let immediate = signed(gather(word, [(12, 1, 5), (2, 5, 0)]), 6);
    match field(word, 13, 3) {
        0 | 1 => _ = out.update(rd).immediate(immediate),
        2 => _ = out.write(rd).immediate(immediate),
        3 if rd == SP => {
            let pieces = [(12, 1, 9), (6, 1, 4), (5, 1, 6), (3, 2, 7), (2, 1, 5)];
            out.update(SP).immediate(signed(gather(word, pieces), 10));
        }
        3 => _ = out.write(rd).immediate(immediate << 12),
        4 => arithmetic(word, immediate, out),
        5 => {
            let pieces =
                [(12, 1, 11), (11, 1, 4), (9, 2, 8), (8, 1, 10), (7, 1, 6), (6, 1, 7), (3, 3, 1), (2, 1, 5)];
            out.jump(ZERO, signed(gather(word, pieces), 12));
        }
        _ => {
            let pieces = [(12, 1, 8), (10, 2, 3), (5, 2, 6), (3, 2, 1), (2, 1, 5)];
            out.read(x(short(word, 7))).branch(signed(gather(word, pieces), 9));
        }
    }
}

fn arithmetic(word: u32, immediate: i64, out: &mut Builder) {
    out.update(x(short(word, 7)));
    match field(word, 10, 2) {
        3 => _ = out.read(x(short(word, 2))),
        // The immediates of shifts are unsigned.
        0 | 1 => _ = out.immediate(immediate & 63),
        _ => _ = out.immediate(immediate),
    }
}

fn quadrant_2(word: u32, out: &mut Builder) {
    let (rd, rs2) = (field(word, 7, 5), field(word, 2, 5));
    let load_8: i64 = gather(word, [(12, 1, 5), (5, 2, 3), (2, 3, 6)]).into();
    let load_4: i64 = gather(word, [(12, 1, 5), (4, 3, 2), (2, 2, 6)]).into();
    let store_8: i64 = gather(word, [(10, 3, 3), (7, 3, 6)]).into();
    let store_4: i64 = gather(word, [(9, 4, 2), (7, 2, 6)]).into();
    match field(word, 13, 3) {
        0 => _ = out.update(x(rd)).immediate(gather(word, [(12, 1, 5), (2, 5, 0)]).into()),
        1 => out.write(f(rd)).load(SP, load_8, 8),
        2 => out.write(x(rd)).load(SP, load_4, 4),
        3 => out.write(x(rd)).load(SP, load_8, 8),
        4 => register_operation(field(word, 12, 1) == 1, rd, rs2, out),
        5 => out.read(f(rs2)).store(SP, store_8, 8),
        6 => out.read(x(rs2)).store(SP, store_4, 4),
        _ => out.read(x(rs2)).store(SP, store_8, 8),
    }
}

/// Decodes `jr`, `mv`, `ebreak`, `jalr` and `add`, which share one encoding.
fn register_operation(bit_12: bool, rd: u32, rs2: u32, out: &mut Builder) {
    match (bit_12, rd, rs2) {
        (false, _, 0) => out.read(x(rd)).jump_register(ZERO, x(rd)),
        (false, ..) => _ = out.write(x(rd)).read(x(rs2)),
        (true, 0, 0) => out.flow(Flow::Stop),
        (true, _, 0) => out.read(x(rd)).jump_register(RA, x(rd)),
        (true, ..) => _ = out.update(x(rd)).read(x(rs2)),
    }
}
