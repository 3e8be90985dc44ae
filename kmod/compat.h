/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Every difference between kernels (6.1 and later) and between architectures.
 */
#ifndef DWELL_COMPAT_H
#define DWELL_COMPAT_H

#include <linux/hrtimer.h>
#include <linux/perf_event.h>
#include <linux/ptrace.h>
#include <linux/version.h>
#include <asm/unistd.h>

#include "dwell_abi.h"

#ifndef CONFIG_64BIT
#error "dwell counts in 64-bit words that must not be torn: 64-bit kernels only"
#endif

/*
 * The value to which kernel/events/core.c, where it is private, sets hw.interrupts when it
 * throttles an event.
 */
#define DWELL_MAX_INTERRUPTS (~0ULL)

static inline bool dwell_is_throttled(const struct perf_event *event)
{
	return event->hw.interrupts == DWELL_MAX_INTERRUPTS;
}

#if defined(CONFIG_X86_64)
#define DWELL_HAS_REGISTERS DWELL_REGISTERS

/* 32-bit code is never interpreted. */
static inline bool dwell_is_user_64(struct pt_regs *regs)
{
	return user_64bit_mode(regs);
}

/* The number of the system call that the task made, -1 if it entered the kernel in another way. */
static inline int dwell_system_call(const struct pt_regs *user)
{
	return user->orig_ax;
}

/* `syscall' leaves the address of its successor in rcx and the flags in r11. */
static inline u64 dwell_entered_at(const struct pt_regs *user)
{
	return user->cx == user->ip && user->r11 == user->flags ? user->ip - 2 : user->ip;
}

/* The registers are in the order of enum perf_event_x86_regs. */
static inline void dwell_copy_registers(__u64 *out, const struct pt_regs *regs)
{
	const __u64 values[DWELL_REGISTERS] = {
		regs->ax, regs->bx, regs->cx, regs->dx, regs->si, regs->di, regs->bp, regs->sp,
		regs->flags, regs->r8, regs->r9, regs->r10, regs->r11, regs->r12, regs->r13,
		regs->r14, regs->r15,
	};

	memcpy(out, values, sizeof(values));
}
#elif defined(CONFIG_ARM64)
#define DWELL_HAS_REGISTERS DWELL_REGISTERS

static inline bool dwell_is_user_64(const struct pt_regs *regs)
{
	return user_mode(regs) && !compat_user_mode(regs);
}

static inline int dwell_system_call(const struct pt_regs *user)
{
	return user->syscallno;
}

static inline u64 dwell_entered_at(const struct pt_regs *user)
{
	return user->pc;
}

/* The registers are in the order of enum perf_event_arm_regs, without its last one, the pc. */
static inline void dwell_copy_registers(__u64 *out, const struct pt_regs *regs)
{
	BUILD_BUG_ON(ARRAY_SIZE(regs->regs) != DWELL_REGISTERS - 1);
	memcpy(out, regs->regs, sizeof(regs->regs));
	out[DWELL_REGISTERS - 1] = regs->sp;
}
#else
#define DWELL_HAS_REGISTERS 0

static inline bool dwell_is_user_64(const struct pt_regs *regs)
{
	return false;
}

static inline int dwell_system_call(const struct pt_regs *user)
{
	return -1;
}

static inline u64 dwell_entered_at(const struct pt_regs *user)
{
	return 0;
}

static inline void dwell_copy_registers(__u64 *out, const struct pt_regs *regs)
{
}
#endif

/*
 * The address of the user's instruction that entered the kernel with these registers, or 0: for
 * 32-bit code, and for execve, whose registers belong to the program before.
 */
static inline u64 dwell_entered_from(struct pt_regs *user)
{
	int number = dwell_system_call(user);

	if (!dwell_is_user_64(user) || number == __NR_execve || number == __NR_execveat)
		return 0;
	return dwell_entered_at(user);
}

/* Linux 6.13 added hrtimer_setup(), and 6.15 removed hrtimer_init(). */
static inline void dwell_timer_setup(struct hrtimer *timer,
				     enum hrtimer_restart (*expired)(struct hrtimer *timer))
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
	hrtimer_setup(timer, expired, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
#else
	hrtimer_init(timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
	timer->function = expired;
#endif
}

#endif
