/* RV64GC: from an instruction's bytes to its class, unit, latency, source and result registers.
 *
 * In: the bytes (16 or 32 bits) and the address. Out: the decoded part of `struct insn`. Constant time.
 * Written from the RISC-V unprivileged manual (20191213), chapters 24 (opcode maps) and 16 (compressed).
 */
#include "insn.h"
#include "machine.h"

/* The major opcodes, bits 6 to 2. */
enum {
    OP_LOAD = 0,
    OP_LOAD_FP = 1,
    OP_FENCE = 3,
    OP_IMM = 4,
    OP_AUIPC = 5,
    OP_IMM_32 = 6,
    OP_STORE = 8,
    OP_STORE_FP = 9,
    OP_AMO = 11,
    OP_REG = 12,
    OP_LUI = 13,
    OP_REG_32 = 14,
    OP_FMADD = 16, /* to 19 */
    OP_FLOAT = 20,
    OP_BRANCH = 24,
    OP_JALR = 25,
    OP_JAL = 27,
    OP_SYSTEM = 28,
};

static unsigned general(unsigned reg)
{
    return reg == 0 ? REG_NONE : reg;
}

static unsigned rd(uint32_t word)
{
    return general(bits(word, 11, 7));
}

static unsigned rs1(uint32_t word)
{
    return general(bits(word, 19, 15));
}

static unsigned rs2(uint32_t word)
{
    return general(bits(word, 24, 20));
}

static unsigned floating(unsigned reg)
{
    return REG_FP0 + reg;
}

static void load_from(struct insn *insn, unsigned base, unsigned to)
{
    insn->units = UNIT_MEMORY;
    insn->load = true;
    insn->latency = LATENCY_LOAD;
    add_source(insn, base);
    add_result(insn, to);
}

static void store_to(struct insn *insn, unsigned base, unsigned from)
{
    insn->units = UNIT_MEMORY;
    insn->store = true;
    add_source(insn, base);
    add_source(insn, from);
}

static void jump(struct insn *insn, unsigned link, int64_t offset)
{
    insn->units = UNIT_BRANCH;
    insn->branch = link == REG_NONE ? JUMP : CALL;
    insn->target = insn->pc + (uint64_t)offset;
    add_result(insn, link);
}

/* x1 and x5 are link registers: a jump through one returns, one that writes one calls. */
static void jump_register(struct insn *insn, unsigned link, unsigned to)
{
    bool calls = link == 1 || link == 5, returns = to == 1 || to == 5;
    insn->units = UNIT_BRANCH;
    insn->branch = calls ? INDIRECT_CALL : returns ? RETURN : INDIRECT_JUMP;
    add_source(insn, to);
    add_result(insn, link);
}

static void branch(struct insn *insn, unsigned left, unsigned right, int64_t offset)
{
    insn->units = UNIT_BRANCH;
    insn->branch = CONDITIONAL;
    insn->target = insn->pc + (uint64_t)offset;
    add_source(insn, left);
    add_source(insn, right);
}

static void integer(struct insn *insn, uint32_t word)
{
    add_source(insn, rs1(word));
    add_source(insn, rs2(word));
    add_result(insn, rd(word));
    if (bits(word, 31, 25) != 1)
        return;
    bool divides = bit(word, 14);
    insn->units = UNIT_MULTIPLY;
    insn->latency = divides ? LATENCY_DIVIDE : LATENCY_MULTIPLY;
    insn->busy_cycles = divides ? LATENCY_DIVIDE : 1;
}

/* lr is a load, sc a store with a result; the rest read, modify and write. */
static void atomic(struct insn *insn, uint32_t word)
{
    unsigned operation = bits(word, 31, 27);
    insn->units = UNIT_MEMORY;
    insn->load = operation != 3;
    insn->store = operation != 2;
    insn->latency = operation == 3 ? LATENCY_ALU : LATENCY_LOAD;
    if (operation > 3 || operation < 2 || (operation == 3 && bit(word, 25)))
        insn->special = ORDERED;
    add_source(insn, rs1(word));
    if (operation != 2)
        add_source(insn, rs2(word));
    add_result(insn, rd(word));
}

