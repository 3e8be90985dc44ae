# One line for each thing that decoding must get right on RISC-V, compressed and not.
.text
.globl forms
.type forms, %function
forms:
.option push
.option norvc
  add a0, a1, a2
  addi a0, a1, -5
  addiw a0, a1, 1
  lui a0, 16
  auipc a0, 1
  lb a0, 1(a1)
  ld a0, -8(sp)
  lwu a0, 4(a1)
  sd a0, 8(sp)
  sb a1, 0(a2)
  fld fa0, 8(a0)
  fsw fa1, 4(a0)
  beq a0, a1, local
  beqz a0, local
  jal local
  j local
  jalr a0
  jr a0
  jalr t0
  ret
  mul a0, a1, a2
  divw a0, a1, a2
  slli a0, a1, 40
  fadd.d fa0, fa1, fa2
  fmadd.d fa0, fa1, fa2, fa3
  fsqrt.d fa0, fa1
  feq.d a0, fa0, fa1
  fcvt.w.d a0, fa0
  fcvt.d.l fa0, a0
  fmv.x.d a0, fa0
  fmv.d.x fa0, a0
  fsgnj.d fa0, fa1, fa2
  lr.d a0, (a1)
  sc.d a0, a2, (a1)
  amoadd.w a0, a2, (a1)
  csrr a0, fcsr
  csrwi fflags, 1
  fence
  call forms
  tail forms
  ecall
  ebreak
.option pop
local:
  c.addi4spn a0, sp, 16
  c.lw a0, 4(a1)
  c.ld a0, 8(a1)
  c.fld fa0, 8(a1)
  c.sw a0, 4(a1)
  c.sd a0, 8(a1)
  c.fsd fa0, 8(a1)
  c.nop
  c.addi a0, -3
  c.addiw a0, 1
  c.li a0, 7
  c.addi16sp sp, -64
  c.lui a0, 1
  c.srli a0, 3
  c.srai a0, 4
  c.andi a0, -1
  c.sub a0, a1
  c.addw a0, a1
  c.j local
  c.beqz a0, local
  c.bnez a1, local
  c.slli a0, 5
  c.fldsp fa0, 8(sp)
  c.lwsp a0, 12(sp)
  c.ldsp ra, 24(sp)
  c.jr a0
  c.mv a0, a1
  c.ebreak
  c.jalr a0
  c.add a0, a1
  c.fsdsp fa0, 8(sp)
  c.swsp a0, 12(sp)
  c.sdsp ra, 24(sp)
  .2byte 0
  ret
.size forms, . - forms
