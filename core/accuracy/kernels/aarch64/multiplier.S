// A product that the next block wants: its latency reaches across the branch, and the text explains that, so that nothing dynamic
// may be seen.
    .include "begin.inc"
    begin
    mov x9, #60000
    lsl x9, x9, #2
    mov x1, #1000
1:  mul x3, x1, x1
    cbz x9, 2f
    sub x4, x3, #1              // static: operand 2, head: 3, never: multiplier
    subs x9, x9, #1
    b.ne 1b
2:  finish
