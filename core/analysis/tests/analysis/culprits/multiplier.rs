//! Multiplier: results of another block.

use expect_test::expect;

use super::blames;

#[test]
fn a_product_in_another_block_may_be_to_blame() {
    blames(
        "loop:
         add x8, x8, 1
         mul x1, x2, x3
         b next
         next:
         add x4, x4, x1
         eor x5, x5, x4
         cmp x8, x9
         b.ne loop
         ret",
        &[1000, 0, 1000, 3500, 1000, 1000, 1000, 0],
        expect![[r#"
            add x4, x4, x1: Multiplier 1.5..1.5 by mul x1, x2, x3
            cmp x8, x9: Unexplained 1.0..1.0
        "#]],
    );
}

#[test]
fn without_a_product_the_multiplier_is_not_blamed() {
    blames(
        "loop:
         add x8, x8, 1
         eor x1, x1, x8
         b next
         next:
         add x4, x4, x1
         eor x5, x5, x4
         cmp x8, x9
         b.ne loop
         ret",
        &[1000, 1000, 1000, 3500, 1000, 1000, 1000, 0],
        expect![[r#"
            b next: Unexplained 1.0..1.0
            add x4, x4, x1: Unexplained 2.5..2.5
            cmp x8, x9: Unexplained 1.0..1.0
        "#]],
    );
}
