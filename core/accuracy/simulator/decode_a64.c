/* A64: from an instruction's word to its class, unit, latency, source and result registers.
 *
 * In: the word and the address. Out: the decoded part of `struct insn`. Constant time.
 * Written from the encoding tables of the Arm Architecture Reference Manual (section C4.1). Every integer, load, store, branch and
 * scalar floating-point form of Armv8.2 is told apart; SIMD by group, as only its registers and a few classes matter.
 */
#include "insn.h"
#include "machine.h"

static unsigned general(uint32_t word, unsigned low)
{
    unsigned reg = bits(word, low + 4, low);
    return reg == 31 ? REG_NONE : reg;
}

static unsigned general_or_sp(uint32_t word, unsigned low)
{
    return bits(word, low + 4, low); /* 31 is REG_SP */
}

static unsigned vector(uint32_t word, unsigned low)
{
    return REG_FP0 + bits(word, low + 4, low);
}

static void immediate(struct insn *insn, uint32_t word)
{
    bool flags_or_keep = bits(word, 30, 29) == 3;
    switch (bits(word, 25, 23)) {
    case 0:
    case 1: /* adr, adrp */
        add_result(insn, general(word, 0));
        return;
    case 2:
    case 3: /* add, sub */
        add_source(insn, general_or_sp(word, 5));
        add_result(insn, bit(word, 29) ? general(word, 0) : general_or_sp(word, 0));
        if (bit(word, 29))
            add_result(insn, REG_FLAGS);
        return;
    case 4: /* and, orr, eor, ands */
        add_source(insn, general(word, 5));
        add_result(insn, flags_or_keep ? general(word, 0) : general_or_sp(word, 0));
        if (flags_or_keep)
            add_result(insn, REG_FLAGS);
        return;
    case 5: /* movn, movz, movk */
        if (flags_or_keep)
            add_source(insn, general(word, 0));
        break;
    case 6: /* sbfm, bfm, ubfm */
        add_source(insn, general(word, 5));
        if (bits(word, 30, 29) == 1)
            add_source(insn, general(word, 0));
        break;
    case 7: /* extr */
        add_source(insn, general(word, 5));
        add_source(insn, general(word, 16));
        break;
    }
    add_result(insn, general(word, 0));
}

static void multiply_or_divide(struct insn *insn, uint8_t latency, uint8_t busy_cycles)
{
    insn->units = UNIT_MULTIPLY;
    insn->latency = latency;
    insn->busy_cycles = busy_cycles;
}

static void one_or_two_sources(struct insn *insn, uint32_t word)
{
    bool two = !bit(word, 30);
    add_source(insn, general(word, 5));
    if (two) {
        add_source(insn, general(word, 16));
        if (bits(word, 15, 10) == 2 || bits(word, 15, 10) == 3)
            multiply_or_divide(insn, LATENCY_DIVIDE, LATENCY_DIVIDE);
    }
    add_result(insn, general(word, 0));
}

static void three_sources(struct insn *insn, uint32_t word)
{
    multiply_or_divide(insn, LATENCY_MULTIPLY, 1);
    add_source(insn, general(word, 5));
    add_source(insn, general(word, 16));
    add_source(insn, general(word, 10));
    add_result(insn, general(word, 0));
}

static void logical_or_arithmetic(struct insn *insn, uint32_t word)
{
    bool arithmetic = bit(word, 24), extended = arithmetic && bit(word, 21);
    bool flags = arithmetic ? bit(word, 29) : bits(word, 30, 29) == 3;
    add_source(insn, extended ? general_or_sp(word, 5) : general(word, 5));
    add_source(insn, general(word, 16));
    add_result(insn, extended && !flags ? general_or_sp(word, 0) : general(word, 0));
    if (flags)
        add_result(insn, REG_FLAGS);
}

