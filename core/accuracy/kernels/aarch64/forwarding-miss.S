// A load of more than the store before it holds, from a line that the store has asked for: the line is what it waits for.
    .include "begin.inc"
    begin
    mov x9, #200
1:  address x0, data
    mov x1, #3072
2:  str w1, [x0, #4]
    ldr x2, [x0]
    add x0, x0, #64
    add x3, x3, x2              // culprit: dcache-miss 2, never: store-forwarding
    subs x1, x1, #1
    b.ne 2b
    subs x9, x9, #1
    b.ne 1b
    finish
    table data, 196608
