# A branch on a random bit, its sides of alike cost. The refill is seen at the branch and on both sides.
.include "common.inc"
setup:
    mov eax, 1
    ret
.type kernel, @function
kernel:
    mov ecx, 20000000
    mov rbx, 6364136223846793005
1:
    mov rdx, rax
    shr rdx, 33
    imul rax, rbx
    inc rax
    test dl, 1
    je 2f
    add r8, rdx                     # culprit: branch-mispredict
    xor r9, r8
    add r10, 3
    jmp 3f
2:
    sub r8, rdx                     # culprit: branch-mispredict
    xor r10, r8
    add r9, 5
3:
    dec rcx
    jne 1b
    ret
.size kernel, . - kernel
