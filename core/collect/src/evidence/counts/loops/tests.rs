//! Tests loops of many kinds, read from the listing of an assembled file, and random code.

use std::fmt::Write;

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;

/// Returns the bytes of the listing, and the offsets of its labels.
fn fixture() -> (Vec<u8>, Vec<(String, u64)>) {
    let (mut bytes, mut labels) = (Vec::new(), Vec::new());
    for line in include_str!("fixture.objdump").lines() {
        if let Some((offset, label)) = line.strip_suffix(">:").and_then(|l| l.split_once(" <")) {
            labels.push((label.to_owned(), u64::from_str_radix(offset, 16).unwrap()));
        }
        let Some(code) = line.split('\t').nth(1).filter(|_| line.starts_with(' ')) else { continue };
        bytes.extend(code.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()));
    }
    (bytes, labels)
}

fn explore(code: &[u8], start: u64) -> Loops {
    Loops::explore(start, &mut |offset, bytes| {
        let rest = code.get(offset as usize..).unwrap_or_default();
        let length = rest.len().min(bytes.len());
        bytes[..length].copy_from_slice(&rest[..length]);
        length
    })
}

fn counters_of(code: &[u8], start: u64) -> Vec<Counter> {
    explore(code, start).counters_at(start).cloned().collect()
}

fn name(register: Register) -> &'static str {
    const NAMES: [&str; 18] = [
        "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "rip", "flags", "r8", "r9", "r10", "r11",
        "r12", "r13", "r14", "r15",
    ];
    NAMES[usize::from(register.0)]
}

/// Checks the counters at the instruction `within` bytes after a label. Offsets are relative to the label.
fn check(label: &str, within: u64, expected: Expect) {
    let (code, labels) = fixture();
    let start = labels.iter().find(|(l, _)| l == label).unwrap().1;
    let mut text = String::new();
    for counter in counters_of(&code, start + within) {
        let at = |offset: u64| format!("{:x}", offset.wrapping_sub(start));
        let step = match counter.step {
            Step::Constant(step) => step.to_string(),
            Step::Register(by) => name(by).to_owned(),
            Step::Negated(by) => format!("-{}", name(by)),
        };
        let body: Vec<String> =
            counter.body.iter().map(|b| format!("{}..{}", at(b.start), at(b.end))).collect();
        let exits: Vec<String> = counter.exits.iter().map(|exit| at(*exit)).collect();
        let written: Vec<&str> = RegisterSet::all().without(counter.invariants).iter().map(name).collect();
        writeln!(
            text,
            "{}: {}/{} += {step} ({} parts), body {}, exits {}, writes {}, calls {}, least {}",
            at(counter.writer),
            name(counter.register),
            counter.width_bits,
            counter.parts,
            body.join(" "),
            exits.join(" "),
            written.join(" "),
            counter.has_calls,
            counter.instructions_min
        )
        .unwrap();
    }
    expected.assert_eq(&text);
}

