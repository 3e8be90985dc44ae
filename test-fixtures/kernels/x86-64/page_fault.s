# A store to each page of memory that was never touched. The fault's own time is the kernel's; the few user samples show
# the walk of the page tables before it.
.include "common.inc"
setup:
    ret
.type kernel, @function
kernel:
    mov r12d, 16
1:
    mov edi, 32 << 20
    call map
    mov rdi, rax
    mov ecx, 8192
2:
    mov [rdi], rcx                  # culprit: page-fault by itself | dtlb-miss by itself | unseen
    add rdi, 4096
    dec rcx
    jne 2b
    mov rdi, rax
    mov esi, 32 << 20
    mov eax, SYS_MUNMAP
    syscall
    dec r12
    jne 1b
    ret
.size kernel, . - kernel
