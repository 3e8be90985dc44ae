// Loads that miss the first level and find the second: 192 KiB walked again and again, a line each.
    .include "begin.inc"
    begin
    mov x9, #200
1:  address x0, data
    mov x1, #3072
2:  ldr x2, [x0]
    add x0, x0, #64
    add x3, x3, x2              // culprit: dcache-miss 2, head: 12
    subs x1, x1, #1
    b.ne 2b
    subs x9, x9, #1
    b.ne 1b
    finish
    table data, 196608
