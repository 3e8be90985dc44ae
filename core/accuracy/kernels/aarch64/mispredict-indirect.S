// A jump to one of four random targets.
    .include "begin.inc"
    begin
    mov x9, #60000
    lsl x9, x9, #1
    mov x1, #12345
    adr x5, 2f
1:  eor x1, x1, x1, lsl #13
    eor x1, x1, x1, lsr #7
    eor x1, x1, x1, lsl #17
    ubfx x2, x1, #20, #2
    add x2, x5, x2, lsl #3
    br x2
2:  add x3, x3, #1              // culprit: branch-mispredict 1
    b 3f
    add x3, x3, #2              // culprit: branch-mispredict 3
    b 3f
    add x3, x3, #3              // culprit: branch-mispredict 5
    b 3f
    add x3, x3, #4              // culprit: branch-mispredict 7
    b 3f
3:  subs x9, x9, #1
    b.ne 1b
    finish