#[test]
fn simple_loops() {
    check(
        "sum",
        0,
        expect![[r#"
        3: rdi/64 += 8 (1 parts), body 0..c, exits c, writes rax rdi, calls false, least 3
    "#]],
    );
    check(
        "sum",
        3,
        expect![[r#"
        3: rdi/64 += 8 (1 parts), body 0..c, exits c, writes rax rdi, calls false, least 3
    "#]],
    );
    check(
        "two",
        2,
        expect![[r#"
        2: rdx/64 += 1 (1 parts), body 0..a, exits a, writes rax rcx rdx, calls false, least 3
        5: rcx/32 += -1 (1 parts), body 0..a, exits a, writes rax rcx rdx, calls false, least 3
    "#]],
    );
    check(
        "falls",
        0,
        expect![[r#"
        0: rax/64 += -rdx (1 parts), body 0..11, exits 11, writes rax rcx r8 r9, calls false, least 4
        3: rcx/64 += rdx (1 parts), body 0..11, exits 11, writes rax rcx r8 r9, calls false, least 4
        7: r8/64 += rdx (1 parts), body 0..11, exits 11, writes rax rcx r8 r9, calls false, least 4
        b: r9/32 += -3 (1 parts), body 0..11, exits 11, writes rax rcx r8 r9, calls false, least 4
    "#]],
    );
}

#[test]
fn nested_loops() {
    check(
        "nested",
        5,
        expect![[r#"
        8: rdi/64 += 16 (1 parts), body 5..11, exits 11, writes rax rdi, calls false, least 3
        11: r10/64 += r9 (1 parts), body 0..5 5..11 11..1c, exits 1c, writes rax rdi r8 r10 r11, calls false, least 8
        14: r11/64 += r9 (1 parts), body 0..5 5..11 11..1c, exits 1c, writes rax rdi r8 r10 r11, calls false, least 8
        17: r8/64 += -1 (1 parts), body 0..5 5..11 11..1c, exits 1c, writes rax rdi r8 r10 r11, calls false, least 8
    "#]],
    );
    check(
        "nested",
        0x11,
        expect![[r#"
        11: r10/64 += r9 (1 parts), body 0..5 5..11 11..1c, exits 1c, writes rax rdi r8 r10 r11, calls false, least 8
        14: r11/64 += r9 (1 parts), body 0..5 5..11 11..1c, exits 1c, writes rax rdi r8 r10 r11, calls false, least 8
        17: r8/64 += -1 (1 parts), body 0..5 5..11 11..1c, exits 1c, writes rax rdi r8 r10 r11, calls false, least 8
    "#]],
    );
}

#[test]
fn calls_change_what_they_may() {
    check(
        "calls",
        0,
        expect![[r#"
        b: rbx/64 += 4 (1 parts), body 0..14, exits 14, writes rax rbx rcx rdx rsi rdi r8 r9 r10 r11, calls true, least 5
    "#]],
    );
    check(
        "pushes",
        0,
        expect![[r#"
        7: r12/64 += 1 (1 parts), body 0..14, exits 14, writes rax rcx rdx rsi rdi rsp r8 r9 r10 r11 r12 r13, calls true, least 8
        f: r13/64 += -1 (1 parts), body 0..14, exits 14, writes rax rcx rdx rsi rdi rsp r8 r9 r10 r11 r12 r13, calls true, least 8
    "#]],
    );
}

#[test]
fn several_additions() {
    check(
        "conditional",
        0,
        expect![[r#"
        5: rdx/64 += 1 (1 parts), body 0..5 5..8 8..10, exits 10, writes rdx rdi, calls false, least 4
        8: rdi/64 += 1 (1 parts), body 0..5 5..8 8..10, exits 10, writes rdx rdi, calls false, least 3
    "#]],
    );
    check(
        "unrolled",
        0,
        expect![[r#"
        5: rdi/64 += 2 (2 parts), body 0..5 5..d d..12, exits 12, writes rdi, calls false, least 5
    "#]],
    );
    check(
        "either",
        0,
        expect![[r#"
        5: rdi/64 += 1 (1 parts), body 0..5 5..b f..14, exits b 14, writes rdi, calls false, least 4
        b: rdi/64 += 2 (1 parts), body 0..5 b..f f..14, exits 5 14, writes rdi, calls false, least 3
    "#]],
    );
}

#[test]
fn no_counters() {
    for label in ["straight", "switch", "other"] {
        check(label, 0, expect![[""]]);
    }
    check(
        "reset",
        0,
        expect![[r#"
        7: rax/64 += -1 (1 parts), body 0..c, exits c, writes rax rcx, calls false, least 3
    "#]],
    );
    check(
        "partial",
        0,
        expect![[r#"
        7: rdx/32 += -1 (1 parts), body 0..b, exits b, writes rdx rsi rdi, calls false, least 3
    "#]],
    );
    check(
        "grows",
        0,
        expect![[r#"
        3: rbx/64 += 1 (1 parts), body 0..b, exits b, writes rax rbx, calls false, least 3
    "#]],
    );
    check("sum", 0xc, expect![[""]]);
}

#[test]
fn a_loop_looks_the_same_from_all_its_instructions() {
    let (code, _) = fixture();
    for start in 0..code.len() as u64 {
        for counter in counters_of(&code, start) {
            let same = |found: &Counter| found.writer == counter.writer && found.register == counter.register;
            // Bytes in the middle of an instruction may be decoded as other code, which is no loop of this kind.
            for block in &counter.body {
                let again = counters_of(&code, block.start);
                let found = again.iter().find(|c| same(c));
                assert!(found.is_some_and(|f| f.step == counter.step && f.width_bits == counter.width_bits));
            }
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_are_explored(code in proptest::collection::vec(any::<u8>(), 0..300), at in 0..300_u64) {
        counters_of(&code, at).iter().for_each(|counter| assert!(verify_counter(counter)));
    }

    /// Random code that consists of short jumps in both directions and of additions contains many loops.
    #[test]
    fn loops_of_any_shape(code in proptest::collection::vec(shape(), 1..80), at in 0..40_u64) {
        let code = code.concat();
        let loops = explore(&code, at);
        loops.counters.iter().for_each(|counter| assert!(verify_counter(counter)));
        for block in &loops.body {
            let mut inside = block.start;
            while block.contains(&inside) && loops.are_those_of(inside) {
                prop_assert_eq!(&explore(&code, inside).counters, &loops.counters, "from {:x} and {:x}", at, inside);
                inside = InstructionDecoder::default().decode(&code[inside as usize..], inside).unwrap().next;
            }
        }
    }
}

fn shape() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        (0_u8..16, any::<i8>()).prop_map(|(condition, to)| vec![0x70 | condition, to as u8]),
        any::<i8>().prop_map(|to| vec![0xeb, to as u8]),
        (0_u8..8).prop_map(|register| vec![0x48, 0xff, 0xc0 | register]),
        (0_u8..8, any::<i8>()).prop_map(|(register, by)| vec![0x83, 0xc0 | register, by as u8]),
        (0_u8..64).prop_map(|registers| vec![0x89, 0xc0 | registers]),
        Just(vec![0xc3]),
    ]
}

#[test]
fn addresses_at_the_end_of_the_space() {
    let endless = Loops::explore(u64::MAX - 3, &mut |_, bytes| {
        bytes.fill(0xeb);
        bytes.len()
    });
    assert_eq!(endless.counters_at(u64::MAX - 3).count(), 0);
    assert_eq!(Loops::explore(u64::MAX, &mut |_, _| 0).counters_at(u64::MAX).count(), 0);
}
