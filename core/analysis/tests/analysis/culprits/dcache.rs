//! Data cache: which load, and which loads cannot have missed.

use expect_test::expect;

use super::{blames, blames_out_of_order, in_order, out_of_order};

#[test]
fn in_order_data_cache_miss_of_the_load_that_feeds_the_store() {
    in_order(
        "loop:
         ldr x4, [x1]
         add x0, x0, 4
         ldr x5, [x1, 8]
         ldr x6, [x1, 16]
         add x1, x1, 32
         str x4, [x2]
         add x7, x7, 1
         str x5, [x2, 8]
         add x2, x2, 32
         cmp x0, x3
         b.ne loop
         ret",
        &[1000, 0, 1010, 1005, 0, 18000, 0, 998, 0, 1002, 1001, 0],
        expect![[r#"
            frequency 1003 High, cpi 2.18, best 0.59
                 1.0 1 ldr x4, [x1]
                   - 0 add x0, x0, 4
                 1.0 1 ldr x5, [x1, 8]
                  static Slotting 0.5..0.5 by ldr x5, [x1, 8]
                 1.0 1 ldr x6, [x1, 16]
                   - 0 add x1, x1, 32
                  dynamic DCacheMiss 0.0..17.0 by ldr x4, [x1]
                  dynamic WriteBuffer 0.0..17.0 by str x4, [x2]
                18.0 1 str x4, [x2]
                   - 0 add x7, x7, 1
                 1.0 1 str x5, [x2, 8]
                   - 0 add x2, x2, 32
                 1.0 1 cmp x0, x3
                  static Dependency 0.5..0.5 by cmp x0, x3
                 1.0 1 b.ne loop
            frequency 0 Low, cpi -, best 0.50
                   - 1 ret
        "#]],
    );
}

#[test]
fn pointer_chase() {
    out_of_order(
        "mov rcx, 1000
         loop:
         mov rax, [rax]
         dec rcx
         jne loop
         ret",
        &[0, 6, 9990, 0, 4],
        &[(3, 999, 1)],
        expect![[r#"
            frequency 0 Low, cpi 0.17, best 0.17
                   - 1 mov rcx, 1000
            frequency 222 Low, cpi 15.00, best 1.33
                  static Dependency 3.7..3.7 by mov rax, [rax]
                  dynamic DCacheMiss 0.0..41.1 by mov rax, [rax]
                  dynamic DtlbMiss 0.0..41.1 by mov rax, [rax]
                44.9 1 mov rax, [rax]
                   - 0 dec rcx
                   - 0 jne loop
            frequency 0 Low, cpi -, best 0.17
                   - 1 ret
            note: frequencies are relative: they rest on 1000 sampled directions, which do not determine their scale on an out-of-order processor
        "#]],
    );
}

/// A busy host gives the processor back in the middle of the wait: some samples land on the load itself. As CI had them.
#[test]
fn a_pointer_chase_on_a_busy_host() {
    blames_out_of_order(
        "mov rcx, 1000
         loop:
         mov rax, [rax]
         dec rcx
         jne loop
         ret",
        &[0, 38, 450, 0, 4],
        &[(3, 37, 0)],
        expect![[r#"
            mov rax, [rax]: DCacheMiss 0.0..12.7 by mov rax, [rax]
            mov rax, [rax]: DtlbMiss 0.0..12.7 by mov rax, [rax]
            mov rax, [rax]: BranchMispredict 0.0..2.5 by jne loop
            dec rcx: BranchMispredict 1.4..1.4 by jne loop
        "#]],
    );
}

/// Its line was touched an iteration ago: only the first execution can miss.
#[test]
fn a_load_whose_address_stays_is_innocent() {
    blames(
        "loop:
         ldr x1, [x2]
         add x3, x3, x1
         add x8, x8, 1
         cmp x8, x9
         b.ne loop
         ret",
        &[1000, 9000, 0, 1000, 1000, 0],
        expect![[r#"
            add x3, x3, x1: Unexplained 6.0..6.0
        "#]],
    );
}

/// Eight bytes on each time: an eighth of memory's 110 cycles is the most.
#[test]
fn a_load_that_walks_misses_once_in_a_line() {
    blames(
        "loop:
         ldr x1, [x2]
         add x2, x2, 8
         add x3, x3, x1
         add x8, x8, 1
         cmp x8, x9
         b.ne loop
         ret",
        &[1000, 0, 60000, 0, 1000, 1000, 0],
        expect![[r#"
            add x3, x3, x1: DCacheMiss 13.8..13.8 by ldr x1, [x2]
            add x3, x3, x1: Unexplained 43.2..43.2
        "#]],
    );
}

/// The second field of a node lies in the line of the first one, except for one node in eight.
#[test]
fn a_neighbour_that_was_waited_for_brought_the_line() {
    blames(
        "loop:
         ldr x2, [x2]
         ldr x3, [x2]
         add x4, x4, x3
         ldr x5, [x2, 8]
         add x6, x6, x5
         add x8, x8, 1
         cmp x8, x9
         b.ne loop
         ret",
        &[1000, 30000, 40000, 1000, 9000, 0, 1000, 1000, 0],
        expect![[r#"
            ldr x3, [x2]: DCacheMiss 2.0..27.0 by ldr x2, [x2]
            ldr x3, [x2]: DtlbMiss 0.0..25.0 by ldr x3, [x2]
            add x4, x4, x3: DCacheMiss 37.0..37.0 by ldr x3, [x2]
            ldr x5, [x2, 8]: Unexplained 1.0..1.0
            add x6, x6, x5: DCacheMiss 6.0..6.0 by ldr x5, [x2, 8]
        "#]],
    );
}

/// Three loads before it keep all places.
#[test]
fn a_load_waits_for_places_of_outstanding_misses() {
    blames(
        "loop:
         ldr x1, [x10]
         ldr x2, [x11]
         ldr x3, [x12]
         ldr x4, [x13]
         add x10, x10, 64
         add x11, x11, 64
         add x12, x12, 64
         add x13, x13, 64
         add x8, x8, 1
         cmp x8, x9
         b.ne loop
         ret",
        &[1000, 1000, 1000, 60000, 0, 1000, 0, 1000, 0, 1000, 1000, 0],
        expect![[r#"
            ldr x4, [x13]: DCacheMiss 0.0..59.0 by ldr x3, [x12]
            ldr x4, [x13]: DCacheMiss 0.0..59.0 by ldr x2, [x11]
            ldr x4, [x13]: DCacheMiss 0.0..59.0 by ldr x1, [x10]
        "#]],
    );
}

/// The value was loaded by the caller.
#[test]
fn an_argument_may_still_be_on_its_way() {
    blames(
        "add x1, x0, 1
         loop:
         add x2, x2, 1
         eor x3, x3, x2
         add x8, x8, 1
         cmp x8, x9
         b.ne loop
         ret",
        &[30000, 1000, 1000, 0, 1000, 1000, 0],
        expect![[r#"
            add x1, x0, 1: ICacheMiss 0.0..32.5
            add x1, x0, 1: DCacheMiss 0.0..32.5
            add x1, x0, 1: ItlbMiss 0.0..20.0
        "#]],
    );
}
