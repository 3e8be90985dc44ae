//! Synchronization: barriers, locked operations, releasing stores.

use expect_test::expect;

use super::{blames, out_of_order};

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
            frequency 500 Low, cpi 5.00, best 3.00
                  static Dependency 11.5..11.5 by lock add [rdi], rax
                  dynamic Synchronization 6.4..7.9 by lock add [rdi], rax
                  dynamic ICacheMiss 0.0..0.7
                  dynamic DCacheMiss 0.0..0.7 by lock add [rdi], rax
                19.6 1 lock add [rdi], rax
                 0.2 0 add rbx, 1
                 0.2 0 cmp rbx, rsi
                   - 0 jne loop
            frequency 0 Low, cpi -, best 0.17
                   - 1 ret
            note: frequencies are relative: they rest on 1001 sampled directions, which do not determine their scale on an out-of-order processor
        "#]],
    );
}

#[test]
fn a_barrier() {
    blames(
        "loop:
         add x8, x8, 1
         dmb
         eor x1, x1, x8
         add x2, x2, x1
         cmp x8, x9
         b.ne loop
         ret",
        &[1000, 30000, 1000, 1000, 0, 1000, 0],
        expect![[r#"
            dmb: Synchronization 29.0..29.0 by dmb
        "#]],
    );
}

#[test]
fn a_releasing_store() {
    blames(
        "loop:
         add x8, x8, 1
         stlr x8, [x2]
         eor x1, x1, x8
         add x4, x4, x1
         cmp x8, x9
         b.ne loop
         ret",
        &[1000, 30000, 0, 1000, 0, 1000, 0],
        expect![[r#"
            stlr x8, [x2]: Synchronization 29.0..29.0 by stlr x8, [x2]
        "#]],
    );
}
