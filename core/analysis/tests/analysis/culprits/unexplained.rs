//! What nothing explains is said to be unexplained.

use expect_test::expect;

use super::{in_order, in_order_case, out_of_order};

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
            frequency 0 Low, cpi -, best 0.50
                   - 1 ret
        "#]],
    );
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
                   - 1 mov rcx, rsi
                  static FunctionalUnit 0.2..0.2 by rep stosq
                  dynamic Unexplained 0.7..0.7
                 1.0 0 rep stosq
                   - 0 ret
            note: frequencies rest on cycles alone, which say little about them on an out-of-order processor
        "#]],
    );
}

/// The division was hidden behind the miss before it. The code was faster than the model's best case, and this is
/// reported.
#[test]
fn a_latency_behind_a_stall_is_a_gain() {
    let case = in_order_case(
        "loop:
         sdiv x1, x2, x3
         ldr x4, [x4]
         add x5, x5, x4
         add x6, x6, x1
         eor x7, x7, x8
         add x8, x8, 1
         cmp x8, x9
         b.ne loop
         ret",
        &[1000, 1000, 30000, 0, 1000, 1000, 1000, 1000, 0],
    );
    let analysis = case.analyze();
    let gains: Vec<f64> = analysis.instructions.iter().map(|i| i.gain_cycles.round()).collect();
    assert!(gains[3] > 4.0 && gains.iter().enumerate().all(|(i, &g)| i == 3 || g == 0.0), "{gains:?}");
}
