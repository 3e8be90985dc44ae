//! Which class an instruction is of.

use dwell_analysis::machine::Opcode;
use dwell_image::Arch;
use expect_test::{Expect, expect};

use crate::asm::assemble;

fn check(arch: Arch, text: &str, expected: Expect) {
    let lines = assemble(arch, text)
        .iter()
        .map(|i| format!("{:?}  {}\n", Opcode::of(arch, i).class, i.text))
        .collect::<String>();
    expected.assert_eq(&lines);
}

#[test]
fn x86() {
    check(
        Arch::X86_64,
        "mov rax, rbx
         mov rax, [rbx]
         mov [rbx], rax
         movzx eax, [rbx]
         movsxd rax, rbx
         lea rax, [rbx + 8]
         add rax, [rbx]
         shl rax, 3
         imul rax, rbx
         div rbx
         lock add [rbx], rax
         mfence
         push rax
         pop rax
         rep stosq
         syscall
         addsd xmm0, xmm1
         mulsd xmm0, xmm1
         divsd xmm0, xmm1
         sqrtsd xmm0, xmm1
         vfmadd231sd xmm0, xmm1, xmm2
         movsd xmm0, [rbx]
         movaps xmm0, xmm1
         movq xmm0, rax
         cvtsi2sd xmm0, rax
         paddd xmm0, xmm1
         pmulld xmm0, xmm1
         nop
         ret",
        expect![[r#"
            Move  mov rax, rbx
            Load  mov rax, [rbx]
            Store  mov [rbx], rax
            Load  movzx eax, [rbx]
            Alu  movsxd rax, rbx
            Alu  lea rax, [rbx + 8]
            Alu  add rax, [rbx]
            Shift  shl rax, 3
            Multiply  imul rax, rbx
            Divide  div rbx
            Atomic  lock add [rbx], rax
            Barrier  mfence
            Store  push rax
            Load  pop rax
            String  rep stosq
            System  syscall
            FpAdd  addsd xmm0, xmm1
            FpMultiply  mulsd xmm0, xmm1
            FpDivide  divsd xmm0, xmm1
            FpSqrt  sqrtsd xmm0, xmm1
            FpMultiply  vfmadd231sd xmm0, xmm1, xmm2
            Load  movsd xmm0, [rbx]
            Move  movaps xmm0, xmm1
            Transfer  movq xmm0, rax
            Transfer  cvtsi2sd xmm0, rax
            Vector  paddd xmm0, xmm1
            VectorMultiply  pmulld xmm0, xmm1
            Nop  nop
            Return  ret
        "#]],
    );
}

#[test]
fn a64() {
    check(
        Arch::Aarch64,
        "mov x0, x1
         ldr x0, [x1]
         str x0, [x1]
         add x0, x1, x2
         lsl x0, x1, 3
         mul x0, x1, x2
         sdiv x0, x1, x2
         fadd d0, d1, d2
         fmul d0, d1, d2
         fdiv d0, d1, d2
         fmov d0, x1
         dmb ish
         svc 0
         ldaxr x0, [x1]
         bl 0x9000
         ret",
        expect![[r#"
            Move  mov x0, x1
            Load  ldr x0, [x1]
            Store  str x0, [x1]
            Alu  add x0, x1, x2
            Shift  lsl x0, x1, 3
            Multiply  mul x0, x1, x2
            Divide  sdiv x0, x1, x2
            FpAdd  fadd d0, d1, d2
            FpMultiply  fmul d0, d1, d2
            FpDivide  fdiv d0, d1, d2
            Transfer  fmov d0, x1
            Barrier  dmb ish
            System  svc 0
            Atomic  ldaxr x0, [x1]
            Call  bl 0x9000
            Return  ret
        "#]],
    );
}
