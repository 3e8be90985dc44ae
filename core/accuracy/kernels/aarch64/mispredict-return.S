// Three functions call one another 24 deep, where the return stack holds eight: the outer returns go astray.
    .include "begin.inc"
    begin
    mov x9, #10000
1:  mov x0, #24
    bl first
    subs x9, x9, #1
    b.ne 1b
    finish
    .size _start, . - _start

    .type first, %function
first:
    str x30, [sp, #-16]!
    sub x0, x0, #1
    cbz x0, 2f
    bl second
    add x1, x1, #1              // culprit: branch-mispredict -9
2:  ldr x30, [sp], #16
    ret
    .size first, . - first

    .type second, %function
second:
    str x30, [sp, #-16]!
    sub x0, x0, #1
    cbz x0, 3f
    bl third
    add x1, x1, #1              // culprit: branch-mispredict -9
3:  ldr x30, [sp], #16
    ret
    .size second, . - second

    .type third, %function
third:
    str x30, [sp, #-16]!
    sub x0, x0, #1
    cbz x0, 4f
    bl first
    add x1, x1, #1              // culprit: branch-mispredict 12
4:  ldr x30, [sp], #16
    ret
    .size third, . - third