static void float_unit(struct insn *insn, uint8_t latency)
{
    insn->units = UNIT_FLOAT;
    insn->latency = latency;
    insn->busy_cycles = latency == LATENCY_FLOAT_DIVIDE ? LATENCY_FLOAT_DIVIDE : 1;
}

static void float_operation(struct insn *insn, uint32_t word)
{
    unsigned operation = bits(word, 31, 27);
    bool divide = operation == 3, root = operation == 11;
    bool compares = operation == 20, to_general = operation == 24, from_general = operation == 26;
    bool moves_out = operation == 28, moves_in = operation == 30; /* moves_out: fclass as well */
    bool two = operation < 8 || compares;                         /* add, sub, mul, div, sgnj, minmax, compare */
    float_unit(insn, divide || root ? LATENCY_FLOAT_DIVIDE : LATENCY_FLOAT);
    if (moves_in || (moves_out && bits(word, 14, 12) == 0))
        insn->latency = LATENCY_TRANSFER;
    add_source(insn, from_general || moves_in ? rs1(word) : floating(bits(word, 19, 15)));
    if (two)
        add_source(insn, floating(bits(word, 24, 20)));
    add_result(insn, compares || to_general || moves_out ? rd(word) : floating(bits(word, 11, 7)));
}

static void fused(struct insn *insn, uint32_t word)
{
    float_unit(insn, LATENCY_FLOAT);
    add_source(insn, floating(bits(word, 19, 15)));
    add_source(insn, floating(bits(word, 24, 20)));
    add_source(insn, floating(bits(word, 31, 27)));
    add_result(insn, floating(bits(word, 11, 7)));
}

static void system(struct insn *insn, uint32_t word)
{
    insn->alone = true;
    if (bits(word, 14, 12) == 0) {
        insn->special = SYSTEM_CALL; /* ecall, ebreak */
        return;
    }
    if (!bit(word, 14))
        add_source(insn, rs1(word));
    add_result(insn, rd(word));
}

static int64_t jal_offset(uint32_t word)
{
    uint64_t offset = (uint64_t)bit(word, 31) << 20 | bits(word, 19, 12) << 12 | (uint64_t)bit(word, 20) << 11 | bits(word, 30, 21) << 1;
    return sign_extend(offset, 21);
}

static int64_t branch_offset(uint32_t word)
{
    uint64_t offset = (uint64_t)bit(word, 31) << 12 | (uint64_t)bit(word, 7) << 11 | bits(word, 30, 25) << 5 | bits(word, 11, 8) << 1;
    return sign_extend(offset, 13);
}

static void decode_32(struct insn *insn, uint32_t word)
{
    switch (bits(word, 6, 2)) {
    case OP_LOAD: load_from(insn, rs1(word), rd(word)); return;
    case OP_LOAD_FP: load_from(insn, rs1(word), floating(bits(word, 11, 7))); return;
    case OP_STORE: store_to(insn, rs1(word), rs2(word)); return;
    case OP_STORE_FP: store_to(insn, rs1(word), floating(bits(word, 24, 20))); return;
    case OP_FENCE:
        insn->alone = true;
        insn->special = BARRIER;
        return;
    case OP_IMM:
    case OP_IMM_32:
        add_source(insn, rs1(word));
        add_result(insn, rd(word));
        return;
    case OP_AUIPC:
    case OP_LUI: add_result(insn, rd(word)); return;
    case OP_REG:
    case OP_REG_32: integer(insn, word); return;
    case OP_AMO: atomic(insn, word); return;
    case OP_FMADD:
    case OP_FMADD + 1:
    case OP_FMADD + 2:
    case OP_FMADD + 3: fused(insn, word); return;
    case OP_FLOAT: float_operation(insn, word); return;
    case OP_BRANCH: branch(insn, rs1(word), rs2(word), branch_offset(word)); return;
    case OP_JALR: jump_register(insn, rd(word), rs1(word)); return;
    case OP_JAL: jump(insn, rd(word), jal_offset(word)); return;
    case OP_SYSTEM: system(insn, word); return;
    }
}

