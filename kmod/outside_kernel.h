/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Replaces what sample_table.h uses of the kernel's headers, for BPF programs and user space.
 */
#ifndef DWELL_OUTSIDE_KERNEL_H
#define DWELL_OUTSIDE_KERNEL_H

/* A BPF program that uses the kernel's own types has these already. */
#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

#undef __always_inline
#define __always_inline inline __attribute__((always_inline))

#ifdef __bpf__
/* BPF offers no weaker atomics than these full barriers. They run once for each full buffer. */
#define dwell_load_acquire(pointer) __sync_fetch_and_add(pointer, 0)
#define dwell_store_release(pointer, value) ((void)__sync_lock_test_and_set(pointer, value))
#else
#define dwell_load_acquire(pointer) __atomic_load_n(pointer, __ATOMIC_ACQUIRE)
#define dwell_store_release(pointer, value) __atomic_store_n(pointer, value, __ATOMIC_RELEASE)
#endif

#endif
