// The first access to every page enters the kernel: time that is none of the program's own, sampled apart. What the program
// itself waits for is the page's translation, and its line.
    .include "begin.inc"
    begin
    address x0, data
    mov x1, #16384
1:  ldr x2, [x0]                // culprit: dtlb-miss 0, kernel: page-fault
    add x0, x0, #4096
    add x3, x3, x2              // culprit: dcache-miss 2
    subs x1, x1, #1
    b.ne 1b
    finish
    table data, 67108864
