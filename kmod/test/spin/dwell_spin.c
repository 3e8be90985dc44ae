// SPDX-License-Identifier: GPL-2.0
/*
 * A module with code that is worth sampling: writing to its parameter spins for so many
 * milliseconds.
 */
#include <linux/kernel.h>
#include <linux/ktime.h>
#include <linux/module.h>

/* The clock is read so rarely that its code, which belongs to the kernel, has almost no samples. */
#define ROUNDS 100000

static noinline void dwell_spin(u64 ms)
{
	u64 end_ns = ktime_get_ns() + ms * NSEC_PER_MSEC;
	unsigned int round;

	while (ktime_get_ns() < end_ns)
		for (round = 0; round < ROUNDS; round++)
			barrier();
}

static int dwell_spin_set(const char *text, const struct kernel_param *param)
{
	unsigned int ms;
	int error = kstrtouint(text, 10, &ms);

	if (!error)
		dwell_spin(ms);
	return error;
}

static const struct kernel_param_ops dwell_spin_ops = { .set = dwell_spin_set };
module_param_cb(spin_ms, &dwell_spin_ops, NULL, 0200);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Dwell's tests: spins on request");
