//! Data TLB: the access itself, unless it stays in its page.

use expect_test::expect;

use super::blames;

/// The access itself waits; its user does not, as the line is at hand.
#[test]
fn a_walk_from_page_to_page() {
    blames(
        "loop:
         ldr x1, [x2]
         add x2, x2, x5
         add x3, x3, x1
         add x8, x8, 1
         cmp x8, x9
         b.ne loop
         ret",
        &[20000, 0, 3000, 0, 1000, 1000, 0],
        expect![[r#"
            ldr x1, [x2]: DtlbMiss 19.0..19.0 by ldr x1, [x2]
        "#]],
    );
}

#[test]
fn a_load_whose_user_does_not_wait_is_innocent() {
    blames(
        "loop:
         ldr x2, [x2]
         ldr x3, [x2]
         add x4, x4, x3
         add x8, x8, 1
         cmp x8, x9
         b.ne loop
         ret",
        &[4000, 3000, 3000, 0, 1000, 1000, 0],
        expect![[r#"
            ldr x2, [x2]: BranchMispredict 2.7..3.0 by b.ne loop
            ldr x2, [x2]: DtlbMiss 0.0..0.3 by ldr x2, [x2]
        "#]],
    );
}

/// A store into the caller's page waits for anything but a translation.
#[test]
fn the_top_of_the_stack_was_just_in_use() {
    blames(
        "str x1, [sp, 16]
         loop:
         add x2, x2, 1
         eor x3, x3, x2
         add x8, x8, 1
         cmp x8, x9
         b.ne loop
         ret",
        &[30000, 1000, 1000, 0, 1000, 1000, 0],
        expect![[r#"
            str x1, [sp, 16]: ICacheMiss 0.0..32.5
            str x1, [sp, 16]: DCacheMiss 0.0..32.5
            str x1, [sp, 16]: WriteBuffer 0.0..32.5 by str x1, [sp, 16]
            str x1, [sp, 16]: ItlbMiss 0.0..20.0
        "#]],
    );
}
