// 128 pages, a line of each: the data fits the first level, its translations do not fit the DTLB.
    .include "begin.inc"
    begin
    li s0, 6000
    li a5, 4160
1:  la a0, data
    li a1, 128
2:  ld a2, 0(a0)                // culprit: dtlb-miss 0, head: 26
    add a0, a0, a5
    add a3, a3, a2
    addi a1, a1, -1
    bnez a1, 2b
    addi s0, s0, -1
    bnez s0, 1b
    finish
    table data, 540672
