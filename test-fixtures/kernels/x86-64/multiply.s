# A chain of multiplications: all of it follows from the instructions.
.include "common.inc"
setup:
    ret
.type kernel, @function
kernel:
    mov ecx, 24000000
1:
    imul rax, rbx                   # culprit: dependency | multiplier
    imul rax, rbx                   # culprit: dependency | multiplier
    imul rax, rbx                   # culprit: dependency | multiplier
    imul rax, rbx                   # culprit: dependency | multiplier
    dec rcx
    jne 1b
    ret
.size kernel, . - kernel
