//! Instruction cache: new lines, and neighbours that testify.

use expect_test::expect;

use super::{blames, in_order};

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
            frequency 0 Low, cpi -, best 0.50
                   - 1 ret
        "#]],
    );
}

#[test]
fn a_line_of_its_predecessors_is_at_hand() {
    blames(
        ".org 0x1004
         loop:
         add x1, x1, 1
         eor x2, x2, x1
         add x3, x3, x2
         eor x4, x4, x3
         cmp x4, x9
         b.ne loop
         ret",
        &[1000, 1000, 9000, 1000, 1000, 1000, 0],
        expect![[r#"
            add x3, x3, x2: Unexplained 8.0..8.0
        "#]],
    );
}

/// The fourth begins a line, of a loop that leaves for nobody.
#[test]
fn a_small_loop_misses_only_when_entered() {
    blames(
        ".org 0x1034
         loop:
         add x1, x1, 1
         eor x2, x2, x1
         add x3, x3, x2
         eor x4, x4, x3
         add x5, x5, x4
         eor x6, x6, x5
         cmp x6, x9
         b.ne loop
         ret",
        &[1000, 1000, 1000, 9000, 1000, 1000, 1000, 1000, 0],
        expect![[r#"
            eor x4, x4, x3: Unexplained 8.0..8.0
        "#]],
    );
}

/// The block behind the branch begins in a line of its predecessor or not; the line that is fallen into costs nothing.
#[test]
fn lines_without_cost_rule_cache_misses_out() {
    blames(
        ".org 0x1034
         loop:
         bl 0x9000
         add x1, x1, 1
         eor x2, x2, x1
         add x3, x3, x2
         eor x4, x4, x3
         add x5, x5, x4
         eor x6, x6, x5
         add x1, x1, x6
         eor x2, x2, x1
         add x3, x3, x2
         eor x4, x4, x3
         add x5, x5, x4
         eor x6, x6, x5
         add x1, x1, x6
         eor x2, x2, x1
         add x3, x3, x2
         eor x4, x4, x3
         add x5, x5, x4
         eor x6, x6, x5
         cmp x1, x6
         b.eq there
         add x5, x5, x4
         there:
         eor x6, x6, x5
         cmp x6, x9
         b.ne loop
         ret",
        &[
            1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000,
            1000, 1000, 1000, 1000, 1000, 500, 9000, 1000, 1000, 0,
        ],
        expect![[r#"
            eor x6, x6, x5: BranchMispredict 8.0..8.0 by b.eq there
        "#]],
    );
}
