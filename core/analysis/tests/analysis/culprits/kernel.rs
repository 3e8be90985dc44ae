//! The kernel: system calls and page faults.

use dwell_profile::Event;
use expect_test::expect;

use super::{blames, in_order_case, out_of_order};
use crate::show::listing;

#[test]
fn system_call() {
    out_of_order(
        "loop:
         mov eax, edx
         syscall
         add rbx, 1
         cmp rbx, rsi
         jne loop
         ret",
        &[100, 100, 9000, 100, 0, 0],
        &[(4, 1000, 1)],
        expect![[r#"
            frequency 6975 Low, cpi 0.27, best 0.20
                   - 1 mov eax, edx
                  dynamic System 1.1..1.1 by syscall
                 1.3 0 syscall
                  static Dependency 0.3..0.3 by add rbx, 1
                   - 0 add rbx, 1
                   - 0 cmp rbx, rsi
                   - 0 jne loop
            frequency 2 Low, cpi -, best 0.17
                   - 1 ret
            note: frequencies are relative: they rest on 1001 sampled directions, which do not determine their scale on an out-of-order processor
        "#]],
    );
}

#[test]
fn what_follows_a_system_call() {
    blames(
        "loop:
         add x8, x8, 1
         svc
         eor x1, x1, x8
         add x2, x2, x1
         cmp x8, x9
         b.ne loop
         ret",
        &[1000, 1000, 90000, 1000, 0, 1000, 0],
        expect![[r#"
            eor x1, x1, x8: ICacheMiss 0.0..89.0
            eor x1, x1, x8: System 0.0..89.0 by svc
            eor x1, x1, x8: ItlbMiss 0.0..20.0
        "#]],
    );
}

/// Samples in the kernel are charged to who entered it, and explain nothing of the instruction's own cycles. Two samples
/// may be those of any instruction that was interrupted.
#[test]
fn time_in_the_kernel() {
    let text = "loop:
         str x1, [x2]
         add x8, x8, 1
         svc
         eor x1, x1, x8
         cmp x8, x9
         b.ne loop
         ret";
    let mut case = in_order_case(text, &[1000, 0, 1000, 1000, 0, 1000, 0]);
    case.events.insert(Event::KERNEL_TIME, (vec![4000, 0, 900, 2, 0, 0, 0], 0));
    expect![[r#"
        frequency 1000 High, cpi 0.67, best 0.58
              in the kernel: PageFault 4.0
             1.0 1 str x1, [x2]
               - 0 add x8, x8, 1
              in the kernel: System 0.9
             1.0 1 svc
              static Slotting 0.5..0.5 by svc
             1.0 1 eor x1, x1, x8
               - 0 cmp x8, x9
             1.0 1 b.ne loop
        frequency 0 Low, cpi -, best 0.50
               - 1 ret
    "#]]
    .assert_eq(&listing(&case));
}

/// Such a store may still be one of those whose buffer is full.
#[test]
fn longer_than_any_miss_is_a_page_fault() {
    blames(
        "loop:
         str x1, [x2]
         add x2, x2, x5
         eor x3, x3, x1
         add x4, x4, x3
         eor x5, x5, x4
         add x8, x8, 1
         cmp x8, x9
         b.ne loop
         ret",
        &[900000, 0, 1000, 1000, 1000, 0, 1000, 1000, 0],
        expect![[r#"
            str x1, [x2]: PageFault 794.0..899.0 by str x1, [x2]
            str x1, [x2]: WriteBuffer 0.0..105.0 by str x1, [x2]
        "#]],
    );
}
