/* SPDX-License-Identifier: GPL-2.0-or-later */
/* ibvmig-vswitch: the vSwitch method on a fabric in files or generated. It touches no network. */
#include "vswitch/cmd/cmd.h"
#include "common/util.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>

#define US_MAX 1e9

enum {
	OPT_TOPOLOGY,
	OPT_LFTS,
	OPT_NO_VSWITCHES,
	OPT_NET,
	OPT_ROUTING,
	OPT_VM,
	OPT_TO,
	OPT_BUSY,
	OPT_FEWEST,
	OPT_WAVES,
	OPT_COPY,
	OPT_DEPS,
	OPT_SMPS,
	OPT_TOP,
	OPT_PAIRS,
	OPT_DRAINED,
	OPT_SEED,
	OPT_STEP,
	OPT_SMP_US,
	OPT_DIRECT_US,
	OPTIONS
};

static const struct command_option options[OPTIONS] = {
	[OPT_TOPOLOGY] = {"--topology", "FILE", "a topology as ibnetdiscover prints it", 0},
	[OPT_LFTS] = {"--lfts", "FILE",
		      "the tables of its switches: dump_lfts.sh, dump_fts or OpenSM's", 0},
	[OPT_NO_VSWITCHES] =
		{"--no-vswitches", NULL,
		 "switches of the files with one uplink are leaves, no HCAs' vSwitches", 0},
	[OPT_NET] = {"--net", "NET", "a generated fabric in place of files", 0},
	[OPT_ROUTING] = {"--routing", "ENGINE", "how NET is routed", 0},
	[OPT_VM] = {"--vm", "VM", "that moves, once for each", 0},
	[OPT_TO] = {"--to", "PLACE", "where that VM goes, once for each", 0},
	[OPT_BUSY] = {"--busy", "LIST",
		      "LIDs of the ports with VMs, as 5,7,20-31 (default: of --vm)", 0},
	[OPT_FEWEST] = {"--fewest", NULL, "entries that lead there in as few hops stay", 0},
	[OPT_WAVES] = {"--waves", NULL, "from the destination outwards", 0},
	[OPT_COPY] = {"--copy", NULL, "the VM takes its LID along (dynamic LIDs)", 0},
	[OPT_DEPS] = {"--deps", NULL, "look for cycles of links", 0},
	[OPT_SMPS] = {"--smps", NULL, "print each SMP", 0},
	[OPT_TOP] = {"--top", "N", "so many hosts (default 20)", 0},
	[OPT_PAIRS] = {"--pairs", "N", "so many moves (default 1000)", 0},
	[OPT_DRAINED] = {"--drained", "N", "so many VMs of a drained host (default 16)", 0},
	[OPT_SEED] = {"--seed", "N", "of what is drawn (default 1)", 0},
	[OPT_STEP] = {"--step", "N", "each Nth LID (default 1)", 0},
	[OPT_SMP_US] = {"--smp-us", "K", "the time of an SMP, for times in place of counts", 0},
	[OPT_DIRECT_US] = {"--direct-us", "R", "the same by directed route, added", 0},
};

#define BIT(o)      COMMAND_BIT(o)
#define NET_BITS    (BIT(OPT_TOPOLOGY) | BIT(OPT_LFTS) | BIT(OPT_NET) | BIT(OPT_ROUTING))
#define FABRIC_BITS (NET_BITS | BIT(OPT_NO_VSWITCHES))

static const struct command commands[] = {
	{"gen", "", NET_BITS, cmd_gen,
	 "writes a generated fabric in the forms of ibnetdiscover (ibsim) and dump_lfts"},
	{"check", "", FABRIC_BITS | BIT(OPT_STEP) | BIT(OPT_DEPS), cmd_check,
	 "walks every LID of a CA port (each Nth) from every switch with CA ports"},
	{"plan", "",
	 FABRIC_BITS | BIT(OPT_VM) | BIT(OPT_TO) | BIT(OPT_BUSY) | BIT(OPT_COPY) | BIT(OPT_FEWEST) |
		 BIT(OPT_WAVES) | BIT(OPT_DEPS) | BIT(OPT_SMPS) | BIT(OPT_TOP),
	 cmd_plan,
	 "without --to: ranks the hosts that VM could go to; with it: the SMPs of the whole batch"},
	{"cost", "[NET...]",
	 BIT(OPT_ROUTING) | BIT(OPT_PAIRS) | BIT(OPT_DRAINED) | BIT(OPT_SEED) | BIT(OPT_SMP_US) |
		 BIT(OPT_DIRECT_US),
	 cmd_cost,
	 "SMPs of a move against a full reconfiguration, on 324, 648, 5832 and 11664 hosts or NET"},
	{"lids", "", BIT(OPT_NET), cmd_lids,
	 "LFT blocks with prepopulated and with dynamic LIDs, and how many VFs fit"},
};

