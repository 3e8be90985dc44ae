# A load of eight bytes of which the two stores before hold four each: it waits until both have left.
.include "common.inc"
setup:
    mov edi, 4096
    call map
    ret
.type kernel, @function
kernel:
    mov ecx, 18000000
1:
    mov [rax], edx
    mov [rax + 4], ecx              # is store
    mov rdx, [rax]                  # culprit: store-forwarding by store
    dec rcx
    jne 1b
    ret
.size kernel, . - kernel
