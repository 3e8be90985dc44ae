# Jumps through 32 lines of code that are 4 KiB apart: they share one set of eight ways, so each misses the first level.
.include "common.inc"
setup:
    ret
.altmacro
.macro line from, to
    .balign 4096
line\from:
    nop
    jmp line\to
.endm
.type kernel, @function
kernel:
    mov ecx, 1200000
    jmp line0
.set i, 0
.rept 31
    line %i, %(i + 1)              # culprit: i-cache-miss | unseen
    .set i, i + 1
.endr
    .balign 4096
line31:
.rept 180                           # What runs at full speed tells the scale of frequencies.
    nop
.endr
    dec rcx
    jne line0
    ret
.size kernel, . - kernel
