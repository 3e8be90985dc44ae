//! Upper bounds from samples of other events.

use crate::{
    asm::a64,
    show::{Case, listing},
};
use dwell_image::Arch;
use dwell_profile::Event;
use expect_test::expect;

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
               - 0 add x4, x4, 1
             1.0 1 eor x5, x5, x4
               - 0 cmp x4, x7
             1.0 1 b.ne loop
        frequency 0 Low, cpi -, best 0.50
               - 1 ret
    "#]];
    expected.assert_eq(&listing(&case));
}

/// Mispredictions were counted in a twentieth of the executions, a little more by chance: at 8 cycles, the most on this core, they
/// explain a small part of what the head of the target lost.
#[test]
fn counted_mispredictions_bound_what_they_cost() {
    let mut case = Case::new(
        "generic-inorder-2",
        Arch::Aarch64,
        a64("loop:
             cmp x1, x2
             b.eq other
             add x3, x3, x4
             eor x8, x8, x3
             other:
             eor x5, x5, x6
             subs x7, x7, x5
             b.ne loop
             ret"),
    );
    case.samples = vec![1000, 0, 500, 500, 4000, 1000, 1000, 0];
    case.directions = vec![(0, 0), (500, 500), (0, 0), (0, 0), (0, 0), (0, 0), (999, 1), (0, 0)];
    case.period_cycles = Some(100_000.0);
    case.events.insert(Event::named("branch-misses"), (vec![0, 50, 0, 0, 0, 0, 0, 0], 100_000));
    let expected = expect![[r#"
        frequency 1000 Medium, cpi 0.50, best 0.75
             1.0 1 cmp x1, x2
              static Dependency 0.5..0.5 by cmp x1, x2
               - 1 b.eq other
        frequency 500 High, cpi 1.00, best 0.75
             1.0 1 add x3, x3, x4
              static Dependency 0.5..0.5 by add x3, x3, x4
             1.0 1 eor x8, x8, x3
        frequency 1000 Medium, cpi 2.00, best 0.67
              dynamic BranchMispredict 0.6..0.6 by b.eq other
              dynamic Unexplained 2.4..2.4
             4.0 1 eor x5, x5, x6
              static Dependency 0.5..0.5 by eor x5, x5, x6
             1.0 1 subs x7, x7, x5
              dynamic Unexplained 1.0..1.0
             1.0 0 b.ne loop
        frequency 0 Low, cpi -, best 0.50
               - 1 ret
    "#]];
    expected.assert_eq(&listing(&case));
}
