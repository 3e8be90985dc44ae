# Jumps through 160 pages of code, one line in each, at another offset: the lines fit the first-level cache, the pages no
# first-level instruction TLB.
.include "common.inc"
setup:
    ret
.altmacro
.macro page from, to
    .balign 4096
    .skip (\from % 60 + 1) * 64
page\from:
    nop
    jmp page\to
.endm
.type kernel, @function
kernel:
    mov ecx, 1000000
    jmp page0
.set i, 0
.rept 159
    page %i, %(i + 1)              # culprit: itlb-miss | unseen
    .set i, i + 1
.endr
    .balign 4096
page159:
.rept 360                           # What runs at full speed tells the scale of frequencies.
    nop
.endr
    dec rcx
    jne page0
    ret
.size kernel, . - kernel
