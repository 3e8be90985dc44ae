// An addition by exclusives, as processors without LSE have it: its release waits for the store before it.
    .include "begin.inc"
    begin
    mov x9, #200
    address x5, counter
1:  address x0, data
    mov x1, #3072
2:  str x2, [x0]
    add x0, x0, #64
3:  ldxr x3, [x5]               // head: 1
    add x3, x3, x1              // static: operand 1, head: 3
    stlxr w4, x3, [x5]          // culprit: synchronization 0, head: 8
    cbnz w4, 3b
    subs x1, x1, #1
    b.ne 2b
    subs x9, x9, #1
    b.ne 1b
    finish
    table data, 196608
    table counter, 64
