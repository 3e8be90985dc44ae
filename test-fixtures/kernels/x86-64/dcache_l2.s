# A chain through 512 KiB: every load misses the first level and finds the second.
.include "common.inc"
setup:
    mov edi, 4096 * 128
    call map
    mov ecx, 4096
    mov edx, 128
    make_chain
    ret
.type kernel, @function
kernel:
    mov ecx, 16000000
1:
    mov rax, [rax]                  # culprit: d-cache-miss by itself
    dec rcx
    jne 1b
    ret
.size kernel, . - kernel
