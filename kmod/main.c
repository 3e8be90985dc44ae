// SPDX-License-Identifier: GPL-2.0
/*
 * The module's beginning and end. Nothing is sampled before /dev/dwell is opened and configured,
 * nor after it is closed; an open file holds the module.
 */
#include <linux/module.h>

#include "sampler.h"

static int __init dwell_init(void)
{
	int error;

	error = dwell_sampler_init();
	if (error)
		return error;
	error = dwell_test_nmi_init();
	if (error)
		goto exit_sampler;
	error = dwell_chardev_init();
	if (error)
		goto exit_test_nmi;
	return 0;

exit_test_nmi:
	dwell_test_nmi_exit();
exit_sampler:
	dwell_sampler_exit();
	return error;
}

static void __exit dwell_exit(void)
{
	dwell_chardev_exit();
	dwell_test_nmi_exit();
	dwell_sampler_exit();
}

module_init(dwell_init);
module_exit(dwell_exit);

MODULE_LICENSE("GPL");
MODULE_AUTHOR("The Dwell developers");
MODULE_DESCRIPTION("Dwell: counts where each CPU spends its time");
MODULE_VERSION("0.1.0");
