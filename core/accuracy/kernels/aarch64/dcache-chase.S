// A list through 192 KiB: each load waits for the one before it, in the previous iteration.
    .include "begin.inc"
    begin
    address x0, data            // link each line to the one 40 lines on
    mov x1, #0
    mov x2, #3072
1:  add x3, x1, #40
    cmp x3, x2
    b.lo 2f
    sub x3, x3, x2
2:  add x4, x0, x1, lsl #6
    add x5, x0, x3, lsl #6
    str x5, [x4]
    add x1, x1, #1
    cmp x1, x2
    b.ne 1b
    mov x1, #60000
    mov x9, #10
3:  ldr x0, [x0]                // culprit: dcache-miss 0, head: 11
    subs x1, x1, #1
    b.ne 3b
    mov x1, #60000
    subs x9, x9, #1
    b.ne 3b
    finish
    table data, 196608
