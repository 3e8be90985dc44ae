//! What blocks cost when nothing goes wrong.

use dwell_image::Arch;
use expect_test::{Expect, expect};

use crate::{
    asm::{a64, assemble, x86},
    show::{Case, listing},
};

fn check(case: Case, expected: Expect) {
    expected.assert_eq(&listing(&case));
}

#[test]
fn in_order_pairs_what_may_pair() {
    let code = a64("ldr x0, [x1]
        add x2, x2, x3
        ldr x4, [x1, 8]
        ldr x5, [x1, 16]
        add x6, x0, x4
        mul x7, x6, x6
        sdiv x8, x7, x2
        sdiv x9, x2, x3
        dmb ish
        add x10, x9, x2
        cmp x10, x2
        b.ne 0x1000");
    check(
        Case::new("generic-inorder-2", Arch::Aarch64, code),
        expect![[r#"
        frequency - Low, cpi -, best 2.88
               - 1 ldr x0, [x1]
               - 0 add x2, x2, x3
               - 1 ldr x4, [x1, 8]
              static Slotting 0.5..0.5 by ldr x4, [x1, 8]
               - 1 ldr x5, [x1, 16]
              static Dependency 1.5..1.5 by ldr x4, [x1, 8]
               - 2 add x6, x0, x4
              static Dependency 0.5..0.5 by add x6, x0, x4
               - 1 mul x7, x6, x6
              static Dependency 2.5..2.5 by mul x7, x6, x6
               - 3 sdiv x8, x7, x2
              static FunctionalUnit 11.5..11.5 by sdiv x8, x7, x2
               - 12 sdiv x9, x2, x3
              static Slotting 0.5..0.5
               - 1 dmb ish
              static Slotting 0.5..0.5 by dmb ish
              static Dependency 10.0..10.0 by sdiv x9, x2, x3
               - 11 add x10, x9, x2
              static Dependency 0.5..0.5 by add x10, x9, x2
               - 1 cmp x10, x2
              static Dependency 0.5..0.5 by cmp x10, x2
               - 1 b.ne 0x1000
        note: no estimate: the function has no samples
    "#]],
    );
}

#[test]
fn a_reduction_is_bound_by_its_additions() {
    let code = x86("loop:
        addsd xmm0, [rdi + rcx*8]
        add rcx, 1
        cmp rcx, rdx
        jne loop
        ret");
    check(
        Case::new("amd-zen4", Arch::X86_64, code),
        expect![[r#"
            frequency - Low, cpi -, best 0.75
                  static Dependency 2.5..2.5 by addsd xmm0, [rdi + rcx*8]
                   - 1 addsd xmm0, [rdi + rcx*8]
                   - 0 add rcx, 1
                   - 0 cmp rcx, rdx
                   - 0 jne loop
            frequency - Low, cpi -, best 0.17
                   - 1 ret
            note: no estimate: the function has no samples
        "#]],
    );
}

#[test]
fn a_pointer_chase_is_bound_by_its_load() {
    let code = x86("loop:
        mov rax, [rax]
        dec rcx
        jne loop
        ret");
    check(
        Case::new("amd-zen4", Arch::X86_64, code),
        expect![[r#"
            frequency - Low, cpi -, best 1.33
                  static Dependency 3.7..3.7 by mov rax, [rax]
                   - 1 mov rax, [rax]
                   - 0 dec rcx
                   - 0 jne loop
            frequency - Low, cpi -, best 0.17
                   - 1 ret
            note: no estimate: the function has no samples
        "#]],
    );
}

#[test]
fn a_variable_in_memory_is_forwarded_from_store_to_load() {
    let code = x86("loop:
        mov rax, [rbp + 8]
        add rax, 1
        mov [rbp + 8], rax
        cmp rax, rdx
        jne loop
        ret");
    check(
        Case::new("amd-zen4", Arch::X86_64, code),
        expect![[r#"
            frequency - Low, cpi -, best 1.20
                  static Dependency 3.6..3.6 by mov [rbp + 8], rax
                   - 1 mov rax, [rbp + 8]
                  static Dependency 0.9..0.9 by mov rax, [rbp + 8]
                   - 0 add rax, 1
                  static Dependency 0.8..0.8 by add rax, 1
                   - 0 mov [rbp + 8], rax
                   - 0 cmp rax, rdx
                   - 0 jne loop
            frequency - Low, cpi -, best 0.17
                   - 1 ret
            note: no estimate: the function has no samples
        "#]],
    );
}

#[test]
fn divisions_keep_their_unit() {
    let code = x86("loop:
        mov rax, rsi
        xor edx, edx
        div rdi
        mov [rbx], rax
        mov rax, r8
        xor edx, edx
        div r9
        mov [rbx + 8], rax
        dec rcx
        jne loop
        ret");
    check(
        Case::new("amd-zen4", Arch::X86_64, code),
        expect![[r#"
            frequency - Low, cpi -, best 1.20
                   - 1 mov rax, rsi
                   - 0 xor edx, edx
                  static FunctionalUnit 5.2..5.2 by div rdi
                   - 0 div rdi
                   - 0 mov [rbx], rax
                   - 0 mov rax, r8
                   - 0 xor edx, edx
                  static FunctionalUnit 5.2..5.2 by div r9
                   - 0 div r9
                   - 0 mov [rbx + 8], rax
                   - 0 dec rcx
                   - 0 jne loop
            frequency - Low, cpi -, best 0.17
                   - 1 ret
            note: no estimate: the function has no samples
        "#]],
    );
}

#[test]
fn wide_code_is_bound_by_the_front_end() {
    let code = x86("loop:
        add rax, 1
        add rbx, 1
        add rsi, 1
        add rdi, 1
        mov r9, r10
        mov r11, r12
        mov r13, r14
        dec rcx
        jne loop
        ret");
    check(
        Case::new("intel-skylake", Arch::X86_64, code),
        expect![[r#"
            frequency - Low, cpi -, best 0.22
                   - 1 add rax, 1
                   - 0 add rbx, 1
                   - 0 add rsi, 1
                   - 0 add rdi, 1
                   - 1 mov r9, r10
                   - 0 mov r11, r12
                   - 0 mov r13, r14
                   - 0 dec rcx
                   - 0 jne loop
            frequency - Low, cpi -, best 0.25
                   - 1 ret
            note: no estimate: the function has no samples
        "#]],
    );
}

/// The cycles between issues (M), one after the other.
fn check_issue(machine: &str, arch: Arch, text: &str, expected: Expect) {
    let case = Case::new(machine, arch, assemble(arch, text));
    let analysis = case.analyze();
    let cycles = analysis.instructions.iter().map(|c| c.issue_cycles_min.to_string());
    expected.assert_eq(&cycles.collect::<Vec<_>>().join(" "));
}

/// Load to arithmetic 2, to an address 3, to store data 1; arithmetic to arithmetic 1, to store data 0.
#[test]
fn cortex_a53_forwards() {
    let a53 = |text, expected| check_issue("arm-cortex-a53", Arch::Aarch64, text, expected);
    a53("ldr x0, [x1]\nadd x2, x0, x0", expect!["1 2"]);
    a53("ldr x0, [x1]\nldr x2, [x0]", expect!["1 3"]);
    a53("ldr x0, [x1]\nstr x0, [x2]", expect!["1 1"]);
    a53("add x0, x1, x1\nadd x2, x0, x0", expect!["1 1"]);
    a53("add x0, x1, x1\nldr x2, [x0]", expect!["1 3"]);
    a53("add x0, x1, x1\nstr x0, [x2]", expect!["1 0"]);
    a53("mul x0, x1, x1\nmul x2, x0, x0", expect!["1 3"]);
    a53("fadd d0, d1, d1\nfmul d2, d0, d0", expect!["1 4"]);
}

/// Two of arithmetic, one access to memory, one multiplication; a divider that keeps busy.
#[test]
fn cortex_a53_pairs() {
    let a53 = |text, expected| check_issue("arm-cortex-a53", Arch::Aarch64, text, expected);
    a53("add x0, x1, x1\nadd x2, x3, x3\nadd x4, x5, x5", expect!["1 0 1"]);
    a53("ldr x0, [x1]\nstr x2, [x3]", expect!["1 1"]);
    a53("mul x0, x1, x1\nmul x2, x3, x3", expect!["1 1"]);
    a53("sdiv x0, x1, x1\nadd x2, x3, x3\nsdiv x4, x5, x5", expect!["1 0 4"]);
    a53("cmp x0, x1\nb.ne 0x1000", expect!["1 1"]);
    a53("add x0, x1, x1\ndmb ish\nadd x2, x3, x3", expect!["1 1 1"]);
}

/// Beside what the A53 does: a load with a store, and an addition with one that needs it (LLVM's A55-*.s).
#[test]
fn cortex_a55_pairs() {
    let a55 = |text, expected| check_issue("arm-cortex-a55", Arch::Aarch64, text, expected);
    a55("ldr x0, [x1]\nstr x2, [x3]", expect!["1 0"]);
    a55("ldr x0, [x1]\nldr x2, [x3]", expect!["1 1"]);
    a55("add x0, x1, x1\nadd x2, x0, x0", expect!["1 0"]);
    a55("add x0, x1, x1\nlsl x2, x0, 3", expect!["1 1"]);
    a55("add x0, x1, x1\nldr x2, [x0]", expect!["1 1"]);
    a55("fadd d0, d1, d1\nfadd d2, d3, d3", expect!["1 0"]);
}

/// Three of arithmetic; a load beside a load or a store, but one store; 32-bit multiplications pipelined.
#[test]
fn cortex_a510_pairs() {
    let a510 = |text, expected| check_issue("arm-cortex-a510", Arch::Aarch64, text, expected);
    a510("add x0, x1, x1\nadd x2, x3, x3\nadd x4, x5, x5\nadd x6, x7, x7", expect!["1 0 0 1"]);
    a510("ldr x0, [x1]\nldr x2, [x3]\nldr x4, [x5]", expect!["1 0 1"]);
    a510("ldr x0, [x1]\nstr x2, [x3]\nldr x4, [x5]", expect!["1 0 1"]);
    a510("str x0, [x1]\nstr x2, [x3]", expect!["1 1"]);
    a510("add x0, x1, x1\nldr x2, [x0]\nadd x3, x2, x2", expect!["1 1 2"]);
    a510("mul w0, w1, w1\nmul w2, w3, w3", expect!["1 1"]);
}

/// A load pairs with anything but another access to memory; pipe B takes one of multiply, divide, branch, floating.
#[test]
fn sifive_u74_pairs() {
    let u74 = |text, expected| check_issue("sifive-u74", Arch::Riscv64, text, expected);
    u74("ld x10, [x11]\nadd x12, x10, x10", expect!["1 1"]);
    u74("ld x10, [x11]\nld x12, [x10]", expect!["1 3"]);
    u74("add x10, x11, x11\nld x12, [x10]", expect!["1 1"]);
    u74("ld x10, [x11]\nmul x12, x13, x13", expect!["1 0"]);
    u74("mul x10, x11, x11\nmul x12, x13, x13", expect!["1 1"]);
    u74("div x10, x11, x11\nmul x12, x13, x13\ndiv x14, x15, x15", expect!["1 1 5"]);
    u74("add x10, x11, x11\nadd x12, x13, x13\nadd x14, x15, x15", expect!["1 0 1"]);
}
