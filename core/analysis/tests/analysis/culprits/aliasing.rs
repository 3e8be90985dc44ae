//! 4K aliasing.

use expect_test::expect;

use super::blames_out_of_order;

#[test]
fn a_load_that_looks_like_the_store() {
    blames_out_of_order(
        "loop:
         mov [rdi], rax
         mov rbx, [rdi+8192]
         add rax, rbx
         dec rcx
         jne loop
         ret",
        &[0, 0, 9000, 100, 0, 0],
        &[(4, 1000, 1)],
        expect![[r#"
            mov rbx, [rdi+8192]: Aliasing4K 10.7..11.6 by mov [rdi], rax
            mov rbx, [rdi+8192]: DCacheMiss 0.0..0.9 by mov rbx, [rdi+8192]
        "#]],
    );
}

#[test]
fn a_load_that_does_not() {
    blames_out_of_order(
        "loop:
         mov [rdi], rax
         mov rbx, [rdi+8200]
         add rax, rbx
         dec rcx
         jne loop
         ret",
        &[0, 0, 9000, 100, 0, 0],
        &[(4, 1000, 1)],
        expect![[r#"
            mov rbx, [rdi+8200]: DCacheMiss 0.9..0.9 by mov rbx, [rdi+8200]
            mov rbx, [rdi+8200]: Unexplained 10.7..10.7
        "#]],
    );
}
