# A chain through 64 MiB: every load goes to memory.
.include "common.inc"
setup:
    mov edi, 1048576 * 64
    call map
    mov ecx, 1048576
    mov edx, 64
    make_chain
    ret
.type kernel, @function
kernel:
    mov ecx, 300000
1:
    mov rax, [rax]                  # culprit: d-cache-miss by itself
    dec rcx
    jne 1b
    ret
.size kernel, . - kernel