static void registers(struct insn *insn, uint32_t word)
{
    if (!bit(word, 28)) {
        logical_or_arithmetic(insn, word);
        return;
    }
    if (bit(word, 24)) {
        three_sources(insn, word);
        return;
    }
    switch (bits(word, 23, 21)) {
    case 0: /* adc, sbc; rmif and setf write the flags alone */
        add_source(insn, general(word, 5));
        if (bits(word, 15, 10) == 0) {
            add_source(insn, general(word, 16));
            add_result(insn, general(word, 0));
        }
        add_source(insn, REG_FLAGS);
        if (bit(word, 29))
            add_result(insn, REG_FLAGS);
        return;
    case 2: /* ccmp, ccmn */
        add_source(insn, general(word, 5));
        if (!bit(word, 11))
            add_source(insn, general(word, 16));
        add_source(insn, REG_FLAGS);
        add_result(insn, REG_FLAGS);
        return;
    case 4: /* csel and its kin */
        add_source(insn, general(word, 5));
        add_source(insn, general(word, 16));
        add_source(insn, REG_FLAGS);
        add_result(insn, general(word, 0));
        return;
    case 6:
        one_or_two_sources(insn, word);
        return;
    }
}

static void direct(struct insn *insn, enum branch kind, uint64_t offset_words, unsigned width_bits)
{
    insn->branch = kind;
    insn->target = insn->pc + (uint64_t)(sign_extend(offset_words, width_bits) * 4);
}

static void branch_to_register(struct insn *insn, uint32_t word)
{
    unsigned kind = bits(word, 22, 21);
    insn->units = UNIT_BRANCH;
    insn->branch = kind == 1 ? INDIRECT_CALL : kind == 2 ? RETURN : INDIRECT_JUMP;
    add_source(insn, kind == 2 && bit(word, 11) ? 30 : general(word, 5)); /* retaa names no register */
    if (kind == 1)
        add_result(insn, 30);
}

static void system(struct insn *insn, uint32_t word)
{
    if ((word & 0xfffff01f) == 0xd503201f) /* hints: nop, bti, paciasp, yield */
        return;
    insn->alone = true;
    if ((word & 0xfffff01f) == 0xd503301f) { /* clrex orders nothing */
        insn->special = bits(word, 7, 5) >= 4 ? BARRIER : PLAIN;
        return;
    }
    if ((word & 0xffffffe0) == 0xd50b7420) { /* dc zva: a store, but QEMU does not report its address */
        insn->alone = false;
        insn->units = UNIT_MEMORY;
        insn->store = true;
    }
    if (bit(word, 21)) {
        add_result(insn, general(word, 0)); /* mrs */
        if ((word & 0xffffffe0) == 0xd53b4200)
            add_source(insn, REG_FLAGS);
        return;
    }
    add_source(insn, general(word, 0)); /* msr, sys */
    if ((word & 0xffffffe0) == 0xd51b4200)
        add_result(insn, REG_FLAGS);
}

static void branches(struct insn *insn, uint32_t word)
{
    if (bits(word, 31, 24) == 0xd4) { /* svc, brk */
        insn->alone = true;
        insn->special = SYSTEM_CALL;
        return;
    }
    if (bits(word, 31, 24) == 0xd5) {
        system(insn, word);
        return;
    }
    insn->units = UNIT_BRANCH;
    if (bits(word, 30, 26) == 5) { /* b, bl */
        direct(insn, bit(word, 31) ? CALL : JUMP, bits(word, 25, 0), 26);
        if (bit(word, 31))
            add_result(insn, 30);
    } else if (bits(word, 30, 25) == 0x1a) { /* cbz, cbnz */
        direct(insn, CONDITIONAL, bits(word, 23, 5), 19);
        add_source(insn, general(word, 0));
    } else if (bits(word, 30, 25) == 0x1b) { /* tbz, tbnz */
        direct(insn, CONDITIONAL, bits(word, 18, 5), 14);
        add_source(insn, general(word, 0));
    } else if (bits(word, 31, 25) == 0x2a) { /* b.cond */
        direct(insn, CONDITIONAL, bits(word, 23, 5), 19);
        add_source(insn, REG_FLAGS);
    } else {
        branch_to_register(insn, word);
    }
}

