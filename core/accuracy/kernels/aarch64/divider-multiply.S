// A multiplication in the block after a division wants the same unit.
    .include "begin.inc"
    begin
    mov x9, #60000
    lsl x9, x9, #2
    mov x1, #1000
    mov x2, #7
1:  sdiv x3, x1, x2
    cbz x9, 2f
    mul x4, x1, x2              // culprit: divider 2, head: 12
    subs x9, x9, #1
    b.ne 1b
2:  finish
