/* The branch predictor of the simulated core: gshare for directions, last targets for indirect branches, a return stack.
 *
 * In: each branch in program order with the address that followed. Out: whether it was predicted. Constant time.
 * Direct jumps and calls are always right: their target is known at decoding.
 */
#include "predictor.h"
#include "machine.h"

static uint8_t directions[1 << GSHARE_BITS]; /* 0 and 1: not taken, 2 and 3: taken */
static uint32_t history;
static uint64_t targets[TARGET_ENTRIES];
static uint64_t returns[RETURN_ENTRIES];
static unsigned top;

static bool direction(const struct insn *branch, bool taken)
{
    uint8_t *counter = &directions[((branch->pc >> 1) ^ history) & ((1u << GSHARE_BITS) - 1)];
    bool right = (*counter >= 2) == taken;
    if (taken && *counter < 3)
        ++*counter;
    if (!taken && *counter > 0)
        --*counter;
    history = history << 1 | taken;
    return right;
}

static bool last_target(const struct insn *branch, uint64_t next_pc)
{
    uint64_t *target = &targets[(branch->pc >> 1) % TARGET_ENTRIES];
    bool right = *target == next_pc;
    *target = next_pc;
    return right;
}

static void push_return(const struct insn *call)
{
    returns[top] = call->pc + call->size_bytes;
    top = (top + 1) % RETURN_ENTRIES;
}

static bool popped_return(uint64_t next_pc)
{
    top = (top + RETURN_ENTRIES - 1) % RETURN_ENTRIES;
    return returns[top] == next_pc;
}

bool predicted(const struct insn *branch, uint64_t next_pc)
{
    switch (branch->branch) {
    case CONDITIONAL:
        return direction(branch, next_pc != branch->pc + branch->size_bytes);
    case CALL:
        push_return(branch);
        return true;
    case INDIRECT_CALL:
        push_return(branch);
        return last_target(branch, next_pc);
    case INDIRECT_JUMP:
        return last_target(branch, next_pc);
    case RETURN:
        return popped_return(next_pc);
    default:
        return true;
    }
}
