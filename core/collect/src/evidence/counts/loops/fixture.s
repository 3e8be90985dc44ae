# Loops of many kinds. The listing beside this file is made by
#   as fixture.s -o fixture.o && objdump -d -M intel fixture.o > fixture.objdump
# with GNU binutils 2.40. A label is a case; tests name instructions by their offset from it.
    .intel_syntax noprefix
    .text

# A pointer moves by 8 until it meets its end.
sum:
    add rax, [rdi]
    add rdi, 8
    cmp rdi, rsi
    jne sum
    ret

# Two registers count the same; ecx in 32 bits.
two:
    mov al, [rdx]
    inc rdx
    sub ecx, 1
    jnz two
    ret

# The inner pointer is set anew by the outer loop, which counts in r8 and adds the row length r9 to r10.
nested:
    mov rdi, r10
    xor eax, eax
1:  add rax, [rdi]
    lea rdi, [rdi + 16]
    cmp rdi, r11
    jb 1b
    add r10, r9
    add r11, r9
    dec r8
    jnz nested
    ret

# The counter in rbx outlives the call, the one in rcx does not.
calls:
    mov rdi, rbx
    call other
    inc rcx
    add rbx, 4
    cmp rbx, rbp
    jne calls
    ret

# Only some iterations count in rdx; all count in rdi.
conditional:
    cmp byte ptr [rdi], 10
    jne 1f
    inc rdx
1:  inc rdi
    cmp rdi, rsi
    jne conditional
    ret

# Unrolled: two additions in two blocks that alternate.
unrolled:
    cmp byte ptr [rdi], 0
    je 1f
    inc rdi
    cmp byte ptr [rdi], 0
    je 1f
    inc rdi
    jmp unrolled
1:  ret

# Two additions that do not alternate.
either:
    cmp byte ptr [rdi], 0
    je 1f
    add rdi, 1
    jmp 2f
1:  add rdi, 2
2:  cmp rdi, rsi
    jb either
    ret

# The register that seems to count is set in the same block.
reset:
    mov ecx, 5
    inc ecx
    dec rax
    jnz reset
    ret

# A partial write is no addition.
partial:
    add dil, 1
    inc si
    dec edx
    jnz partial
    ret

# A switch: where its jump goes is not known.
switch:
    movzx eax, byte ptr [rdi]
    inc rdi
    jmp [rbx + rax * 8]

# No loop at all.
straight:
    inc rax
    ret
other:
    ret

# Pushing and popping, a system call, a string instruction.
pushes:
    push rax
    pop rax
    syscall
    inc r11
    inc r12
    rep movsb
    inc rsi
    dec r13
    jnz pushes
    ret

# The step is a register that the loop writes.
grows:
    add rax, rbx
    inc rbx
    cmp rbx, rcx
    jne grows
    ret

# Minus the value of a register.
falls:
    sub rax, rdx
    lea rcx, [rcx + rdx]
    lea r8, [rdx + r8]
    lea r9d, [r9 - 3]
    jns falls
    ret
