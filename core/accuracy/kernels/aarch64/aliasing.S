// A load that looks like the store before it in the low twelve bits of its address. What issues in order knows the whole address of
// every older store, so nothing waits for that.
    .include "begin.inc"
    begin
    address x0, data
    mov x9, #4096
    mov x1, #65536
1:  str x1, [x0]
    ldr x2, [x0, x9]
    add x3, x3, x2              // static: operand 1, head: 3, never: aliasing-4k
    subs x1, x1, #1
    b.ne 1b
    finish
    table data, 8192
