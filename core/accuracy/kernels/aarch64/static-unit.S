// What the text explains: a division keeps its unit from a multiplication in the same block, a floating division its own.
    .include "begin.inc"
    begin
    mov x9, #60000
    lsl x9, x9, #1
    mov x1, #1000
    mov x2, #7
    fmov d1, #2.0
1:  udiv x3, x1, x2             // head: 1
    add x4, x4, #1              // head: 0
    mul x5, x1, x2              // static: unit 2, head: 12
    fdiv d3, d1, d1             // head: 0
    fadd d4, d1, d1             // static: unit 1, head: 18
    subs x9, x9, #1             // head: 0
    b.ne 1b                     // static: operand 1, head: 1
    finish
