# A locked addition to a line that nobody else wants.
.include "common.inc"
setup:
    mov edi, 4096
    call map
    ret
.type kernel, @function
kernel:
    mov ecx, 24000000
1:
    lock add qword ptr [rax], 1     # culprit: synchronization by itself | dependency
    dec rcx
    jne 1b
    ret
.size kernel, . - kernel
