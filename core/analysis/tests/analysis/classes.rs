//! Which class an instruction is of.

use dwell_analysis::machine::Opcode;
use dwell_image::Arch;
use expect_test::{Expect, expect};

use crate::asm::assemble;

fn check(arch: Arch, text: &str, expected: Expect) {
    let lines = assemble(arch, text)
        .iter()
        .map(|i| format!("{:?}  {}\n", Opcode::from_instruction(arch, i).class, i.text))
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

/// Forms that stood out when the classes of libc, libm, CPython, gdb and libcrypto were counted.
#[test]
fn x86_rarities() {
    check(
        Arch::X86_64,
        "vzeroupper
         xtest
         pushfq
         popfq
         rcl rax, 1
         ldmxcsr [rsp + 8]
         stmxcsr [rsp + 8]
         fnstsw ax
         sha256rnds2 xmm0, xmm1
         vmovdqa64 xmm0, xmm1
         kmovd eax, xmm0
         extractps eax, xmm0",
        expect![[r#"
            Nop  vzeroupper
            System  xtest
            Store  pushfq
            System  popfq
            Shift  rcl rax, 1
            Load  ldmxcsr [rsp + 8]
            Store  stmxcsr [rsp + 8]
            Transfer  fnstsw ax
            VectorMultiply  sha256rnds2 xmm0, xmm1
            Move  vmovdqa64 xmm0, xmm1
            Transfer  kmovd eax, xmm0
            Transfer  extractps eax, xmm0
        "#]],
    );
}

#[test]
fn a64_rarities() {
    check(
        Arch::Aarch64,
        "fmov d0, d1
         mov x0, d1
         crc32x w0, w1, x2
         smlal d0, d1, d2
         xpaclri
         sb
         umulh x0, x1, x2",
        expect![[r#"
            Vector  fmov d0, d1
            Transfer  mov x0, d1
            Multiply  crc32x w0, w1, x2
            VectorMultiply  smlal d0, d1, d2
            Nop  xpaclri
            Barrier  sb
            Multiply  umulh x0, x1, x2
        "#]],
    );
}

/// Register numbers as the decoder gives them: `x0` is zero.
#[test]
fn riscv() {
    check(
        Arch::Riscv64,
        "addi x10, x0, 5
         addi x10, x11, 0
         addi x10, x11, 8
         c.li x10, 5
         c.mv x10, x11
         add x10, x11, x12
         slli x10, x11, 3
         sh2add x10, x11, x12
         rori x10, x11, 8
         cpop x10, x11
         bseti x10, x11, 3
         mulhu x10, x11, x12
         remuw x10, x11, x12
         ld x10, [x11]
         c.sdsp x10, [x2]
         amoadd.w.aq x10, x11, [x12]
         sc.w x10, x11, [x12]
         fadd.d x10, x11, x12
         fmadd.s x10, x11, x12, x13
         fsgnj.d x10, x11, x12
         feq.d x10, x11, x12
         fmv.x.d x10, x11
         fcvt.d.w x10, x11
         fdiv.s x10, x11, x12
         fsqrt.d x10, x11
         frflags x10
         csrr x10, 1
         fence
         ecall
         nop",
        expect![[r#"
            Move  addi x10, x0, 5
            Move  addi x10, x11, 0
            Alu  addi x10, x11, 8
            Move  c.li x10, 5
            Move  c.mv x10, x11
            Alu  add x10, x11, x12
            Shift  slli x10, x11, 3
            Alu  sh2add x10, x11, x12
            Shift  rori x10, x11, 8
            Shift  cpop x10, x11
            Shift  bseti x10, x11, 3
            Multiply  mulhu x10, x11, x12
            Divide  remuw x10, x11, x12
            Load  ld x10, [x11]
            Store  c.sdsp x10, [x2]
            Atomic  amoadd.w.aq x10, x11, [x12]
            Atomic  sc.w x10, x11, [x12]
            FpAdd  fadd.d x10, x11, x12
            FpMultiply  fmadd.s x10, x11, x12, x13
            Transfer  fsgnj.d x10, x11, x12
            Transfer  feq.d x10, x11, x12
            Transfer  fmv.x.d x10, x11
            Transfer  fcvt.d.w x10, x11
            FpDivide  fdiv.s x10, x11, x12
            FpSqrt  fsqrt.d x10, x11
            System  frflags x10
            System  csrr x10, 1
            Barrier  fence
            System  ecall
            Nop  nop
        "#]],
    );
}