static void load_or_store(struct insn *insn, bool load)
{
    insn->units = UNIT_MEMORY;
    insn->load = load;
    insn->store = !load;
    insn->latency = load ? LATENCY_LOAD : LATENCY_ALU;
}

static void data(struct insn *insn, unsigned reg)
{
    if (insn->load)
        add_result(insn, reg);
    else
        add_source(insn, reg);
}

static void write_back(struct insn *insn, uint32_t word)
{
    add_result(insn, general_or_sp(word, 5));
    insn->n_quick = 1;
}

/* ld1-ld4 and st1-st4, on whole registers or on one lane. */
static void structures(struct insn *insn, uint32_t word)
{
    static const uint8_t whole[16] = {4, 0, 4, 0, 3, 0, 3, 1, 2, 0, 2};
    bool lane = bit(word, 24), replicate = lane && bits(word, 15, 14) == 3;
    unsigned count = lane ? 1 + bit(word, 21) + 2 * bit(word, 13) : whole[bits(word, 15, 12)];
    load_or_store(insn, bit(word, 22));
    add_source(insn, general_or_sp(word, 5));
    for (unsigned i = 0; i < count; i++) {
        unsigned reg = REG_FP0 + (bits(word, 4, 0) + i) % 32;
        data(insn, reg);
        if (lane && insn->load && !replicate)
            add_source(insn, reg);
    }
    if (bit(word, 23)) {
        add_source(insn, general(word, 16));
        write_back(insn, word);
    }
}

static void read_modify_write(struct insn *insn)
{
    insn->units = UNIT_MEMORY;
    insn->load = insn->store = true;
    insn->latency = LATENCY_LOAD;
    insn->special = ORDERED;
}

/* ldxr and stxr, their pairs, ldar, stlr, cas and casp. */
static void exclusive(struct insn *insn, uint32_t word)
{
    bool single = bit(word, 23), pair_or_cas = bit(word, 21), load = bit(word, 22);
    add_source(insn, general_or_sp(word, 5));
    if (pair_or_cas && (single || !bit(word, 31))) { /* cas, casp */
        read_modify_write(insn);
        for (unsigned i = 0; i < (single ? 1u : 2u); i++) {
            unsigned compared = bits(word, 20, 16) + i;
            add_source(insn, compared == 31 ? REG_NONE : compared);
            add_source(insn, bits(word, 4, 0) + i == 31 ? REG_NONE : bits(word, 4, 0) + i);
            add_result(insn, compared == 31 ? REG_NONE : compared);
        }
        return;
    }
    load_or_store(insn, load);
    data(insn, general(word, 0));
    if (pair_or_cas)
        data(insn, general(word, 10));
    if (!single && !load)
        add_result(insn, general(word, 16)); /* whether stxr succeeded */
    if (!load && bit(word, 15))
        insn->special = ORDERED; /* a release */
}

static void literal(struct insn *insn, uint32_t word)
{
    bool prefetch = !bit(word, 26) && bits(word, 31, 30) == 3;
    load_or_store(insn, true);
    if (!prefetch)
        add_result(insn, bit(word, 26) ? vector(word, 0) : general(word, 0));
}

static void pair(struct insn *insn, uint32_t word)
{
    bool floating = bit(word, 26);
    load_or_store(insn, bit(word, 22));
    data(insn, floating ? vector(word, 0) : general(word, 0));
    data(insn, floating ? vector(word, 10) : general(word, 10));
    add_source(insn, general_or_sp(word, 5));
    if (bit(word, 23))
        write_back(insn, word);
}

/* ldadd and similar ones, swp; ldapr is a plain load. */
static void atomic(struct insn *insn, uint32_t word)
{
    add_source(insn, general_or_sp(word, 5));
    if (bit(word, 15) && bits(word, 14, 12) == 4) {
        load_or_store(insn, true);
    } else {
        read_modify_write(insn);
        add_source(insn, general(word, 16));
    }
    add_result(insn, general(word, 0));
}

