# A system call that does next to nothing.
.include "common.inc"
setup:
    ret
.type kernel, @function
kernel:
    mov ebx, 600000
1:
    mov eax, SYS_GETPPID
    syscall                         # culprit: system by itself
    dec rbx
    jne 1b
    ret
.size kernel, . - kernel
