// A load of more than the store before it holds. This core takes it from the first level without delay (simulator/memory.c: only
// what covers a load is handed on), as the line is there: nothing but the load's latency may be seen.
    .include "begin.inc"
    begin
    address x0, data
    mov x1, #65536
1:  str w1, [x0, #4]
    ldr x2, [x0]
    add x3, x3, x2              // static: operand 1, head: 3, never: store-forwarding
    subs x1, x1, #1
    b.ne 1b
    finish
    table data, 64
