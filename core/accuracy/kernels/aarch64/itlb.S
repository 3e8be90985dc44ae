// 48 pages, a line of each: the code fits the first level, its translations do not fit the ITLB.
    .include "begin.inc"
    begin
    mov x9, #10000
    .balign 4096
1:  .rept 47
    add x1, x1, #1              // culprit: itlb-miss 0, head: 20
    add x2, x2, #1
    b . + 4152                  // 4160 bytes from the start of this one
    .skip 4148
    .endr
    subs x9, x9, #1
    b.ne 1b
    finish
