# A full fence behind a store.
.include "common.inc"
setup:
    mov edi, 4096
    call map
    ret
.type kernel, @function
kernel:
    mov ecx, 6000000
1:
    mov [rax], rcx
    mfence                          # culprit: synchronization by itself | functional-unit
    dec rcx
    jne 1b
    ret
.size kernel, . - kernel
