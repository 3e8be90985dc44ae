# Stores to random lines of 64 MiB: they leave the store buffer more slowly than they come.
.include "common.inc"
setup:
    mov edi, 64 << 20
    call map
    mov ecx, 16384
    mov rdi, rax
1:
    mov [rdi], rcx
    add rdi, 4096
    dec ecx
    jne 1b
    ret
.type kernel, @function
kernel:
    mov ecx, 4000000
    mov ebx, 1
    mov r9d, (64 << 20) - 64
1:
    imul rbx, rbx, 1664525
    add rbx, 1013904223
    mov rdx, rbx
    shr rdx, 8
    and rdx, r9
    mov [rax + rdx], rcx            # culprit: write-buffer by itself
    dec rcx
    jne 1b
    ret
.size kernel, . - kernel
