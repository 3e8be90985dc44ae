// What the text explains: a division keeps its unit from a multiplication in the same block.
    .include "begin.inc"
    begin
    mov x9, #60000
    lsl x9, x9, #1
    mov x1, #1000
    mov x2, #7
1:  udiv x3, x1, x2
    add x4, x4, #1
    mul x5, x1, x2              // static: unit 2
    subs x9, x9, #1
    b.ne 1b
    finish
