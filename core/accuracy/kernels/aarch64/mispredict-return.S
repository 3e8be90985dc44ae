// A return that no call went before: the return stack has nothing for it.
    .include "begin.inc"
    begin
    mov x9, #60000
    lsl x9, x9, #1
    adr x30, 2f
1:  ret
    .balign 64
2:  add x1, x1, #1              // culprit: branch-mispredict 13, head: 9
    subs x9, x9, #1
    b.ne 1b
    finish
