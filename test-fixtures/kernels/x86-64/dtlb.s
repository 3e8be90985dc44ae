# One line in each of 8,192 pages, each at another offset: the lines fit the second-level cache, the pages no TLB.
.include "common.inc"
setup:
    mov edi, 8192 * (4096 + 64)
    call map
    mov ecx, 8192
    mov edx, 4096 + 64
    make_chain
    ret
.type kernel, @function
kernel:
    mov ecx, 1500000
1:
    mov rax, [rax]                  # culprit: dtlb-miss by itself
    dec rcx
    jne 1b
    ret
.size kernel, . - kernel
