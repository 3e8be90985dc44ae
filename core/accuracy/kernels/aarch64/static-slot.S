// What the text explains: two memory operations cannot share a cycle, nor can anything follow a branch in it.
    .include "begin.inc"
    begin
    address x0, data
    mov x9, #60000
    lsl x9, x9, #2
1:  ldr x1, [x0]
    ldr x2, [x0, #8]            // static: slot
    str x9, [x0, #16]           // static: slot
    b 2f
2:  add x3, x3, #1              // static: slot
    subs x9, x9, #1
    b.ne 1b
    finish
    table data, 64
