# A load 4,096 bytes behind the store before it, whose address is late: they look alike. Intel cores fall for it; Zen 4 does
# not, and then the chain is all there is.
.include "common.inc"
setup:
    mov edi, 65536
    call map
    ret
.type kernel, @function
kernel:
    mov ecx, 18000000
    xor edx, edx
1:
    imul rdx, rdx, 1
    imul rdx, rdx, 1
    mov [rax + rdx], rcx            # is store
    mov rdx, [rax + rdx + 4096]     # culprit: 4k-aliasing by store | dependency
    and rdx, 0
    dec rcx
    jne 1b
    ret
.size kernel, . - kernel
