//! Branch misprediction: the heads that a branch leads to.

use expect_test::expect;

use super::{blames, in_order, out_of_order};

#[test]
fn in_order_mispredicted_branch_at_the_heads_it_leads_to() {
    in_order(
        "loop:
         ldr x1, [x2]
         add x2, x2, 8
         cmp x1, x3
         b.ne other
         add x4, x4, x1
         eor x5, x5, x4
         b join
         other:
         add x6, x6, x1
         eor x7, x7, x6
         join:
         cmp x2, x8
         b.ne loop
         ret",
        &[1000, 0, 3000, 1010, 3500, 500, 0, 3400, 502, 1000, 1005, 0],
        expect![[r#"
            frequency 1003 High, cpi 1.25, best 1.12
                 1.0 1 ldr x1, [x2]
                   - 0 add x2, x2, 8
                  static Dependency 2.0..2.0 by ldr x1, [x2]
                 3.0 3 cmp x1, x3
                  static Dependency 0.5..0.5 by cmp x1, x3
                 1.0 1 b.ne other
            frequency 504 Low, cpi 2.65, best 0.67
                  dynamic BranchMispredict 5.9..5.9 by b.ne other
                 6.9 1 add x4, x4, x1
                  static Dependency 0.5..0.5 by add x4, x4, x1
                 1.0 1 eor x5, x5, x4
                   - 0 b join
            frequency 499 Low, cpi 3.91, best 0.75
                  dynamic BranchMispredict 5.8..5.8 by b.ne other
                 6.8 1 add x6, x6, x1
                  static Dependency 0.5..0.5 by add x6, x6, x1
                 1.0 1 eor x7, x7, x6
            frequency 1003 High, cpi 1.00, best 0.75
                 1.0 1 cmp x2, x8
                  static Dependency 0.5..0.5 by cmp x2, x8
                 1.0 1 b.ne loop
            frequency 0 Low, cpi -, best 0.50
                   - 1 ret
        "#]],
    );
}

#[test]
fn mispredicted_branches() {
    out_of_order(
        "loop:
         mov rax, [rdi]
         add rdi, 8
         cmp rax, rbx
         jl other
         add rcx, rax
         add r9, 1
         jmp join
         other:
         add rdx, rax
         add r8, 1
         join:
         cmp rdi, rsi
         jne loop
         ret",
        &[500, 300, 300, 0, 800, 1500, 400, 800, 1500, 500, 0, 0],
        &[(3, 500, 480), (10, 990, 1)],
        expect![[r#"
            frequency 2025 Low, cpi 0.27, best 0.12
                   - 1 mov rax, [rdi]
                   - 0 add rdi, 8
                  dynamic DCacheMiss 0.0..0.6 by mov rax, [rdi]
                  dynamic BranchMispredict 0.0..0.6 by jl other
                  dynamic DtlbMiss 0.0..0.4 by mov rax, [rdi]
                 0.8 0 cmp rax, rbx
                   - 0 jl other
            frequency 987 Low, cpi 0.72, best 0.17
                  dynamic BranchMispredict 1.4..1.4 by jl other
                 1.5 1 add rcx, rax
                 0.4 0 add r9, 1
                 0.2 0 jmp join
            frequency 1038 Low, cpi 0.85, best 0.17
                  dynamic BranchMispredict 1.3..1.3 by jl other
                 1.4 1 add rdx, rax
                 0.2 0 add r8, 1
            frequency 2025 Low, cpi 0.17, best 0.08
                 0.2 1 cmp rdi, rsi
                   - 0 jne loop
            frequency 1 Low, cpi -, best 0.17
                   - 1 ret
            note: frequencies are relative: they rest on 1971 sampled directions, which do not determine their scale on an out-of-order processor
        "#]],
    );
}

#[test]
fn a_branch_that_always_goes_one_way_is_innocent() {
    out_of_order(
        "loop:
         mov rax, [rdi]
         add rdi, 8
         cmp rax, rbx
         jl other
         add rcx, rax
         add r9, 1
         other:
         cmp rdi, rsi
         jne loop
         ret",
        &[500, 300, 3000, 0, 1, 0, 500, 0, 0],
        &[(3, 100_000, 1), (7, 99_000, 1)],
        expect![[r#"
            frequency 3226 Low, cpi 0.29, best 0.12
                   - 1 mov rax, [rdi]
                  dynamic Unexplained 0.8..0.8
                 0.9 0 add rdi, 8
                   - 0 cmp rax, rbx
                   - 0 jl other
            frequency 0 Low, cpi 0.17, best 0.17
                   - 1 add rcx, rax
                   - 0 add r9, 1
            frequency 3226 Low, cpi 0.17, best 0.08
                   - 1 cmp rdi, rsi
                   - 0 jne loop
            frequency 0 Low, cpi -, best 0.17
                   - 1 ret
            note: frequencies are relative: they rest on 199002 sampled directions, which do not determine their scale on an out-of-order processor
        "#]],
    );
}

#[test]
fn a_head_that_no_branch_leads_to_is_innocent() {
    blames(
        "loop:
         add x1, x1, 1
         eor x2, x2, x1
         b next
         next:
         add x3, x3, x2
         eor x4, x4, x3
         cmp x4, x9
         b.ne loop
         ret",
        &[1000, 1000, 1000, 9000, 1000, 1000, 1000, 0],
        expect![[r#"
            b next: Unexplained 1.0..1.0
            add x3, x3, x2: Unexplained 8.0..8.0
        "#]],
    );
}
