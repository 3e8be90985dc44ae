// Two loads feed one instruction; the first walks 192 KiB and misses, the second stays in one line.
    .include "begin.inc"
    begin
    mov x9, #200
    address x5, small
1:  address x0, data
    mov x1, #3072
2:  ldr x2, [x0], #64
    ldr x4, [x5]
    add x3, x4, x2              // culprit: dcache-miss 2, head: 11
    subs x1, x1, #1
    b.ne 2b
    subs x9, x9, #1
    b.ne 1b
    finish
    table data, 196608
    table small, 64
