# One line for each thing that decoding must get right on x86-64.
.intel_syntax noprefix
.text
.globl forms
.type forms, @function
forms:
  xor eax, eax
  xor al, al
  sub r8, r8
  pxor xmm1, xmm1
  vpxor xmm2, xmm3, xmm3
  xor eax, ecx
  cmove rax, rbx
  sete cl
  xchg rax, rbx
  xadd [rdi], eax
  lock cmpxchg [rdi], ecx
  lea rax, [rbx + rcx*4 + 16]
  lea rdi, [rip + table]
  mov rax, [rip + table]
  mov rax, fs:[0]
  add qword ptr [rsi + 8], 1
  cmp byte ptr [rsi], 3
  div rcx
  imul rax, rdx, 10
  mul rsi
  shl rax, cl
  cqo
  rep movsb
  rep stosq
  repne scasb
  push rax
  push qword ptr [rax]
  push 5
  pop rbx
  pop qword ptr [rax]
  leave
  call local
  call rax
  call [rip + table]
  jmp rax
  notrack jmp rax
  jmp [rdi*8 + 0x1000]
  jmp local
  jrcxz local
  loop local
  jne local
local:
  movaps xmm0, [rax]
  movups [rax], xmm0
  addsd xmm0, [rax]
  vfmadd231pd ymm0, ymm1, [rax]
  vmovdqu64 zmm17{k1}, [rax]
  cvtsi2sd xmm0, rax
  movd eax, xmm0
  comisd xmm0, xmm1
  fld dword ptr [rax]
  fadd st, st(1)
  nop dword ptr [rax]
  prefetcht0 [rax]
  pushfq
  popfq
  adc rax, rbx
  bt rax, 3
  bsf rax, rbx
  popcnt rax, rbx
  mulx rax, rbx, rcx
  mov cl, 1
  movzx eax, byte ptr [rdi]
  syscall
  cpuid
  rdtsc
  endbr64
  ud2
  int3
  hlt
  .byte 0x06
  ret 8
  ret
.size forms, . - forms
.section .rodata
table: .quad forms
