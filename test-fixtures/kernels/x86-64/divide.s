# A chain of divisions, of operands that take longer than the least.
.include "common.inc"
setup:
    ret
.type kernel, @function
kernel:
    mov ecx, 18000000
    mov rbx, 3
    mov rax, -1
1:
    xor edx, edx
    or rax, 1
    ror rax, 7
    div rbx                         # culprit: divider by itself | dependency
    dec rcx
    jne 1b
    ret
.size kernel, . - kernel
