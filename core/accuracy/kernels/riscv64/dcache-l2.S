// Loads that miss the first level and find the second: 192 KiB walked again and again, a line each.
    .include "begin.inc"
    begin
    li s0, 200
1:  la a0, data
    li a1, 3072
2:  ld a2, 0(a0)
    addi a0, a0, 64
    add a3, a3, a2              // culprit: dcache-miss 2, head: 12
    addi a1, a1, -1
    bnez a1, 2b
    addi s0, s0, -1
    bnez s0, 1b
    finish
    table data, 196608
