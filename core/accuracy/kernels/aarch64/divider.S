// Independent divisions, one in each iteration: the unit is busy with the last iteration's.
    .include "begin.inc"
    begin
    mov x9, #60000
    lsl x9, x9, #2
    mov x1, #1000
    mov x2, #7
1:  udiv x3, x1, x2             // culprit: divider 0, head: 10
    add x4, x4, #1
    subs x9, x9, #1
    b.ne 1b
    finish
