// Independent remainders, one in each iteration: the unit is busy with the last iteration's.
    .include "begin.inc"
    begin
    li s0, 240000
    li a1, 1000
    li a2, 7
1:  remu a3, a1, a2             // culprit: divider 0, head: 10
    addi a4, a4, 1
    addi s0, s0, -1
    bnez s0, 1b
    finish
