// SPDX-License-Identifier: GPL-2.0
/* The same under another name. */
#include "dwell_spin.c"