static void single(struct insn *insn, uint32_t word)
{
    bool floating = bit(word, 26), immediate_12 = bit(word, 24);
    unsigned form = immediate_12 ? 0 : bits(word, 11, 10);
    if (!immediate_12 && bit(word, 21) && form == 0) {
        atomic(insn, word);
        return;
    }
    load_or_store(insn, floating ? bit(word, 22) : bits(word, 23, 22) != 0);
    bool prefetch = !floating && bits(word, 31, 30) == 3 && bits(word, 23, 22) == 2;
    if (!prefetch)
        data(insn, floating ? vector(word, 0) : general(word, 0));
    add_source(insn, general_or_sp(word, 5));
    if (!immediate_12 && bit(word, 21) && form == 2)
        add_source(insn, general(word, 16));
    if (!immediate_12 && !bit(word, 21) && (form == 1 || form == 3))
        write_back(insn, word);
}

static void memory(struct insn *insn, uint32_t word)
{
    switch (bits(word, 29, 28)) {
    case 0:
        if (bit(word, 26))
            structures(insn, word);
        else
            exclusive(insn, word);
        return;
    case 1:
        if (!bit(word, 24)) {
            literal(insn, word);
        } else { /* ldapur and stlur */
            load_or_store(insn, bits(word, 23, 22) != 0);
            data(insn, general(word, 0));
            add_source(insn, general_or_sp(word, 5));
            insn->special = insn->load ? PLAIN : ORDERED;
        }
        return;
    case 2:
        pair(insn, word);
        return;
    default:
        single(insn, word);
    }
}

static void floating(struct insn *insn, uint8_t latency)
{
    insn->units = UNIT_FLOAT;
    insn->latency = latency;
    insn->busy_cycles = latency == LATENCY_FLOAT_DIVIDE ? LATENCY_FLOAT_DIVIDE : 1;
}

/* Conversions and moves between the register files. */
static void between_files(struct insn *insn, uint32_t word)
{
    unsigned opcode = bits(word, 18, 16);
    bool to_vector = opcode == 2 || opcode == 3 || opcode == 7;
    bool move = bit(word, 21) && opcode >= 6 && bits(word, 20, 19) != 3;
    floating(insn, move ? LATENCY_TRANSFER : LATENCY_FLOAT);
    add_source(insn, to_vector ? general(word, 5) : vector(word, 5));
    if (to_vector && bits(word, 20, 19) == 1 && move)
        add_source(insn, vector(word, 0)); /* fmov to the upper half keeps the lower */
    add_result(insn, to_vector ? vector(word, 0) : general(word, 0));
}

static void scalar_float(struct insn *insn, uint32_t word)
{
    floating(insn, LATENCY_FLOAT);
    if (bit(word, 24)) { /* fmadd and its kin */
        add_source(insn, vector(word, 5));
        add_source(insn, vector(word, 16));
        add_source(insn, vector(word, 10));
        add_result(insn, vector(word, 0));
    } else if (!bit(word, 21) || bits(word, 15, 10) == 0) {
        between_files(insn, word);
    } else if (bits(word, 13, 10) == 8) { /* fcmp */
        add_source(insn, vector(word, 5));
        if (!bit(word, 3))
            add_source(insn, vector(word, 16));
        add_result(insn, REG_FLAGS);
    } else if (bits(word, 14, 10) == 16) { /* one source */
        if (bits(word, 20, 15) == 3)
            floating(insn, LATENCY_FLOAT_DIVIDE);
        add_source(insn, vector(word, 5));
        add_result(insn, vector(word, 0));
    } else if (bits(word, 12, 10) == 4) { /* fmov of an immediate */
        add_result(insn, vector(word, 0));
    } else { /* fccmp, two sources, fcsel */
        unsigned form = bits(word, 11, 10);
        if (form == 2 && bits(word, 15, 12) == 1)
            floating(insn, LATENCY_FLOAT_DIVIDE);
        add_source(insn, vector(word, 5));
        add_source(insn, vector(word, 16));
        if (form != 2)
            add_source(insn, REG_FLAGS);
        add_result(insn, form == 1 ? REG_FLAGS : vector(word, 0));
    }
}

