/* A QEMU user-mode plugin that runs a program on the simulated core and leaves a capture.
 *
 * In: QEMU's instruction and memory callbacks for an AArch64 or RISC-V program with one thread. Out: the capture's files, at exit.
 * Arguments: out=DIRECTORY, period=CYCLES, seed=N, ideal=on.
 *
 * QEMU calls before an instruction and during its accesses, so an instruction is issued when the next one begins: by then its
 * accesses and where it went are known. Threads beyond the first are not simulated, and counted aloud.
 */
#include "core.h"
#include "machine.h"
#include "qemu_plugin_v1.h"
#include "record.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

QEMU_PLUGIN_EXPORT int qemu_plugin_version = 1;

static void (*decode)(struct insn *, uint32_t);
static struct insn *current; /* begun, but not yet issued */
static struct access accesses[MAX_ACCESSES];
static unsigned n_accesses;
static uint64_t start_code, end_code, foreign;

static void issue_current(uint64_t next_pc)
{
    if (current)
        core_issue(current, accesses, n_accesses, next_pc);
    n_accesses = 0;
}

static void on_instruction(unsigned vcpu, void *userdata)
{
    struct insn *insn = userdata;
    if (vcpu != 0) {
        foreign++;
        return;
    }
    issue_current(insn->pc);
    current = insn;
}

static void on_access(unsigned vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *userdata)
{
    (void)userdata;
    if (vcpu != 0)
        return;
    uint32_t size_bytes = 1u << qemu_plugin_mem_size_shift(info);
    bool is_store = qemu_plugin_mem_is_store(info);
    struct access *last = n_accesses ? &accesses[n_accesses - 1] : NULL;
    if (last && last->store == is_store && last->address + last->size_bytes == address)
        last->size_bytes += size_bytes;
    else if (n_accesses < MAX_ACCESSES)
        accesses[n_accesses++] = (struct access){.address = address, .size_bytes = size_bytes, .store = is_store};
}

static void on_translation(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
    (void)id;
    start_code = qemu_plugin_start_code();
    end_code = qemu_plugin_end_code();
    for (size_t i = 0; i < qemu_plugin_tb_n_insns(tb); i++) {
        struct qemu_plugin_insn *translated = qemu_plugin_tb_get_insn(tb, i);
        size_t size_bytes = qemu_plugin_insn_size(translated);
        uint32_t word = 0;
        memcpy(&word, qemu_plugin_insn_data(translated), size_bytes < 4 ? size_bytes : 4);
        struct insn *insn = record_insn(qemu_plugin_insn_vaddr(translated), word, (unsigned)size_bytes, decode);
        qemu_plugin_register_vcpu_insn_exec_cb(translated, on_instruction, QEMU_PLUGIN_CB_NO_REGS, insn);
        if (insn->units & UNIT_MEMORY)
            qemu_plugin_register_vcpu_mem_cb(translated, on_access, QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW, NULL);
    }
}

static void at_end(qemu_plugin_id_t id, void *userdata)
{
    (void)id;
    (void)userdata;
    if (current)
        issue_current(current->pc + current->size_bytes);
    if (foreign)
        fprintf(stderr, "simulator: %" PRIu64 " instructions of other threads were not simulated\n", foreign);
    record_write(start_code, end_code, core_cycles());
}

static uint64_t number(const char *argument)
{
    return strtoull(strchr(argument, '=') + 1, NULL, 10);
}

static bool parse(int argc, char **argv, struct record_options *options)
{
    for (int i = 0; i < argc; i++) {
        if (strncmp(argv[i], "out=", 4) == 0)
            options->directory = strdup(argv[i] + 4);
        else if (strncmp(argv[i], "period=", 7) == 0)
            options->period_cycles = number(argv[i]);
        else if (strncmp(argv[i], "seed=", 5) == 0)
            options->seed = number(argv[i]);
        else if (strcmp(argv[i], "ideal=on") == 0)
            core_set_ideal();
        else
            return false;
    }
    return options->directory && options->period_cycles > 0;
}

QEMU_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv);

int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
    struct record_options options = {
        .period_cycles = 7001,
        .seed = 1,
        .event_periods = {[INSTRUCTIONS] = 10007,
                          [DCACHE_MISSES] = 211,
                          [ICACHE_MISSES] = 101,
                          [DTLB_MISSES] = 101,
                          [BRANCH_MISSES] = 211},
    };
    if (strcmp(info->target_name, "aarch64") == 0)
        decode = decode_a64;
    else if (strcmp(info->target_name, "riscv64") == 0)
        decode = decode_rv64;
    if (!decode || !parse(argc, argv, &options)) {
        fprintf(stderr, "simulator: for aarch64 and riscv64; arguments: out=DIRECTORY[,period=CYCLES][,seed=N][,ideal=on]\n");
        return 1;
    }
    memory_init();
    record_init(&options);
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
    qemu_plugin_register_atexit_cb(id, at_end, NULL);
    return 0;
}
