//! Divider: busy for longer than its least.

use expect_test::expect;

use super::{blames, in_order, out_of_order};

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
                   - 0 add x5, x5, 1
                 1.0 1 eor x6, x6, x5
                   - 0 cmp x5, x7
                 1.0 1 b.ne loop
            frequency 0 Low, cpi -, best 0.50
                   - 1 ret
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
                   - 1 xor edx, edx
                  static Dependency 9.4..9.4 by add rax, rcx
                  dynamic Divider 0.9..0.9 by div rbx
                10.4 0 div rbx
                  static Dependency 0.9..0.9 by div rbx
                 0.5 0 add rax, rcx
                   - 0 dec rsi
                   - 0 jne loop
            frequency 1 Low, cpi -, best 0.17
                   - 1 ret
            note: frequencies are relative: they rest on 1001 sampled directions, which do not determine their scale on an out-of-order processor
        "#]],
    );
}

/// A callee may end with a division whose result is not used there. The first instruction afterwards that needs the
/// divider waits.
#[test]
fn a_callee_may_have_left_the_divider_busy() {
    blames(
        "loop:
         bl 0x4000
         mul x1, x2, x3
         add x8, x8, 1
         mul x4, x5, x6
         cmp x8, x9
         b.ne loop
         ret",
        &[1000, 31_000, 0, 1000, 1000, 1000, 0],
        expect![[r#"
            mul x1, x2, x3: ICacheMiss 0.0..30.0
            mul x1, x2, x3: Divider 0.0..30.0
            mul x1, x2, x3: ItlbMiss 0.0..20.0
            mul x1, x2, x3: BranchMispredict 0.0..8.0 by bl 0x4000
            cmp x8, x9: Unexplained 1.0..1.0
        "#]],
    );
}
