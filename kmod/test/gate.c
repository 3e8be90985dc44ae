// SPDX-License-Identifier: GPL-2.0
/*
 * Tests which users may open /dev/dwell, and which requests it refuses.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/perf_event.h>

#include "guest.h"

static int configure_error(int fd, struct dwell_config *config)
{
	return ioctl(fd, DWELL_CONFIGURE, config) ? errno : 0;
}

void test_gate(void)
{
	struct dwell_config config = { .version = DWELL_ABI_VERSION + 1 };
	struct dwell_version version = { 0 };
	static char bytes[DWELL_READ_MIN];
	int fd = open("/dev/dwell", O_RDWR), status = 0, error, at;
	pid_t child;

	tap(fd >= 0, "root opens /dev/dwell");
	tap(open("/dev/dwell", O_RDWR) < 0 && errno == EBUSY, "a second open is refused: busy");
	tap(!ioctl(fd, DWELL_VERSION, &version) && version.abi == DWELL_ABI_VERSION &&
	    version.ways == DWELL_WAYS, "the version is the expected one");
	tap(read(fd, bytes, sizeof(bytes)) < 0 && errno == ENODATA, "reading fails before it is configured");
	tap(ioctl(fd, DWELL_START) && errno == ENODATA, "starting fails, too");
	tap(ioctl(fd, _IO(0xD7, 99)) && errno == ENOTTY, "an unknown request is refused");
	tap(configure_error(fd, &config) == EPROTO, "another version of the ABI is refused");
	config.version = DWELL_ABI_VERSION;
	tap(configure_error(fd, &config) == EINVAL, "a configuration without events is refused");
	config.event_count = DWELL_EVENTS_MAX;
	config.bucket_bits = DWELL_BUCKET_BITS;
	config.overflow_entries = 64;
	for (at = 0; at < DWELL_EVENTS_MAX; at++)
		config.event[at] = cpu_clock(1000);
	tap(configure_error(fd, &config) == EINVAL, "an event with the number of kernel time is refused");
	config.event_count = 1;
	config.event[0].spread = config.event[0].period;
	tap(configure_error(fd, &config) == EINVAL, "a spread as large as the period is refused");
	config.event[0] = (struct dwell_event){ .type = 0xffff, .config = 1, .period = 1000 };
	tap(configure_error(fd, &config) == EOPNOTSUPP, "an event that no counter has is refused");
	config.event[0] = (struct dwell_event){
		.type = PERF_TYPE_SOFTWARE, .config = PERF_COUNT_SW_PAGE_FAULTS, .period = 1,
	};
	tap(configure_error(fd, &config) == EOPNOTSUPP, "page faults are refused, because they cause no interrupts");
	config.event[0] = (struct dwell_event){
		.type = PERF_TYPE_HW_CACHE, .config = 0xffffff, .period = 1000,
	};
	error = configure_error(fd, &config);
	tap(error == ENOENT || error == EINVAL, "an unknown cache event is refused: %s", strerror(error));
	config.event[0] = cpu_clock(1000);
	tap(!configure_error(fd, &config), "after that a valid configuration is accepted");
	tap(configure_error(fd, &config) == EBUSY, "a second one is refused: busy");
	tap(read(fd, bytes, 100) < 0 && errno == EINVAL, "a small buffer is refused");
	tap(module_unload() == EAGAIN, "the module cannot be unloaded while the device is open");
	close(fd);
	child = fork();
	if (!child) {
		if (setgid(65534) || setuid(65534))
			_exit(1);
		_exit(open("/dev/dwell", O_RDWR) < 0 && errno == EPERM ? 0 : 2);
	}
	waitpid(child, &status, 0);
	tap(WIFEXITED(status) && !WEXITSTATUS(status), "a process without CAP_PERFMON may not open it");
}
