// Stores that miss the first level, faster than the second takes them.
    .include "begin.inc"
    begin
    mov x9, #200
1:  address x0, data
    mov x1, #3072
2:  str x2, [x0]                // culprit: write-buffer 0, head: 10
    add x0, x0, #64
    subs x1, x1, #1
    b.ne 2b
    subs x9, x9, #1
    b.ne 1b
    finish
    table data, 196608
