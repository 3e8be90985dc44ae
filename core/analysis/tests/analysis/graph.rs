//! Blocks, edges and classes.

use std::collections::BTreeMap;

use dwell_analysis::cfg::Cfg;
use dwell_image::ImageAddress;
use expect_test::{Expect, expect};

use crate::{asm::x86, show};

fn check(text: &str, expected: Expect) {
    check_with(text, &[], expected);
}

fn check_with(text: &str, tables: &[(usize, &[u64])], expected: Expect) {
    let targets: BTreeMap<usize, Vec<ImageAddress>> =
        tables.iter().map(|(i, to)| (*i, to.iter().map(|&t| ImageAddress(t)).collect())).collect();
    expected.assert_eq(&show::graph(&Cfg::build(&x86(text), &targets)));
}

#[test]
fn a_diamond() {
    check(
        "cmp rax, 1
         je else
         add rbx, 1
         jmp join
         else:
         add rbx, 2
         join:
         ret",
        expect![[r#"
            0: 0..2 class 0
            1: 2..4 class 1
            2: 4..5 class 2
            3: 5..6 class 0
            0 -> 2 Taken class 2
            0 -> 1 NotTaken class 1
            1 -> 3 Jump class 1
            2 -> 3 FallThrough class 2
            3 -> exit Leave class 0
            entry -> 0 Enter class 0
        "#]],
    );
}

#[test]
fn a_loop_around_a_call() {
    check(
        "mov rbx, rdi
         loop:
         call 0x9000
         dec rbx
         jne loop
         ret",
        expect![[r#"
            0: 0..1 class 0
            1: 1..4 class 1
            2: 4..5 class 0
            0 -> 1 FallThrough class 0
            1 -> 1 Taken class 2
            1 -> 2 NotTaken class 0
            2 -> exit Leave class 0
            entry -> 0 Enter class 0
        "#]],
    );
}

#[test]
fn an_endless_loop_stays_one_class() {
    check(
        "mov rbx, rdi
         loop:
         add rax, 1
         jmp middle
         middle:
         add rbx, 1
         jmp loop",
        expect![[r#"
            0: 0..1 class 0
            1: 1..3 class 1
            2: 3..5 class 1
            0 -> 1 FallThrough class 0
            1 -> 2 Jump class 1
            2 -> 1 Jump class 2
            2 -> exit Endless class 0
            entry -> 0 Enter class 0
        "#]],
    );
}

#[test]
fn a_call_that_does_not_return_ends_its_block() {
    check(
        "test rdi, rdi
         je fail
         ret
         fail:
         call 0x9000
         ud2",
        expect![[r#"
            0: 0..2 class 0
            1: 2..3 class 1
            2: 3..4 class 2
            3: 4..5 class 3
            0 -> 2 Taken class 2
            0 -> 1 NotTaken class 1
            1 -> exit Leave class 1
            2 -> exit Leave class 2
            3 -> exit Leave class 3
            entry -> 0 Enter class 0
            entry -> 3 Unseen class 3
        "#]],
    );
}

#[test]
fn a_tail_jump_leaves_and_a_landing_pad_is_entered() {
    check(
        "call 0x9000
         jmp 0x8000
         mov rdi, rax
         call 0x9100",
        expect![[r#"
            0: 0..2 class 0
            1: 2..4 class 1
            0 -> exit Leave class 0
            1 -> exit Leave class 1
            entry -> 0 Enter class 0
            entry -> 1 Unseen class 1
        "#]],
    );
}

#[test]
fn a_jump_past_a_prefix_enters_its_instruction() {
    check(
        "cmp rax, 0
         je 0x1009
         lock cmpxchg [rdi], rsi
         ret",
        expect![[r#"
            0: 0..2 class 0
            1: 2..4 class 0
            0 -> 1 Taken class 1
            0 -> 1 NotTaken class 2
            1 -> exit Leave class 0
            entry -> 0 Enter class 0
        "#]],
    );
}

#[test]
fn an_unknown_indirect_jump_leaves_missing_edges() {
    check(
        "lea rdx, [rip + 0x5000]
         movsxd rax, [rdx + rdi*4]
         add rax, rdx
         jmp rax
         mov rax, 1
         ret",
        expect![[r#"
            0: 0..4 class 0
            1: 4..6 class 1
            0 -> exit Leave class 2
            1 -> exit Leave class 3
            entry -> 0 Enter class 4
            entry -> 1 Unseen class 5
            missing edges
        "#]],
    );
}

#[test]
fn a_known_one_branches_many_ways() {
    check_with(
        "jmp rax
         mov rax, 1
         ret
         mov rax, 2
         ret",
        &[(0, &[0x1004, 0x100c, 0x9000])],
        expect![[r#"
            0: 0..1 class 0
            1: 1..3 class 1
            2: 3..5 class 2
            0 -> 1 Table class 1
            0 -> 2 Table class 2
            0 -> exit Table class 3
            1 -> exit Leave class 1
            2 -> exit Leave class 2
            entry -> 0 Enter class 0
        "#]],
    );
}

#[test]
fn a_jump_through_a_method_table_is_a_tail_call() {
    check(
        "mov rax, [rdi]
         mov rax, [rax + 16]
         jmp rax",
        expect![[r#"
            0: 0..3 class 0
            0 -> exit Leave class 0
            entry -> 0 Enter class 0
        "#]],
    );
}

#[test]
fn a_jump_to_a_pointer_tested_before_is_a_tail_call() {
    check(
        "mov rax, [rdi]
         test rax, rax
         je out
         jmp rax
         out:
         ret",
        expect![[r#"
            0: 0..3 class 0
            1: 3..4 class 1
            2: 4..5 class 2
            0 -> 2 Taken class 2
            0 -> 1 NotTaken class 1
            1 -> exit Leave class 1
            2 -> exit Leave class 2
            entry -> 0 Enter class 0
        "#]],
    );
}
