/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Options that the commands of ibvmig-vswitch share, and the fabric that they name. */
#ifndef IBVMIG_VSWITCH_CMD_CMD_H
#define IBVMIG_VSWITCH_CMD_CMD_H

#include "common/command.h"
#include "vswitch/model/fabric.h"
#include "vswitch/routing/engine.h"

#include <stdio.h>

#define CMD_MOVES_MAX 64

struct cmd {
	const char *topology, *lfts, *net; /* files, or a fabric to generate */
	const char *routing;               /* NULL: the default for the net */
	const char *vm[CMD_MOVES_MAX], *to[CMD_MOVES_MAX];
	unsigned vms, tos;
	const char *busy;
	bool fewest, waves, copy, deps, smps, no_vswitches;
	unsigned long top, pairs, drained, seed, step;
	double smp_us, direct_us;   /* below 0: not said */
	struct fabric_error *error; /* borrowed */
};

/* Commands. The context of l is the struct cmd. 0, or -errno with the error filled. */
int cmd_gen(const struct command_line *l);
int cmd_check(const struct command_line *l);
int cmd_plan(const struct command_line *l);
int cmd_cost(const struct command_line *l);
int cmd_lids(const struct command_line *l);

/* The fabric of --net, or of --topology and --lfts; freed by the caller with fabric_clear(). */
int cmd_fabric(const struct cmd *c, struct fabric *ret_fabric, struct fabric_error *e);
/* A net by its text, routed. */
int cmd_generate(const char *net, const char *routing, struct fabric *ret_fabric,
		 struct fabric_error *e);
/* A CA port by LID, GUID or name: its number. */
int cmd_find_end(const struct fabric *f, const char *text, uint32_t *ret_end,
		 struct fabric_error *e);

#endif
