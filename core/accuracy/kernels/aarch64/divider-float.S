// A floating-point addition in the block after a square root waits for the unit.
    .include "begin.inc"
    begin
    mov x9, #60000
    lsl x9, x9, #2
    fmov d1, #2.0
1:  fsqrt d2, d1
    cbz x9, 2f
    fadd d3, d1, d1             // culprit: divider 2, head: 18
    subs x9, x9, #1
    b.ne 1b
2:  finish
