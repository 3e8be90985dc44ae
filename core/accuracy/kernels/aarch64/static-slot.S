// What the text explains: two memory operations cannot share a cycle, nor can anything follow a branch in it.
    .include "begin.inc"
    begin
    address x0, data
    mov x9, #60000
    lsl x9, x9, #2
1:  ldr x1, [x0]                // static: slot, head: 1
    ldr x2, [x0, #8]            // static: slot, head: 1
    str x9, [x0, #16]           // static: slot, head: 1
    b 2f                        // head: 0
2:  add x3, x3, #1              // static: slot, head: 1
    add x4, x4, #1              // head: 0
    add x5, x5, #1              // static: slot, head: 1
    fadd d0, d1, d1             // head: 0
    fmul d2, d1, d1             // static: slot, head: 1
    mul x6, x9, x9              // head: 0
    mul x7, x9, x9              // static: slot, head: 1
    str x9, [x0, #24]           // head: 0
    mrs x10, tpidr_el0          // static: slot, head: 1
    add x11, x11, #1            // static: slot, head: 1
    subs x9, x9, #1             // head: 0
    b.ne 1b                     // static: operand 1, head: 1
    finish
    table data, 64