/* dup, ins, smov and umov, some of which cross between the register files. */
static void copy_lane(struct insn *insn, uint32_t word)
{
    unsigned kind = bits(word, 14, 11);
    bool insert_lane = bit(word, 29);
    bool from_general = !insert_lane && (kind == 1 || kind == 3);
    bool to_general = !insert_lane && (kind == 5 || kind == 7);
    floating(insn, from_general || to_general ? LATENCY_TRANSFER : LATENCY_VECTOR);
    add_source(insn, from_general ? general(word, 5) : vector(word, 5));
    if (insert_lane || kind == 3)
        add_source(insn, vector(word, 0));
    add_result(insn, to_general ? general(word, 0) : vector(word, 0));
}

static void table_or_permute(struct insn *insn, uint32_t word)
{
    bool table = !bit(word, 29) && bits(word, 11, 10) == 0;
    unsigned count = table ? 1 + bits(word, 14, 13) : 1;
    floating(insn, LATENCY_VECTOR);
    for (unsigned i = 0; i < count; i++)
        add_source(insn, REG_FP0 + (bits(word, 9, 5) + i) % 32);
    add_source(insn, vector(word, 16));
    if (table && bit(word, 12)) /* tbx */
        add_source(insn, vector(word, 0));
    add_result(insn, vector(word, 0));
}

static void vector_three_same(struct insn *insn, uint32_t word)
{
    unsigned opcode = bits(word, 15, 11);
    bool unsigned_form = bit(word, 29), is_float = opcode >= 24;
    bool divide = is_float && opcode == 31 && unsigned_form && !bit(word, 23);
    bool accumulates = opcode == 18 || opcode == 15 || (is_float && opcode == 25 && !unsigned_form) ||
                       (opcode == 3 && unsigned_form && bits(word, 23, 22) != 0);
    floating(insn, divide ? LATENCY_FLOAT_DIVIDE : is_float ? LATENCY_FLOAT : LATENCY_VECTOR);
    add_source(insn, vector(word, 5));
    add_source(insn, vector(word, 16));
    if (accumulates)
        add_source(insn, vector(word, 0));
    add_result(insn, vector(word, 0));
}

/* Two-register miscellany, reductions across lanes, AES and SHA of two registers. */
static void vector_one_source(struct insn *insn, uint32_t word)
{
    unsigned opcode = bits(word, 16, 12), group = bits(word, 20, 17);
    bool misc = group == 0;
    bool is_float = (misc && (opcode >= 24 || opcode == 22 || opcode == 23 || (opcode >= 12 && opcode <= 15 && bit(word, 23)))) ||
                    (group == 8 && (opcode == 12 || opcode == 15 || (opcode == 13 && bit(word, 29))));
    bool root = misc && opcode == 31 && bit(word, 29) && bit(word, 23);
    bool narrows_upper = misc && bit(word, 30) && !bit(word, 28) && (opcode == 18 || opcode == 20 || opcode == 22);
    bool accumulates = group == 4 || narrows_upper || (misc && (opcode == 3 || opcode == 6));
    floating(insn, root ? LATENCY_FLOAT_DIVIDE : is_float ? LATENCY_FLOAT : LATENCY_VECTOR);
    add_source(insn, vector(word, 5));
    if (accumulates)
        add_source(insn, vector(word, 0));
    add_result(insn, vector(word, 0));
}

static void vector_three_different(struct insn *insn, uint32_t word)
{
    unsigned opcode = bits(word, 15, 12);
    bool narrows_upper = bit(word, 30) && (opcode == 4 || opcode == 6);
    floating(insn, LATENCY_VECTOR);
    add_source(insn, vector(word, 5));
    add_source(insn, vector(word, 16));
    if (opcode == 5 || opcode == 8 || opcode == 10 || opcode == 9 || opcode == 11 || narrows_upper)
        add_source(insn, vector(word, 0));
    add_result(insn, vector(word, 0));
}

