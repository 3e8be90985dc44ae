// What the text explains: latencies, pairs and busy units.
    .include "begin.inc"
    begin
    la a0, data
    li s0, 120000
    li a1, 1000
    li a2, 7
1:  ld t0, 0(a0)                // static: slot, head: 1
    ld t1, 8(a0)                // static: slot, head: 1
    add t2, t0, t1              // static: operand 1, head: 3
    addi t3, t3, 1              // head: 0
    mul t4, t2, t2              // static: operand 2, head: 1
    addi t5, t4, 1              // static: operand 1, head: 3
    fadd.d ft0, ft1, ft2        // head: 0
    fmadd.d ft0, ft1, ft2, ft0  // static: operand 1, head: 4
    fmv.x.d t6, ft0             // static: operand 1, head: 4
    addi t6, t6, 1              // static: operand 1, head: 3
    div a3, a1, a2              // head: 0
    addi a4, a4, 1              // static: slot, head: 1
    mul a5, a1, a2              // static: unit 2, head: 11
    sd a1, 16(a0)               // head: 0
    j 2f                        // static: slot, head: 1
2:  addi s0, s0, -1             // static: slot, head: 1
    bnez s0, 1b                 // static: operand 1, head: 1
    finish
    table data, 64
