// 64 KiB of straight code, twice the first level: each line comes from the second.
    .include "begin.inc"
    begin
    li s0, 400
    .balign 64
1:  .rept 1023
    addi a1, a1, 1              // culprit: icache-miss 0, head: 12
    addi a2, a2, 1
    addi a3, a3, 1
    addi a4, a4, 1
    addi a1, a1, 1
    addi a2, a2, 1
    addi a3, a3, 1
    addi a4, a4, 1
    addi a1, a1, 1
    addi a2, a2, 1
    addi a3, a3, 1
    addi a4, a4, 1
    addi a1, a1, 1
    addi a2, a2, 1
    addi a3, a3, 1
    addi a4, a4, 1
    .endr
    addi s0, s0, -1
    beqz s0, 2f
    la t1, 1b
    jr t1
2:  finish
