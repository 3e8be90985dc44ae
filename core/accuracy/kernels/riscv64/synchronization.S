// A fence behind a store that misses.
    .include "begin.inc"
    begin
    li s0, 200
1:  la a0, data
    li a1, 3072
2:  sd a2, 0(a0)
    addi a0, a0, 64
    fence rw, rw                // culprit: synchronization 0, head: 12
    addi a1, a1, -1
    bnez a1, 2b
    addi s0, s0, -1
    bnez s0, 1b
    finish
    table data, 196608
