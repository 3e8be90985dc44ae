// 128 pages, a line of each: the data fits the first level, its translations do not fit the DTLB.
    .include "begin.inc"
    begin
    mov x9, #6000
    mov x5, #4160
1:  address x0, data
    mov x1, #128
2:  ldr x2, [x0]                // culprit: dtlb-miss 0, head: 26
    add x0, x0, x5
    add x3, x3, x2
    subs x1, x1, #1
    b.ne 2b
    subs x9, x9, #1
    b.ne 1b
    finish
    table data, 540672
