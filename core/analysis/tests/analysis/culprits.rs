//! One small program for each cause, its samples as such a machine would give them, and who is to blame.

use dwell_image::Arch;
use dwell_profile::Event;
use expect_test::{Expect, expect};

use crate::{
    asm::{a64, x86},
    show::{Case, listing},
};

/// In order: samples are where the time goes.
fn in_order(text: &str, samples: &[u64], expected: Expect) {
    let mut case = Case::new("generic-inorder-2", Arch::Aarch64, a64(text));
    case.samples = samples.to_vec();
    expected.assert_eq(&listing(&case));
}

/// Out of order: samples are one instruction later than the time goes.
fn out_of_order(text: &str, samples: &[u64], directions: &[(usize, u64, u64)], expected: Expect) {
    let mut case = Case::new("amd-zen4", Arch::X86_64, x86(text));
    case.samples = samples.to_vec();
    directions.iter().for_each(|&(i, taken, not)| case.directions[i] = (taken, not));
    expected.assert_eq(&listing(&case));
}

#[test]
fn in_order_data_cache_miss_of_the_load_that_feeds_the_store() {
    in_order(
        "loop:
         ldr x4, [x1]
         add x0, x0, 4
         ldr x5, [x1, 8]
         ldr x6, [x1, 16]
         add x1, x1, 32
         str x4, [x2]
         add x7, x7, 1
         str x5, [x2, 8]
         add x2, x2, 32
         cmp x0, x3
         b.ne loop
         ret",
        &[1000, 0, 1010, 1005, 0, 18000, 0, 998, 0, 1002, 1001, 0],
        expect![[r#"
            frequency 1003 High, cpi 2.18, best 0.59
                 1.0 1 ldr x4, [x1]
                 0.0 0 add x0, x0, 4
                 1.0 1 ldr x5, [x1, 8]
                  static Slotting 0.5..0.5 by ldr x5, [x1, 8]
                 1.0 1 ldr x6, [x1, 16]
                 0.0 0 add x1, x1, 32
                  dynamic DCacheMiss 0.0..17.0 by ldr x4, [x1]
                  dynamic WriteBuffer 0.0..17.0 by str x4, [x2]
                18.0 1 str x4, [x2]
                 0.0 0 add x7, x7, 1
                 1.0 1 str x5, [x2, 8]
                 0.0 0 add x2, x2, 32
                 1.0 1 cmp x0, x3
                  static Dependency 0.5..0.5 by cmp x0, x3
                 1.0 1 b.ne loop
            frequency 0 Low, cpi 0.00, best 0.50
                 0.0 1 ret
        "#]],
    );
}

#[test]
fn in_order_divider_is_slower_than_its_least() {
    in_order(
        "loop:
         sdiv x1, x2, x3
         add x4, x1, x4
         add x5, x5, 1
         eor x6, x6, x5
         cmp x5, x7
         b.ne loop
         ret",
        &[1000, 25000, 0, 1010, 0, 1000, 0],
        expect![[r#"
            frequency 1003 High, cpi 4.65, best 2.42
                 1.0 1 sdiv x1, x2, x3
                  static Dependency 11.5..11.5 by sdiv x1, x2, x3
                  dynamic Divider 12.9..12.9 by sdiv x1, x2, x3
                24.9 12 add x4, x1, x4
                 0.0 0 add x5, x5, 1
                 1.0 1 eor x6, x6, x5
                 0.0 0 cmp x5, x7
                 1.0 1 b.ne loop
            frequency 0 Low, cpi 0.00, best 0.50
                 0.0 1 ret
        "#]],
    );
}

#[test]
fn in_order_instruction_cache_miss_at_the_start_of_a_line() {
    in_order(
        ".org 0x102c
         loop:
         bl 0x9000
         add x1, x1, 1
         eor x2, x2, x1
         add x3, x3, x2
         eor x4, x4, x3
         add x5, x5, x4
         eor x6, x6, x5
         cmp x6, x7
         b.ne loop
         ret",
        &[1000, 1000, 1003, 998, 1005, 9000, 1001, 1002, 1000, 0],
        expect![[r#"
            frequency 1001 High, cpi 1.89, best 0.94
                 1.0 1 bl 0x9000
                  static Slotting 0.5..0.5 by bl 0x9000
                 1.0 1 add x1, x1, 1
                  static Dependency 0.5..0.5 by add x1, x1, 1
                 1.0 1 eor x2, x2, x1
                  static Dependency 0.5..0.5 by eor x2, x2, x1
                 1.0 1 add x3, x3, x2
                  static Dependency 0.5..0.5 by add x3, x3, x2
                 1.0 1 eor x4, x4, x3
                  static Dependency 0.5..0.5 by eor x4, x4, x3
                  dynamic ICacheMiss 8.0..8.0
                 9.0 1 add x5, x5, x4
                  static Dependency 0.5..0.5 by add x5, x5, x4
                 1.0 1 eor x6, x6, x5
                  static Dependency 0.5..0.5 by eor x6, x6, x5
                 1.0 1 cmp x6, x7
                  static Dependency 0.5..0.5 by cmp x6, x7
                 1.0 1 b.ne loop
            frequency 0 Low, cpi 0.00, best 0.50
                 0.0 1 ret
        "#]],
    );
}

#[test]
fn in_order_mispredicted_branch_at_the_heads_it_leads_to() {
    in_order(
        "loop:
         ldr x1, [x2]
         add x2, x2, 8
         cmp x1, x3
         b.ne other
         add x4, x4, x1
         eor x5, x5, x4
         b join
         other:
         add x6, x6, x1
         eor x7, x7, x6
         join:
         cmp x2, x8
         b.ne loop
         ret",
        &[1000, 0, 3000, 1010, 3500, 500, 0, 3400, 502, 1000, 1005, 0],
        expect![[r#"
            frequency 1003 High, cpi 1.25, best 1.12
                 1.0 1 ldr x1, [x2]
                 0.0 0 add x2, x2, 8
                  static Dependency 2.0..2.0 by ldr x1, [x2]
                 3.0 3 cmp x1, x3
                  static Dependency 0.5..0.5 by cmp x1, x3
                 1.0 1 b.ne other
            frequency 500 Medium, cpi 2.66, best 0.67
                  dynamic BranchMispredict 6.0..6.0 by b.ne other
                 7.0 1 add x4, x4, x1
                  static Dependency 0.5..0.5 by add x4, x4, x1
                 1.0 1 eor x5, x5, x4
                 0.0 0 b join
            frequency 502 Medium, cpi 3.88, best 0.75
                  dynamic BranchMispredict 5.8..5.8 by b.ne other
                 6.8 1 add x6, x6, x1
                  static Dependency 0.5..0.5 by add x6, x6, x1
                 1.0 1 eor x7, x7, x6
            frequency 1003 High, cpi 1.00, best 0.75
                 1.0 1 cmp x2, x8
                  static Dependency 0.5..0.5 by cmp x2, x8
                 1.0 1 b.ne loop
            frequency 0 Low, cpi 0.00, best 0.50
                 0.0 1 ret
        "#]],
    );
}

#[test]
fn a_stall_that_nothing_explains_says_so() {
    in_order(
        "loop:
         add x1, x1, 1
         eor x2, x2, x1
         add x3, x3, x2
         eor x4, x4, x3
         cmp x4, x7
         b.ne loop
         ret",
        &[1000, 1003, 9000, 1005, 1001, 1000, 0],
        expect![[r#"
            frequency 1002 High, cpi 2.33, best 0.92
                 1.0 1 add x1, x1, 1
                  static Dependency 0.5..0.5 by add x1, x1, 1
                 1.0 1 eor x2, x2, x1
                  static Dependency 0.5..0.5 by eor x2, x2, x1
                  dynamic Unexplained 8.0..8.0
                 9.0 1 add x3, x3, x2
                  static Dependency 0.5..0.5 by add x3, x3, x2
                 1.0 1 eor x4, x4, x3
                  static Dependency 0.5..0.5 by eor x4, x4, x3
                 1.0 1 cmp x4, x7
                  static Dependency 0.5..0.5 by cmp x4, x7
                 1.0 1 b.ne loop
            frequency 0 Low, cpi 0.00, best 0.50
                 0.0 1 ret
        "#]],
    );
}

#[test]
fn pointer_chase() {
    out_of_order(
        "mov rcx, 1000
         loop:
         mov rax, [rax]
         dec rcx
         jne loop
         ret",
        &[0, 6, 9990, 0, 4],
        &[(3, 999, 1)],
        expect![[r#"
            frequency 1 Low, cpi 0.02, best 0.17
                 0.0 1 mov rcx, 1000
            frequency 387 Low, cpi 8.61, best 1.33
                  static Dependency 3.7..3.7 by mov rax, [rax]
                  dynamic DCacheMiss 0.0..22.0 by mov rax, [rax]
                  dynamic DtlbMiss 0.0..22.0 by mov rax, [rax]
                25.8 1 mov rax, [rax]
                 0.0 0 dec rcx
                 0.0 0 jne loop
            frequency 1 Low, cpi 0.00, best 0.17
                 0.0 1 ret
            note: frequencies are relative: they rest on 1000 sampled directions, which on an out-of-order machine do not fix their scale
        "#]],
    );
}

#[test]
fn store_miss() {
    out_of_order(
        "loop:
         mov [rdi], rax
         add rdi, 4096
         cmp rdi, rsi
         jne loop
         ret",
        &[100, 9800, 100, 0, 0],
        &[(3, 1000, 1)],
        expect![[r#"
            frequency 1549 Low, cpi 1.61, best 0.25
                  dynamic DtlbMiss 0.0..6.2 by mov [rdi], rax
                  dynamic WriteBuffer 0.0..6.2 by mov [rdi], rax
                  dynamic ICacheMiss 0.0..0.8
                 6.3 1 mov [rdi], rax
                  static Dependency 0.5..0.5 by add rdi, 4096
                 0.1 0 add rdi, 4096
                 0.1 0 cmp rdi, rsi
                 0.0 0 jne loop
            frequency 2 Low, cpi 0.00, best 0.17
                 0.0 1 ret
            note: frequencies are relative: they rest on 1001 sampled directions, which on an out-of-order machine do not fix their scale
        "#]],
    );
}

#[test]
fn locked_operation() {
    out_of_order(
        "loop:
         lock add [rdi], rax
         add rbx, 1
         cmp rbx, rsi
         jne loop
         ret",
        &[100, 9800, 100, 0, 0],
        &[(3, 1000, 1)],
        expect![[r#"
            frequency 707 Low, cpi 3.54, best 3.00
                  static Dependency 11.5..11.5 by lock add [rdi], rax
                  dynamic Synchronization 0.0..2.2 by lock add [rdi], rax
                  dynamic ICacheMiss 0.0..1.2
                  dynamic DCacheMiss 0.0..1.2 by lock add [rdi], rax
                  dynamic ItlbMiss 0.0..0.2
                  dynamic DtlbMiss 0.0..0.2 by lock add [rdi], rax
                  dynamic BranchMispredict 0.0..0.1 by jne loop
                13.9 1 lock add [rdi], rax
                 0.1 0 add rbx, 1
                 0.1 0 cmp rbx, rsi
                 0.0 0 jne loop
            frequency 1 Low, cpi 0.00, best 0.17
                 0.0 1 ret
            note: frequencies are relative: they rest on 1001 sampled directions, which on an out-of-order machine do not fix their scale
        "#]],
    );
}

#[test]
fn divide_chain_is_static_first() {
    out_of_order(
        "loop:
         xor edx, edx
         div rbx
         add rax, rcx
         dec rsi
         jne loop
         ret",
        &[50, 10, 9500, 440, 0, 0],
        &[(4, 1000, 1)],
        expect![[r#"
            frequency 909 Low, cpi 2.20, best 2.20
                 0.0 1 xor edx, edx
                  static Dependency 9.4..9.4 by add rax, rcx
                  dynamic Divider 0.9..0.9 by div rbx
                10.4 0 div rbx
                  static Dependency 0.9..0.9 by div rbx
                 0.5 0 add rax, rcx
                 0.1 0 dec rsi
                 0.0 0 jne loop
            frequency 1 Low, cpi 0.00, best 0.17
                 0.0 1 ret
            note: frequencies are relative: they rest on 1001 sampled directions, which on an out-of-order machine do not fix their scale
        "#]],
    );
}

#[test]
fn mispredicted_branches() {
    out_of_order(
        "loop:
         mov rax, [rdi]
         add rdi, 8
         cmp rax, rbx
         jl other
         add rcx, rax
         add r9, 1
         jmp join
         other:
         add rdx, rax
         add r8, 1
         join:
         cmp rdi, rsi
         jne loop
         ret",
        &[500, 300, 300, 0, 800, 1500, 400, 800, 1500, 500, 0, 0],
        &[(3, 500, 480), (10, 990, 1)],
        expect![[r#"
            frequency 2025 Low, cpi 0.27, best 0.12
                 0.1 1 mov rax, [rdi]
                 0.1 0 add rdi, 8
                  dynamic DCacheMiss 0.0..0.6 by mov rax, [rdi]
                  dynamic BranchMispredict 0.0..0.6 by jl other
                  dynamic DtlbMiss 0.0..0.2 by mov rax, [rdi]
                 0.8 0 cmp rax, rbx
                 0.0 0 jl other
            frequency 960 Low, cpi 0.74, best 0.17
                  dynamic BranchMispredict 1.4..1.4 by jl other
                 1.6 1 add rcx, rax
                  dynamic Unexplained 0.3..0.3
                 0.4 0 add r9, 1
                 0.2 0 jmp join
            frequency 1065 Low, cpi 0.83, best 0.17
                  dynamic BranchMispredict 1.2..1.2 by jl other
                 1.4 1 add rdx, rax
                 0.2 0 add r8, 1
            frequency 2025 Low, cpi 0.12, best 0.08
                 0.2 1 cmp rdi, rsi
                 0.0 0 jne loop
            frequency 1 Low, cpi 0.00, best 0.17
                 0.0 1 ret
            note: frequencies are relative: they rest on 1971 sampled directions, which on an out-of-order machine do not fix their scale
        "#]],
    );
}

#[test]
fn a_branch_that_always_goes_one_way_is_innocent() {
    out_of_order(
        "loop:
         mov rax, [rdi]
         add rdi, 8
         cmp rax, rbx
         jl other
         add rcx, rax
         add r9, 1
         other:
         cmp rdi, rsi
         jne loop
         ret",
        &[500, 300, 3000, 0, 1, 0, 500, 0, 0],
        &[(3, 100_000, 1), (7, 99_000, 1)],
        expect![[r#"
            frequency 3226 Low, cpi 0.29, best 0.12
                 0.1 1 mov rax, [rdi]
                  dynamic Unexplained 0.8..0.8
                 0.9 0 add rdi, 8
                 0.2 0 cmp rax, rbx
                 0.0 0 jl other
            frequency 0 Low, cpi 0.08, best 0.17
                 0.0 1 add rcx, rax
                 0.2 0 add r9, 1
            frequency 3226 Low, cpi 0.08, best 0.08
                 0.2 1 cmp rdi, rsi
                 0.0 0 jne loop
            frequency 0 Low, cpi 0.00, best 0.17
                 0.0 1 ret
            note: frequencies are relative: they rest on 199002 sampled directions, which on an out-of-order machine do not fix their scale
        "#]],
    );
}

#[test]
fn system_call() {
    out_of_order(
        "loop:
         mov eax, edx
         syscall
         add rbx, 1
         cmp rbx, rsi
         jne loop
         ret",
        &[100, 100, 9000, 100, 0, 0],
        &[(4, 1000, 1)],
        expect![[r#"
            frequency 6975 Low, cpi 0.27, best 0.20
                 0.0 1 mov eax, edx
                  dynamic System 1.1..1.1 by syscall
                 1.3 0 syscall
                  static Dependency 0.3..0.3 by add rbx, 1
                 0.0 0 add rbx, 1
                 0.0 0 cmp rbx, rsi
                 0.0 0 jne loop
            frequency 2 Low, cpi 0.00, best 0.17
                 0.0 1 ret
            note: frequencies are relative: they rest on 1001 sampled directions, which on an out-of-order machine do not fix their scale
        "#]],
    );
}

/// Few cache misses were counted, so the data cache cannot explain all of the stall.
#[test]
fn event_samples_bound_a_cause() {
    let mut case = Case::new(
        "generic-inorder-2",
        Arch::Aarch64,
        a64("loop:
             ldr x1, [x2]
             add x3, x3, x1
             add x4, x4, 1
             eor x5, x5, x4
             cmp x4, x7
             b.ne loop
             ret"),
    );
    case.samples = vec![1000, 30000, 0, 1000, 0, 1010, 0];
    case.period_cycles = Some(100_000.0);
    case.events.insert(Event::named("L1-dcache-load-misses"), (vec![0, 100, 0, 0, 0, 0, 0], 100_000));
    case.events.insert(Event::named("dTLB-load-misses"), (vec![0; 7], 100_000));
    let expected = expect![[r#"
        frequency 1003 High, cpi 5.48, best 0.92
             1.0 1 ldr x1, [x2]
              static Dependency 2.5..2.5 by ldr x1, [x2]
              dynamic DCacheMiss 14.3..14.3 by ldr x1, [x2]
              dynamic Unexplained 12.6..12.6
            29.9 3 add x3, x3, x1
             0.0 0 add x4, x4, 1
             1.0 1 eor x5, x5, x4
             0.0 0 cmp x4, x7
             1.0 1 b.ne loop
        frequency 0 Low, cpi 0.00, best 0.50
             0.0 1 ret
    "#]];
    expected.assert_eq(&listing(&case));
}

/// Samples on a repeating string instruction are its own.
#[test]
fn string_instructions_keep_their_samples() {
    out_of_order(
        "mov rcx, rsi
         rep stosq
         ret",
        &[0, 9500, 500],
        &[],
        expect![[r#"
            frequency 10000 Low, cpi 0.33, best 0.22
                 0.0 1 mov rcx, rsi
                  static FunctionalUnit 0.2..0.2 by rep stosq
                  dynamic Unexplained 0.7..0.7
                 1.0 0 rep stosq
                 0.0 0 ret
            note: frequencies rest on cycles alone, which on an out-of-order machine say little about them
        "#]],
    );
}