static const char notes[] =
	"\nFABRIC   --topology FILE --lfts FILE (ibnetdiscover, ibdiagnet; dump_lfts.sh, "
	"dump_fts,\n"
	"         opensm-lfts.dump, opensm.fdbs), or --net NET\n"
	"NET      324, 648, 5832, 11664 (hosts, 36-port switches), xgft:18,36/18 (children "
	"per level /\n"
	"         parents per level above the hosts), mesh:3x2, torus:8x8, irregular:30,3,7 "
	"(switches,\n"
	"         links, seed); then ,hosts=N (per switch) ,vfs=N ,parked=N (VFs with a LID) "
	",lmc=N\n"
	"         ,vflmc=N ,vswitch (HCAs as small switches)\n"
	"ENGINE   minhop, updn, dor, ftree; default ftree for trees, dor for meshes, updn "
	"else\n"
	"VM       a LID, port GUID (0x...) or name; PLACE likewise, or the name of a port "
	"without a LID\n"
	"--fewest old entries that lead there in as few hops stay; default: all entries "
	"of the\n"
	"         other LID are taken, as the OpenSM plugin does\n"
	"\nExit status: 0, 1 refused or broken, 2 wrong use. Nothing is sent to any network.\n";

static const struct program program = {
	.name = "ibvmig-vswitch",
	.options = options,
	.option_count = OPTIONS,
	.commands = commands,
	.command_count = ARRAY_SIZE(commands),
	.notes = notes,
};

/* The numbers and their ranges. */
static const struct {
	unsigned option;
	size_t at; /* offset of an unsigned long in struct cmd */
	uint64_t min, max;
} numbers[] = {
	{OPT_TOP, offsetof(struct cmd, top), 0, 100000},
	{OPT_PAIRS, offsetof(struct cmd, pairs), 0, 1000000},
	{OPT_DRAINED, offsetof(struct cmd, drained), 0, CMD_MOVES_MAX},
	{OPT_SEED, offsetof(struct cmd, seed), 0, UINT32_MAX},
	{OPT_STEP, offsetof(struct cmd, step), 1, 49151},
};

/* Options that are kept as they are given; once: the last one counts. */
static const struct {
	unsigned option;
	size_t at; /* offset of a const char * in struct cmd */
} texts[] = {
	{OPT_TOPOLOGY, offsetof(struct cmd, topology)},
	{OPT_LFTS, offsetof(struct cmd, lfts)},
	{OPT_NET, offsetof(struct cmd, net)},
	{OPT_ROUTING, offsetof(struct cmd, routing)},
	{OPT_BUSY, offsetof(struct cmd, busy)},
};

static int read_numbers(const struct command_line *l, struct cmd *c)
{
	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
		const char *text = command_value(l, numbers[i].option);
		uint64_t v;

		if (!text)
			continue;
		if (parse_u64(text, numbers[i].min, numbers[i].max, &v))
			return command_refuse(
				l, "%s %s: must be a number from %" PRIu64 " to %" PRIu64,
				options[numbers[i].option].name, text, numbers[i].min,
				numbers[i].max);
		*(unsigned long *)(void *)((char *)c + numbers[i].at) = (unsigned long)v;
	}
	return 0;
}

static int read_real(const struct command_line *l, unsigned option, double *value)
{
	const char *text = command_value(l, option);
	char *end;

	if (!text)
		return 0;
	*value = strtod(text, &end);
	if (end != text && !*end && *value >= 0 && *value <= US_MAX)
		return 0;
	return command_refuse(l, "%s %s: must be a number from 0 to %.0f", options[option].name,
			      text, US_MAX);
}

/* Reads the values of an option that may stand several times. */
static int read_list(const struct command_line *l, unsigned option, const char **list,
		     unsigned *count)
{
	for (size_t i = 0; i < l->given_count; i++) {
		if (l->given[i].option != option)
			continue;
		if (*count == CMD_MOVES_MAX)
			return command_refuse(l, "%s %s: at most %d of them", options[option].name,
					      l->given[i].value, CMD_MOVES_MAX);
		list[(*count)++] = l->given[i].value;
	}
	return 0;
}

static int read_options(const struct command_line *l, struct cmd *c)
{
	int rc;

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		*(const char **)(void *)((char *)c + texts[i].at) = command_value(l,
										  texts[i].option);
	c->fewest = command_has(l, OPT_FEWEST);
	c->waves = command_has(l, OPT_WAVES);
	c->copy = command_has(l, OPT_COPY);
	c->deps = command_has(l, OPT_DEPS);
	c->smps = command_has(l, OPT_SMPS);
	c->no_vswitches = command_has(l, OPT_NO_VSWITCHES);
	if ((rc = read_list(l, OPT_VM, c->vm, &c->vms)) ||
	    (rc = read_list(l, OPT_TO, c->to, &c->tos)) ||
	    (rc = read_real(l, OPT_SMP_US, &c->smp_us)) ||
	    (rc = read_real(l, OPT_DIRECT_US, &c->direct_us)))
		return rc;
	return read_numbers(l, c);
}

int main(int argc, char **argv)
{
	struct fabric_error e = {""};
	struct cmd c = {.top = 20,
			.pairs = 1000,
			.drained = 16,
			.seed = 1,
			.step = 1,
			.smp_us = -1,
			.direct_us = -1,
			.error = &e};
	struct command_line l;
	int rc = command_parse(&program, argc, argv, &l);

	if (rc != COMMAND_RUN || (rc = read_options(&l, &c)))
		return rc;
	l.context = &c;
	if (l.command->run(&l)) {
		fprintf(stderr, "ibvmig-vswitch: %s\n", e.text);
		return 1;
	}
	return ferror(stdout) || fflush(stdout) ? 1 : 0;
}
