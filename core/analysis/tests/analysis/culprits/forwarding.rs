//! Store forwarding that fails.

use expect_test::expect;

use super::{blames, blames_out_of_order};

#[test]
fn a_load_that_needs_more_than_the_store_holds() {
    blames_out_of_order(
        "loop:
         mov [rdi+4], rax
         mov rbx, [rdi]
         add rax, rbx
         dec rcx
         jne loop
         ret",
        &[0, 0, 9000, 100, 0, 0],
        &[(4, 1000, 1)],
        expect![[r#"
            mov rbx, [rdi]: StoreForwarding 10.7..11.6 by mov [rdi+4], rax
            mov rbx, [rdi]: DCacheMiss 0.0..0.9 by mov rbx, [rdi]
        "#]],
    );
}

/// The simulated core knows no such wait: what the load waits for is its line.
#[test]
fn a_core_that_does_not_wait_is_not_accused() {
    blames(
        "loop:
         str w1, [x0, 4]
         ldr x2, [x0]
         add x0, x0, x5
         add x3, x3, x2
         cmp x0, x9
         b.ne loop
         ret",
        &[1000, 1000, 0, 11000, 0, 1000, 0],
        expect![[r#"
            add x3, x3, x2: DCacheMiss 8.0..8.0 by ldr x2, [x0]
        "#]],
    );
}

#[test]
fn a_load_of_what_was_stored_is_forwarded() {
    blames_out_of_order(
        "loop:
         mov [rdi], rax
         mov rbx, [rdi]
         add rax, rbx
         dec rcx
         jne loop
         ret",
        &[0, 0, 9000, 100, 0, 0],
        &[(4, 1000, 1)],
        expect![[r#"
            mov rbx, [rdi]: Unexplained 31.2..31.2
        "#]],
    );
}

#[test]
fn a_moved_base_proves_nothing() {
    blames_out_of_order(
        "loop:
         mov [rdi+4], rax
         mov rdi, [rsi]
         mov rbx, [rdi]
         add rax, rbx
         dec rcx
         jne loop
         ret",
        &[0, 0, 0, 9000, 100, 0, 0],
        &[(5, 1000, 1)],
        expect![[r#"
            mov rbx, [rdi]: DCacheMiss 0.0..14.8 by mov rbx, [rdi]
            mov rbx, [rdi]: DtlbMiss 0.0..14.8 by mov rbx, [rdi]
        "#]],
    );
}
