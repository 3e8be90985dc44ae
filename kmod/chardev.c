// SPDX-License-Identifier: GPL-2.0
/*
 * /dev/dwell: one reader, which configures sampling, reads and queries. See dwell_abi.h.
 *
 * Enters: system calls. Leaves: chunks and status. The gate is CAP_PERFMON, not the file's mode, so
 * that a daemon with a user of its own needs nothing else.
 */
#include <linux/capability.h>
#include <linux/cpu.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/uaccess.h>

#include "compat.h"
#include "sampler.h"

/* Guards the reader's position in tables and buffers. It is the outermost lock. */
static DEFINE_MUTEX(dwell_reader);
static atomic_t dwell_open_count = ATOMIC_INIT(0);

static void dwell_lock(void)
{
	mutex_lock(&dwell_reader);
	cpus_read_lock();
	mutex_lock(&dwell_mutex);
}

static void dwell_unlock(void)
{
	mutex_unlock(&dwell_mutex);
	cpus_read_unlock();
	mutex_unlock(&dwell_reader);
}

static int dwell_open(struct inode *inode, struct file *file)
{
	if (!perfmon_capable())
		return -EPERM;
	if (atomic_cmpxchg(&dwell_open_count, 0, 1))
		return -EBUSY;
	return stream_open(inode, file);
}

static int dwell_release(struct inode *inode, struct file *file)
{
	dwell_lock();
	if (dwell_sampler_is_open())
		dwell_sampler_close();
	dwell_unlock();
	atomic_set(&dwell_open_count, 0);
	return 0;
}

static ssize_t dwell_read(struct file *file, char __user *to, size_t room, loff_t *offset)
{
	ssize_t count;

	if (room < DWELL_READ_MIN)
		return -EINVAL;
	for (;;) {
		mutex_lock(&dwell_reader);
		count = dwell_sampler_is_open() ? dwell_drain_read(to, room) : -ENODATA;
		mutex_unlock(&dwell_reader);
		if (count)
			return count;
		if (file->f_flags & O_NONBLOCK)
			return -EAGAIN;
		if (wait_event_interruptible(dwell_drain_wait, dwell_drain_is_ready()))
			return -ERESTARTSYS;
	}
}

static __poll_t dwell_poll(struct file *file, poll_table *table)
{
	poll_wait(file, &dwell_drain_wait, table);
	return dwell_drain_is_ready() ? EPOLLIN | EPOLLRDNORM : 0;
}

static long dwell_tell_version(void __user *argument)
{
	const struct dwell_version version = {
		.abi = DWELL_ABI_VERSION,
		.ways = DWELL_WAYS,
		.registers = DWELL_HAS_REGISTERS,
	};

	return copy_to_user(argument, &version, sizeof(version)) ? -EFAULT : 0;
}

/* The structures that all ioctls except two exchange. */
union dwell_argument {
	struct dwell_config config;
	struct dwell_period period;
	struct dwell_apart apart;
	struct dwell_status status;
	struct dwell_event_status event_status;
};

/* Called with all locks held; the argument has been copied into the kernel. */
static long dwell_do(unsigned int command, union dwell_argument *argument)
{
	if (command == DWELL_CONFIGURE)
		return dwell_sampler_open(&argument->config);
	if (!dwell_sampler_is_open())
		return -ENODATA;
	switch (command) {
	case DWELL_START:
	case DWELL_STOP:
		dwell_sampler_switch(command == DWELL_START);
		return 0;
	case DWELL_FLUSH:
		dwell_drain_flush();
		return 0;
	case DWELL_PERIOD:
		return dwell_sampler_period(&argument->period);
	case DWELL_APART:
		return dwell_sampler_apart(&argument->apart);
	case DWELL_STATUS:
		dwell_sampler_status(&argument->status);
		return 0;
	case DWELL_EVENT_STATUS:
		return dwell_sampler_event_status(&argument->event_status);
	default:
		return -ENOTTY;
	}
}

static bool dwell_is_known(unsigned int command)
{
	switch (command) {
	case DWELL_CONFIGURE:
	case DWELL_START:
	case DWELL_STOP:
	case DWELL_FLUSH:
	case DWELL_PERIOD:
	case DWELL_APART:
	case DWELL_STATUS:
	case DWELL_EVENT_STATUS:
		return true;
	default:
		return false;
	}
}

static long dwell_ioctl(struct file *file, unsigned int command, unsigned long pointer)
{
	void __user *user = (void __user *)pointer;
	union dwell_argument argument;
	size_t size = _IOC_SIZE(command);
	long result;

	if (command == DWELL_VERSION)
		return dwell_tell_version(user);
	if (!dwell_is_known(command))
		return -ENOTTY;
	if (_IOC_DIR(command) & _IOC_WRITE && copy_from_user(&argument, user, size))
		return -EFAULT;
	dwell_lock();
	result = dwell_do(command, &argument);
	dwell_unlock();
	if (!result && _IOC_DIR(command) & _IOC_READ && copy_to_user(user, &argument, size))
		return -EFAULT;
	return result;
}

static const struct file_operations dwell_operations = {
	.owner = THIS_MODULE,
	.open = dwell_open,
	.release = dwell_release,
	.read = dwell_read,
	.poll = dwell_poll,
	.unlocked_ioctl = dwell_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

static struct miscdevice dwell_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = DWELL_DEVICE_NAME,
	.fops = &dwell_operations,
	.mode = 0666,
};

/**
 * dwell_chardev_init() - makes /dev/dwell
 *
 * Return: 0, or an error number.
 */
int dwell_chardev_init(void)
{
	return misc_register(&dwell_device);
}

/**
 * dwell_chardev_exit() - removes it; nobody has it open, since an open file holds the module
 */
void dwell_chardev_exit(void)
{
	misc_deregister(&dwell_device);
}
