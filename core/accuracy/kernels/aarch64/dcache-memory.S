// Loads that miss all caches: 8 MiB walked, a line each.
    .include "begin.inc"
    begin
    mov x9, #3
1:  address x0, data
    mov x1, #131072 & 0xffff
    movk x1, #2, lsl #16
2:  ldr x2, [x0], #64
    eor x4, x1, x9
    eor x3, x3, x2              // culprit: dcache-miss 2, head: 110
    subs x1, x1, #1
    b.ne 2b
    subs x9, x9, #1
    b.ne 1b
    finish
    table data, 8388608
