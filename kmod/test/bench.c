// SPDX-License-Identifier: GPL-2.0
/* Written next. */
#include "guest.h"
void bench_run(void);
void bench_run(void)
{
}
