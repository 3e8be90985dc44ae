// Six independent loads that miss: the core has room for four, so the fifth waits for the first, the sixth for the second.
    .include "begin.inc"
    begin
    mov x9, #200
1:  address x0, data
    mov x1, #512
2:  ldr x2, [x0]
    ldr x3, [x0, #64]
    ldr x4, [x0, #128]
    ldr x5, [x0, #192]
    ldr x6, [x0, #256]          // culprit: dcache-miss 4
    ldr x7, [x0, #320]
    add x0, x0, #384
    add x2, x2, x3
    add x4, x4, x5              // culprit: dcache-miss 5
    add x6, x6, x7              // culprit: dcache-miss 4
    subs x1, x1, #1
    b.ne 2b
    subs x9, x9, #1
    b.ne 1b
    finish
    table data, 196608
