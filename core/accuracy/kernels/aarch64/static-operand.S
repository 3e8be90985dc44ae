// What the text explains: latencies of a load from the first level, a multiplication, an addition of floating point.
    .include "begin.inc"
    begin
    address x0, data
    mov x9, #60000
    lsl x9, x9, #2
1:  ldr x1, [x0]                // head: 1
    add x2, x1, #1              // static: operand 1, head: 3
    mul x3, x2, x2              // head: 1
    sub x4, x3, #1              // static: operand 1, head: 3
    fadd d1, d0, d0             // head: 0
    fadd d2, d1, d1             // static: operand 1, head: 4
    fmov x5, d2                 // static: operand 1, head: 4
    add x5, x5, #1              // static: operand 1, head: 3
    add v4.4s, v4.4s, v5.4s     // head: 0
    add v4.4s, v4.4s, v5.4s     // static: operand 1, head: 3
    ldr x6, [x0], #0            // head: 0
    add x7, x0, #1              // static: operand 1, head: 1
    madd x3, x7, x7, x6         // static: operand 2, head: 2
    subs x9, x9, #1             // head: 0
    b.ne 1b                     // static: operand 1, head: 1
    finish
    table data, 64
