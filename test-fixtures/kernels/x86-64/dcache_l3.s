# A chain through 4 MiB: beyond the second level (1 MiB on Zen 4).
.include "common.inc"
setup:
    mov edi, 32768 * 128
    call map
    mov ecx, 32768
    mov edx, 128
    make_chain
    ret
.type kernel, @function
kernel:
    mov ecx, 8000000
1:
    mov rax, [rax]                  # culprit: d-cache-miss by itself
    dec rcx
    jne 1b
    ret
.size kernel, . - kernel
