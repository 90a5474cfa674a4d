/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The plugin around the part that a test has: no OpenSM sweeps, and nobody else holds a lock. A
 * program includes this once. */
#ifndef IBVMIG_TESTS_UNIT_SM_HELPER_PLAYED_PLUGIN_H
#define IBVMIG_TESTS_UNIT_SM_HELPER_PLAYED_PLUGIN_H

#include <stdarg.h>
#include <stdio.h>

#include "sm-helper/plugin/main.h"

int plugin_gate_enter(struct plugin *p, uint64_t deadline_us)
{
	(void)p;
	(void)deadline_us;
	return 0;
}

void plugin_gate_leave(struct plugin *p)
{
	(void)p;
}

void lock_time_begin(struct plugin *p, struct lock_time *t)
{
	(void)p;
	(void)t;
}

void lock_time_end(struct plugin *p, struct lock_time *t)
{
	(void)p;
	(void)t;
}

void plugin_changed(struct plugin *p)
{
	(void)p;
}

void plugin_want_sweep(struct plugin *p)
{
	p->sweep_asked = true;
}

int plugin_refuse_state(struct plugin *p, struct sm_reply_head *h)
{
	(void)p;
	(void)h;
	return 0;
}

int plugin_refuse(struct sm_reply_head *h, int rc, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(h->reason, sizeof h->reason, fmt, ap);
	va_end(ap);
	return rc;
}

#endif