/* Shifts by an immediate, and moves of an immediate. */
static void vector_immediate(struct insn *insn, uint32_t word)
{
    unsigned opcode = bits(word, 15, 11);
    if (bits(word, 22, 19) == 0) {
        unsigned mode = bits(word, 15, 12);
        floating(insn, mode == 15 ? LATENCY_FLOAT : LATENCY_VECTOR);
        if (bit(word, 12) && mode < 12) /* orr, bic */
            add_source(insn, vector(word, 0));
    } else {
        bool inserts = bit(word, 29) && (opcode == 8 || opcode == 10);
        bool narrows_upper = bit(word, 30) && !bit(word, 28) && opcode >= 16 && opcode <= 19;
        floating(insn, opcode >= 28 ? LATENCY_FLOAT : LATENCY_VECTOR);
        add_source(insn, vector(word, 5));
        if (opcode == 2 || opcode == 6 || inserts || narrows_upper)
            add_source(insn, vector(word, 0));
    }
    add_result(insn, vector(word, 0));
}

static void vector_by_element(struct insn *insn, uint32_t word)
{
    unsigned opcode = bits(word, 15, 12);
    bool is_float = !bit(word, 29) ? opcode == 1 || opcode == 5 || opcode == 9 : opcode == 9;
    bool halves = bits(word, 23, 22) == 1 || (is_float && bits(word, 23, 22) == 0);
    bool accumulates = opcode == 0 || opcode == 1 || opcode == 2 || opcode == 3 || opcode == 4 || opcode == 5 || opcode == 6 ||
                       opcode == 7 || opcode >= 13;
    floating(insn, is_float ? LATENCY_FLOAT : LATENCY_VECTOR);
    add_source(insn, vector(word, 5));
    add_source(insn, halves ? REG_FP0 + bits(word, 19, 16) : vector(word, 16));
    if (accumulates)
        add_source(insn, vector(word, 0));
    add_result(insn, vector(word, 0));
}

static void vectors(struct insn *insn, uint32_t word)
{
    if (bit(word, 24) && !bit(word, 31)) {
        if (bit(word, 10))
            vector_immediate(insn, word);
        else
            vector_by_element(insn, word);
    } else if (!bit(word, 31) && bit(word, 21)) {
        if (bit(word, 10))
            vector_three_same(insn, word);
        else if (bit(word, 11))
            vector_one_source(insn, word);
        else
            vector_three_different(insn, word);
    } else if (!bit(word, 31) && !bit(word, 15) && bit(word, 10) && bits(word, 23, 21) == 0) {
        copy_lane(insn, word);
    } else if (!bit(word, 31) && !bit(word, 28) && !bit(word, 15)) {
        table_or_permute(insn, word);
    } else { /* dot products, SHA-1, SHA-2, SHA-3 and the rest, which mostly accumulate */
        floating(insn, LATENCY_VECTOR);
        add_source(insn, vector(word, 5));
        add_source(insn, vector(word, 16));
        add_source(insn, vector(word, 0));
        add_result(insn, vector(word, 0));
    }
}

void decode_a64(struct insn *insn, uint32_t word)
{
    insn->latency = LATENCY_ALU;
    switch (bits(word, 28, 25)) {
    case 8:
    case 9:
        immediate(insn, word);
        return;
    case 10:
    case 11:
        branches(insn, word);
        return;
    case 4:
    case 6:
    case 12:
    case 14:
        memory(insn, word);
        return;
    case 5:
    case 13:
        registers(insn, word);
        return;
    case 7:
    case 15:
        if (bit(word, 28) && !bit(word, 30) && !bit(word, 29))
            scalar_float(insn, word);
        else
            vectors(insn, word);
        return;
    }
}
