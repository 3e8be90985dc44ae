// One line for each thing that decoding must get right on AArch64.
.text
.globl forms
.type forms, %function
forms:
  mov x0, x1
  mov w0, #5
  add x0, x1, x2, lsl #2
  adds x0, x1, #4
  cmp x0, x1
  csel x0, x1, x2, eq
  cset w0, ne
  ccmp x0, #1, #0, ne
  adc x0, x1, x2
  madd x0, x1, x2, x3
  udiv w0, w1, w2
  ldr x0, [x1]
  ldr w0, [x1, #8]!
  ldr x0, [x1], #16
  ldr x0, [x1, x2, lsl #3]
  ldrb w0, [x1, w2, sxtw]
  ldrsw x0, [x1]
  ldr q0, [x1]
  ldr x0, local
  ldp x29, x30, [sp], #16
  stp x29, x30, [sp, #-32]!
  str wzr, [x0]
  strh w1, [x0, #2]
  ldxr x0, [x1]
  stxr w2, x0, [x1]
  ldadd x0, x1, [x2]
  cas x0, x1, [x2]
  prfm pldl1keep, [x0]
  adrp x0, forms
  adr x0, local
  fmadd d0, d1, d2, d3
  fcmp d0, d1
  fcvtzs x0, d0
  fadd v0.2d, v1.2d, v2.2d
  fmla v0.4s, v1.4s, v2.4s
  ld1 {v0.4s, v1.4s}, [x0]
  bl local
  blr x1
  br x16
  b local
  b.ne local
  cbz x0, local
  tbnz w0, #3, local
local:
  mrs x0, tpidr_el0
  dmb ish
  svc #0
  nop
  paciasp
  brk #1
  .word 0xffffffff
  ret
  ret x5
.size forms, . - forms