/* The eight registers that three bits name. */
static unsigned popular(uint32_t half, unsigned low)
{
    return 8 + bits(half, low + 2, low);
}

static int64_t compressed_jump(uint32_t half)
{
    uint64_t offset = (uint64_t)bit(half, 12) << 11 | (uint64_t)bit(half, 11) << 4 | bits(half, 10, 9) << 8 | (uint64_t)bit(half, 8) << 10 |
                      (uint64_t)bit(half, 7) << 6 | (uint64_t)bit(half, 6) << 7 | bits(half, 5, 3) << 1 | (uint64_t)bit(half, 2) << 5;
    return sign_extend(offset, 12);
}

static int64_t compressed_branch(uint32_t half)
{
    uint64_t offset = (uint64_t)bit(half, 12) << 8 | bits(half, 11, 10) << 3 | bits(half, 6, 5) << 6 | bits(half, 4, 3) << 1 |
                      (uint64_t)bit(half, 2) << 5;
    return sign_extend(offset, 9);
}

static void quadrant_0(struct insn *insn, uint32_t half)
{
    unsigned base = popular(half, 7), reg = popular(half, 2);
    switch (bits(half, 15, 13)) {
    case 0: /* c.addi4spn */
        add_source(insn, 2);
        add_result(insn, reg);
        return;
    case 1: load_from(insn, base, floating(reg)); return;
    case 2:
    case 3: load_from(insn, base, reg); return;
    case 5: store_to(insn, base, floating(reg)); return;
    case 6:
    case 7: store_to(insn, base, reg); return;
    }
}

static void compressed_arithmetic(struct insn *insn, uint32_t half)
{
    add_source(insn, popular(half, 7));
    if (bits(half, 11, 10) == 3)
        add_source(insn, popular(half, 2));
    add_result(insn, popular(half, 7));
}

static void quadrant_1(struct insn *insn, uint32_t half)
{
    unsigned reg = general(bits(half, 11, 7));
    switch (bits(half, 15, 13)) {
    case 0: /* c.addi, c.nop */
    case 1: /* c.addiw */
        add_source(insn, reg);
        add_result(insn, reg);
        return;
    case 2: add_result(insn, reg); return; /* c.li */
    case 3:                                /* c.addi16sp, c.lui */
        if (reg == 2)
            add_source(insn, reg);
        add_result(insn, reg);
        return;
    case 4: compressed_arithmetic(insn, half); return;
    case 5: jump(insn, REG_NONE, compressed_jump(half)); return;
    default: branch(insn, popular(half, 7), REG_NONE, compressed_branch(half));
    }
}

/* c.jr, c.mv, c.ebreak, c.jalr, c.add */
static void compressed_register(struct insn *insn, uint32_t half)
{
    unsigned left = general(bits(half, 11, 7)), right = general(bits(half, 6, 2));
    if (right == REG_NONE && left == REG_NONE) {
        insn->alone = true;
        insn->special = SYSTEM_CALL;
    } else if (right == REG_NONE) {
        jump_register(insn, bit(half, 12) ? 1 : REG_NONE, left);
    } else {
        if (bit(half, 12))
            add_source(insn, left);
        add_source(insn, right);
        add_result(insn, left);
    }
}

static void quadrant_2(struct insn *insn, uint32_t half)
{
    unsigned reg = bits(half, 11, 7), stored = bits(half, 6, 2);
    switch (bits(half, 15, 13)) {
    case 0: /* c.slli */
        add_source(insn, general(reg));
        add_result(insn, general(reg));
        return;
    case 1: load_from(insn, 2, floating(reg)); return;
    case 2:
    case 3: load_from(insn, 2, general(reg)); return;
    case 4: compressed_register(insn, half); return;
    case 5: store_to(insn, 2, floating(stored)); return;
    case 6:
    case 7: store_to(insn, 2, general(stored)); return;
    }
}

void decode_rv64(struct insn *insn, uint32_t word)
{
    insn->latency = LATENCY_ALU;
    switch (word & 3) {
    case 0: quadrant_0(insn, word); return;
    case 1: quadrant_1(insn, word); return;
    case 2: quadrant_2(insn, word); return;
    default: decode_32(insn, word);
    }
}
