//! Write buffer: stores that come faster than they can leave.

use expect_test::expect;

use super::{blames, out_of_order};

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
            frequency 1095 Low, cpi 2.28, best 0.25
                  dynamic DtlbMiss 0.0..8.8 by mov [rdi], rax
                  dynamic WriteBuffer 0.0..8.8 by mov [rdi], rax
                  dynamic ICacheMiss 0.0..0.7
                 8.9 1 mov [rdi], rax
                  static Dependency 0.5..0.5 by add rdi, 4096
                   - 0 add rdi, 4096
                   - 0 cmp rdi, rsi
                   - 0 jne loop
            frequency 1 Low, cpi -, best 0.17
                   - 1 ret
            note: frequencies are relative: they rest on 1001 sampled directions, which do not determine their scale on an out-of-order processor
        "#]],
    );
}

#[test]
fn stores_that_stay_in_a_line_leave_at_once() {
    blames(
        "loop:
         str x1, [x2]
         add x1, x1, 1
         eor x3, x3, x1
         add x4, x4, x3
         eor x5, x5, x4
         add x8, x8, 1
         cmp x8, x9
         b.ne loop
         ret",
        &[9000, 1000, 1000, 1000, 1000, 0, 1000, 1000, 0],
        expect![[r#"
            str x1, [x2]: BranchMispredict 8.0..8.0 by b.ne loop
            add x1, x1, 1: Unexplained 1.0..1.0
        "#]],
    );
}

#[test]
fn stores_to_new_lines_do_not() {
    blames(
        "loop:
         str x1, [x2]
         add x2, x2, 64
         eor x3, x3, x1
         add x4, x4, x3
         eor x5, x5, x4
         add x8, x8, 1
         cmp x8, x9
         b.ne loop
         ret",
        &[90000, 0, 1000, 1000, 1000, 0, 1000, 1000, 0],
        expect![[r#"
            str x1, [x2]: WriteBuffer 89.0..89.0 by str x1, [x2]
        "#]],
    );
}
