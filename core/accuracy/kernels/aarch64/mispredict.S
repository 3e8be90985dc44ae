// A branch on a random bit: either side starts late every other time.
    .include "begin.inc"
    begin
    mov x9, #60000
    lsl x9, x9, #2
    mov x1, #12345
1:  eor x1, x1, x1, lsl #13
    eor x1, x1, x1, lsr #7
    eor x1, x1, x1, lsl #17
    tbz x1, #20, 2f
    add x2, x2, #3              // culprit: branch-mispredict 1
    b 3f
2:  add x3, x3, #1              // culprit: branch-mispredict 3
3:  subs x9, x9, #1
    b.ne 1b
    finish
