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
	int fd = open("/dev/dwell", O_RDWR), status = 0, error;
	pid_t child;

	tap(fd >= 0, "root opens /dev/dwell");
	tap(open("/dev/dwell", O_RDWR) < 0 && errno == EBUSY, "a second open is refused: busy");
	tap(!ioctl(fd, DWELL_VERSION, &version) && version.abi == DWELL_ABI_VERSION &&
	    version.ways == DWELL_WAYS, "the version is the one we know");
	tap(read(fd, bytes, sizeof(bytes)) < 0 && errno == ENODATA, "nothing to read before it is configured");
	tap(ioctl(fd, DWELL_START) && errno == ENODATA, "nothing to start either");
	tap(ioctl(fd, _IO(0xD7, 99)) && errno == ENOTTY, "an unknown request is refused");
	tap(configure_error(fd, &config) == EPROTO, "another version of the ABI is refused");
	config.version = DWELL_ABI_VERSION;
	tap(configure_error(fd, &config) == EINVAL, "no events are refused");
	config.event_count = 1;
	config.bucket_bits = DWELL_BUCKET_BITS;
	config.overflow_entries = 64;
	config.event[0] = cpu_clock(1000);
	config.event[0].spread = config.event[0].period;
	tap(configure_error(fd, &config) == EINVAL, "a spread as large as the period is refused");
	config.event[0] = (struct dwell_event){ .type = 0xffff, .config = 1, .period = 1000 };
	tap(configure_error(fd, &config) == EOPNOTSUPP, "an event that is no counter's is refused");
	config.event[0] = (struct dwell_event){
		.type = PERF_TYPE_SOFTWARE, .config = PERF_COUNT_SW_PAGE_FAULTS, .period = 1,
	};
	tap(configure_error(fd, &config) == EOPNOTSUPP, "page faults, which are no interrupts, are refused");
	config.event[0] = (struct dwell_event){
		.type = PERF_TYPE_HW_CACHE, .config = 0xffffff, .period = 1000,
	};
	error = configure_error(fd, &config);
	tap(error == ENOENT || error == EINVAL, "an event that nobody has is refused: %s", strerror(error));
	config.event[0] = cpu_clock(1000);
	tap(!configure_error(fd, &config), "and after that a good configuration is taken");
	tap(configure_error(fd, &config) == EBUSY, "a second one is refused: busy");
	tap(read(fd, bytes, 100) < 0 && errno == EINVAL, "a small buffer is refused");
	tap(module_unload() == EAGAIN, "the module stays while it is open");
	close(fd);
	child = fork();
	if (!child) {
		if (setgid(65534) || setuid(65534))
			_exit(1);
		_exit(open("/dev/dwell", O_RDWR) < 0 && errno == EPERM ? 0 : 2);
	}
	waitpid(child, &status, 0);
	tap(WIFEXITED(status) && !WEXITSTATUS(status), "who lacks CAP_PERFMON may not open it");
}
