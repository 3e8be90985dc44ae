// SPDX-License-Identifier: GPL-2.0
/*
 * For tests on machines without a counter that raises NMIs; users never build this file. Each CPU
 * sends NMIs to all others at intervals. They interrupt any code, including the handler, and are
 * counted as samples of the last event, which no configuration of the tests uses otherwise.
 */
#include <linux/delay.h>
#include <linux/hrtimer.h>
#include <linux/module.h>
#include <linux/smp.h>

#include "compat.h"
#include "sampler.h"

#ifdef CONFIG_X86_64
#include <asm/apic.h>
#include <asm/nmi.h>

static unsigned int nmi_period_ns = 150000;
module_param(nmi_period_ns, uint, 0444);

static DEFINE_PER_CPU(struct hrtimer, dwell_nmi_timer);

static int dwell_nmi(unsigned int type, struct pt_regs *regs)
{
	struct dwell_cpu *cpu = this_cpu_ptr(&dwell_cpus);

	/* Counted only while the clock counts, as if an event next to it had sent the NMI. */
	if (!READ_ONCE(cpu->clock.is_on))
		return NMI_HANDLED;
	cpu->counter[DWELL_EVENTS_MAX - 1].samples++;
	dwell_count_nmi(cpu, DWELL_EVENTS_MAX - 1, regs);
	return NMI_HANDLED;
}

/* Uses the memory-mapped APIC, because QEMU emulates no x2APIC. */
static void dwell_send_nmis(void)
{
	native_apic_mem_write(APIC_ICR, APIC_DEST_ALLBUT | APIC_DM_NMI);
}

static enum hrtimer_restart dwell_nmi_expired(struct hrtimer *timer)
{
	dwell_send_nmis();
	/* The distance to other periodic activity varies. */
	hrtimer_forward_now(timer, ns_to_ktime(nmi_period_ns + (get_cycles() & 0x7fff)));
	return HRTIMER_RESTART;
}

static void dwell_nmi_start(void *unused)
{
	struct hrtimer *timer = this_cpu_ptr(&dwell_nmi_timer);

	dwell_timer_setup(timer, dwell_nmi_expired);
	hrtimer_start(timer, ns_to_ktime(nmi_period_ns), HRTIMER_MODE_REL_PINNED_HARD);
}

int dwell_test_nmi_init(void)
{
	int error = register_nmi_handler(NMI_LOCAL, dwell_nmi, 0, "dwell_test");

	if (!error)
		on_each_cpu(dwell_nmi_start, NULL, 1);
	return error;
}

void dwell_test_nmi_exit(void)
{
	unsigned int number;

	for_each_online_cpu(number)
		hrtimer_cancel(per_cpu_ptr(&dwell_nmi_timer, number));
	/* The NMIs that were sent have arrived. */
	msleep(20);
	unregister_nmi_handler(NMI_LOCAL, "dwell_test");
}
#else
int dwell_test_nmi_init(void)
{
	return -EOPNOTSUPP;
}

void dwell_test_nmi_exit(void)
{
}
#endif
