// Executes known numbers of instructions: `body` has 5 in each of its rounds, 2 before and 1 behind.
#include <stdio.h>
#include <stdlib.h>
long body(long rounds);
__asm__(
    ".globl body\n"
    "body:\n"
    "  xor %eax, %eax\n"
    "  lea table(%rip), %rdx\n"
    "1: add (%rdx), %rax\n"
    "  mov %rax, (%rdx)\n"
    "  sub $1, %rdi\n"
    "  nop\n"
    "  jne 1b\n"
    "  ret\n"
    ".data\n"
    "table: .quad 1\n"
    ".text\n");
int main(int argc, char **argv) {
    printf("%d\n", body(atol(argv[1])) != 0);
    return argc - 2;
}
