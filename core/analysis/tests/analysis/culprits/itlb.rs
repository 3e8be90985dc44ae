//! Instruction TLB: new pages.

use expect_test::expect;

use super::blames;

/// What returns comes from another page.
#[test]
fn a_new_page_behind_a_call() {
    blames(
        ".org 0x1ffc
         loop:
         bl 0x9000
         add x1, x1, 1
         eor x2, x2, x1
         add x3, x3, x2
         cmp x3, x9
         b.ne loop
         ret",
        &[1000, 20000, 1000, 1000, 1000, 1000, 0],
        expect![[r#"
            add x1, x1, 1: ICacheMiss 0.0..19.0
            add x1, x1, 1: ItlbMiss 0.0..19.0
            add x1, x1, 1: DCacheMiss 0.0..19.0
            add x1, x1, 1: BranchMispredict 0.0..8.0 by bl 0x9000
        "#]],
    );
}

#[test]
fn within_a_page_it_is_innocent() {
    blames(
        ".org 0x103c
         loop:
         add x4, x4, 1
         add x1, x1, x4
         eor x2, x2, x1
         add x3, x3, x2
         cmp x3, x9
         b.ne loop
         ret",
        &[1000, 20000, 1000, 1000, 1000, 1000, 0],
        expect![[r#"
            add x1, x1, x4: Unexplained 19.0..19.0
        "#]],
    );
}
