# A chain of floating additions, each waiting for the one before.
.include "common.inc"
setup:
    ret
.type kernel, @function
kernel:
    mov ecx, 30000000
1:
    addsd xmm0, xmm1                # culprit: dependency
    addsd xmm0, xmm1                # culprit: dependency
    addsd xmm0, xmm1                # culprit: dependency
    dec rcx
    jne 1b
    ret
.size kernel, . - kernel
