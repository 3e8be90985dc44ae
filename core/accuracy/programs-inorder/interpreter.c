/* Dispatch: random expressions are compiled for a stack machine and run by computed goto, by a switch, and as trees. */
#include "random.h"
#include <stdio.h>
#include <stdlib.h>

enum op { PUSH, LOAD, ADD, SUB, MUL, XOR, SHIFT, LESS, JUMP, JUMP_ZERO, STORE, HALT };
enum { VARIABLES = 16, PROGRAMS = 12, DEPTH = 9, CODE = 1 << 14 };

struct node {
    enum op op; /* JUMP_ZERO: a choice by the condition */
    long value;
    struct node *condition, *left, *right;
};

static long variables[VARIABLES];
static int code[CODE];
static int length;

static struct node *grow(int depth)
{
    static const enum op inner[] = {ADD, SUB, MUL, XOR, SHIFT, LESS, JUMP_ZERO};
    struct node *node = calloc(1, sizeof *node);
    if (depth == 0 || random_word() % 12 == 0) {
        node->op = random_word() % 3 ? LOAD : PUSH;
        node->value = node->op == LOAD ? random_word() % VARIABLES : random_word() % 1000;
        return node;
    }
    node->op = inner[random_word() % 7];
    node->left = grow(depth - 1);
    node->right = grow(depth - 1);
    if (node->op == JUMP_ZERO)
        node->condition = grow(depth > 3 ? 2 : 0);
    return node;
}

static void emit(int word)
{
    if (length == CODE)
        abort();
    code[length++] = word;
}

static void compile(const struct node *node)
{
    if (node->op == JUMP_ZERO) {
        compile(node->condition);
        emit(JUMP_ZERO);
        int otherwise = length++;
        compile(node->left);
        emit(JUMP);
        int end = length++;
        code[otherwise] = length;
        compile(node->right);
        code[end] = length;
        return;
    }
    if (node->op <= LOAD) {
        emit(node->op);
        emit((int)node->value);
        return;
    }
    compile(node->left);
    compile(node->right);
    emit(node->op);
}

static long apply(enum op op, long a, long b)
{
    switch (op) {
    case ADD: return (a + b) & 0xffffff;
    case SUB: return (a - b) & 0xffffff;
    case MUL: return (a * b) & 0xffffff;
    case XOR: return a ^ b;
    case SHIFT: return a >> (b & 7);
    default: return a < b;
    }
}

static long evaluate(const struct node *node)
{
    switch (node->op) {
    case PUSH: return node->value;
    case LOAD: return variables[node->value];
    case JUMP_ZERO: return evaluate(evaluate(node->condition) & 1 ? node->left : node->right);
    default: return apply(node->op, evaluate(node->left), evaluate(node->right));
    }
}

static void by_goto(void)
{
    static const void *const labels[] = {&&push, &&load, &&add, &&sub, &&mul, &&xor, &&shift, &&less, &&jump, &&jump_zero, &&store, &&halt};
    long stack[64], *top = stack;
    const int *at = code;
#define NEXT goto *labels[*at++]
    NEXT;
push: *++top = *at++; NEXT;
load: *++top = variables[*at++]; NEXT;
add: top--; *top = (*top + top[1]) & 0xffffff; NEXT;
sub: top--; *top = (*top - top[1]) & 0xffffff; NEXT;
mul: top--; *top = (*top * top[1]) & 0xffffff; NEXT;
xor: top--; *top ^= top[1]; NEXT;
shift: top--; *top >>= top[1] & 7; NEXT;
less: top--; *top = *top < top[1]; NEXT;
jump: at = code + *at; NEXT;
jump_zero: at = *top-- & 1 ? at + 1 : code + *at; NEXT;
store: variables[*at++] = *top--; NEXT;
halt:;
}

static void by_switch(void)
{
    long stack[64];
    int top = 0, at = 0;
    for (;;) {
        int op = code[at++];
        switch (op) {
        case PUSH: stack[++top] = code[at++]; break;
        case LOAD: stack[++top] = variables[code[at++]]; break;
        case ADD: top--; stack[top] = (stack[top] + stack[top + 1]) & 0xffffff; break;
        case SUB: top--; stack[top] = (stack[top] - stack[top + 1]) & 0xffffff; break;
        case MUL: top--; stack[top] = (stack[top] * stack[top + 1]) & 0xffffff; break;
        case XOR: top--; stack[top] ^= stack[top + 1]; break;
        case SHIFT: top--; stack[top] >>= stack[top + 1] & 7; break;
        case LESS: top--; stack[top] = stack[top] < stack[top + 1]; break;
        case JUMP: at = code[at]; break;
        case JUMP_ZERO: at = stack[top--] & 1 ? at + 1 : code[at]; break;
        case STORE: variables[code[at++]] = stack[top--]; break;
        default: return;
        }
    }
}

static void release(struct node *node)
{
    if (!node)
        return;
    release(node->condition);
    release(node->left);
    release(node->right);
    free(node);
}

int main(int argc, char **argv)
{
    long sum = 0;
    int rounds = argc > 1 ? atoi(argv[1]) : 700;
    for (int i = 0; i < VARIABLES; i++)
        variables[i] = random_word() & 0xffff;
    for (int program = 0; program < PROGRAMS; program++) {
        struct node *tree = grow(DEPTH);
        length = 0;
        compile(tree);
        emit(STORE);
        emit(program % VARIABLES);
        emit(HALT);
        for (int round = 0; round < rounds; round++) {
            by_goto();
            variables[round % VARIABLES] ^= round;
            by_switch();
            variables[(round + 5) % VARIABLES] += sum & 0xff;
            sum = (sum * 31 + evaluate(tree)) & 0xffffff;
        }
        release(tree);
    }
    printf("%ld\n", sum);
}
