// SPDX-License-Identifier: GPL-2.0
/* The code of dwell_spin.c under another module name. */
#include "dwell_spin.c"
