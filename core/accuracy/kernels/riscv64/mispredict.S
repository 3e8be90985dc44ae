// A branch on a random bit: either side starts late every other time.
    .include "begin.inc"
    begin
    li s0, 240000
    li a1, 12345
1:  slli t0, a1, 13
    xor a1, a1, t0
    srli t0, a1, 7
    xor a1, a1, t0
    slli t0, a1, 17
    xor a1, a1, t0
    srli t0, a1, 20
    andi t0, t0, 1
    beqz t0, 2f
    addi a2, a2, 3              // culprit: branch-mispredict 1
    j 3f
2:  addi a3, a3, 1              // culprit: branch-mispredict 3
3:  addi s0, s0, -1
    bnez s0, 1b
    finish
