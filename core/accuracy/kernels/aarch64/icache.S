// 64 KiB of straight code, twice the first level: each line comes from the second.
    .include "begin.inc"
    begin
    mov x9, #400
    .balign 64
1:  .rept 1023
    add x1, x1, #1              // culprit: icache-miss 0, head: 12
    add x2, x2, #1
    add x3, x3, #1
    add x4, x4, #1
    add x1, x1, #1
    add x2, x2, #1
    add x3, x3, #1
    add x4, x4, #1
    add x1, x1, #1
    add x2, x2, #1
    add x3, x3, #1
    add x4, x4, #1
    add x1, x1, #1
    add x2, x2, #1
    add x3, x3, #1
    add x4, x4, #1
    .endr
    subs x9, x9, #1
    b.ne 1b
    finish
