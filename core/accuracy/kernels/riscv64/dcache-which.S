// Two loads feed one instruction; the first stays in one line, the second walks 192 KiB and misses.
    .include "begin.inc"
    begin
    li s0, 200
    la a5, small
1:  la a0, data
    li a1, 3072
2:  fld fa4, 0(a5)
    fld fa2, 0(a0)
    addi a0, a0, 64
    fadd.d fa3, fa4, fa2        // culprit: dcache-miss 2, head: 12
    addi a1, a1, -1
    bnez a1, 2b
    addi s0, s0, -1
    bnez s0, 1b
    finish
    table data, 196608
    table small, 64
