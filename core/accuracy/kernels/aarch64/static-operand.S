// What the text explains: latencies of a load from the first level, a multiplication, an addition of floating point.
    .include "begin.inc"
    begin
    address x0, data
    mov x9, #60000
    lsl x9, x9, #2
1:  ldr x1, [x0]
    add x2, x1, #1              // static: operand 1
    mul x3, x2, x2
    sub x4, x3, #1              // static: operand 1
    fadd d1, d0, d0
    fadd d2, d1, d1             // static: operand 1
    subs x9, x9, #1
    b.ne 1b
    finish
    table data, 64
