/* SPDX-License-Identifier: GPL-2.0-or-later */
/* ibvmig-vswitch: the vSwitch method on a fabric in files or generated. It touches no network. */
#include "vswitch/cmd/cmd.h"
#include "common/util.h"

#include <errno.h>
#include <getopt.h>
#include <string.h>

static const struct command {
	const char *name;
	int (*run)(const struct cmd *c, struct fabric_error *e);
	const char *usage, *help;
} commands[] = {
	{"gen", cmd_gen, "--net NET [--routing ENGINE] [--topology FILE] [--lfts FILE]",
	 "writes a generated fabric in the forms of ibnetdiscover (ibsim) and dump_lfts"},
	{"check", cmd_check, "FABRIC [--step N] [--deps]",
	 "walks every LID of a CA port (each Nth) from every switch with CA ports"},
	{"plan", cmd_plan,
	 "FABRIC --vm VM... [--to PLACE...] [--busy LIST] [--copy] [--fewest] [--waves] [--deps] "
	 "[--smps] [--top N]",
	 "without --to: ranks the hosts that VM could go to; with it: the SMPs of the whole batch"},
	{"cost", cmd_cost,
	 "[--pairs N] [--drained N] [--seed N] [--smp-us K] [--direct-us R] [NET...]",
	 "SMPs of a move against a full reconfiguration, on 324, 648, 5832 and 11664 hosts or NET"},
	{"lids", cmd_lids, "--net NET",
	 "LFT blocks with prepopulated and with dynamic LIDs, and how many VFs fit"},
};

enum {
	OPT_TOPOLOGY = 256,
	OPT_LFTS,
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
	OPT_HELP,
	OPT_VERSION
};

static const struct option options[] = {
	{"topology", required_argument, NULL, OPT_TOPOLOGY},
	{"lfts", required_argument, NULL, OPT_LFTS},
	{"net", required_argument, NULL, OPT_NET},
	{"routing", required_argument, NULL, OPT_ROUTING},
	{"vm", required_argument, NULL, OPT_VM},
	{"to", required_argument, NULL, OPT_TO},
	{"busy", required_argument, NULL, OPT_BUSY},
	{"fewest", no_argument, NULL, OPT_FEWEST},
	{"waves", no_argument, NULL, OPT_WAVES},
	{"copy", no_argument, NULL, OPT_COPY},
	{"deps", no_argument, NULL, OPT_DEPS},
	{"smps", no_argument, NULL, OPT_SMPS},
	{"top", required_argument, NULL, OPT_TOP},
	{"pairs", required_argument, NULL, OPT_PAIRS},
	{"drained", required_argument, NULL, OPT_DRAINED},
	{"seed", required_argument, NULL, OPT_SEED},
	{"step", required_argument, NULL, OPT_STEP},
	{"smp-us", required_argument, NULL, OPT_SMP_US},
	{"direct-us", required_argument, NULL, OPT_DIRECT_US},
	{"help", no_argument, NULL, OPT_HELP},
	{"version", no_argument, NULL, OPT_VERSION},
	{NULL, 0, NULL, 0},
};

static void usage(FILE *out)
{
	fputs("Usage: ibvmig-vswitch COMMAND OPTIONS\n\n", out);
	for (unsigned i = 0; i < ARRAY_SIZE(commands); i++)
		fprintf(out, "  %s %s\n      %s\n", commands[i].name, commands[i].usage,
			commands[i].help);
	fputs("\nFABRIC   --topology FILE --lfts FILE (ibnetdiscover; dump_lfts.sh or dump_fts), "
	      "or "
	      "--net NET\n"
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
	      "--busy   LIDs of the ports with VMs, as 5,7,20-31; default: those of --vm\n"
	      "--copy   the VM takes its LID along (dynamic LIDs); default: LIDs are exchanged\n"
	      "--fewest old entries that lead there in as few hops stay; default: all entries "
	      "of the\n"
	      "         other LID are taken, as the OpenSM plugin does\n"
	      "--waves  from the destination outwards; --smps prints each SMP; --deps looks for "
	      "cycles of links\n\n"
	      "Exit status: 0, 1 refused or broken, 2 wrong use. Nothing is sent to any network.\n",
	      out);
}

static bool number(const char *text, uint64_t max, unsigned long *ret_value)
{
	uint64_t v;

	if (parse_u64(text, 0, max, &v))
		return false;
	*ret_value = v;
	return true;
}

static bool real(const char *text, double *ret_value)
{
	char *end;

	*ret_value = strtod(text, &end);
	return end != text && !*end && *ret_value >= 0 && *ret_value <= 1e9;
}

static bool append(const char **list, unsigned *count, const char *text)
{
	if (*count == CMD_MOVES_MAX)
		return false;
	list[(*count)++] = text;
	return true;
}

static bool set_value(struct cmd *c, int option, const char *value)
{
	switch (option) {
	case OPT_VM:
		return append(c->vm, &c->vms, value);
	case OPT_TO:
		return append(c->to, &c->tos, value);
	case OPT_TOP:
		return number(value, 100000, &c->top);
	case OPT_PAIRS:
		return number(value, 1000000, &c->pairs);
	case OPT_DRAINED:
		return number(value, CMD_MOVES_MAX, &c->drained);
	case OPT_SEED:
		return number(value, UINT32_MAX, &c->seed);
	case OPT_STEP:
		return number(value, 49151, &c->step) && c->step;
	case OPT_SMP_US:
		return real(value, &c->smp_us);
	case OPT_DIRECT_US:
		return real(value, &c->direct_us);
	default:
		return false;
	}
}

static bool set_option(struct cmd *c, int option, const char *value)
{
	const struct {
		int option;
		const char **text;
		bool *flag;
	} plain[] = {
		{OPT_TOPOLOGY, &c->topology, NULL}, {OPT_LFTS, &c->lfts, NULL},
		{OPT_NET, &c->net, NULL},           {OPT_ROUTING, &c->routing, NULL},
		{OPT_BUSY, &c->busy, NULL},         {OPT_FEWEST, NULL, &c->fewest},
		{OPT_WAVES, NULL, &c->waves},       {OPT_COPY, NULL, &c->copy},
		{OPT_DEPS, NULL, &c->deps},         {OPT_SMPS, NULL, &c->smps},
	};

	for (unsigned i = 0; i < ARRAY_SIZE(plain); i++)
		if (plain[i].option == option) {
			if (plain[i].text)
				*plain[i].text = value;
			else
				*plain[i].flag = true;
			return true;
		}
	return set_value(c, option, value);
}

/* 0: run the command; else the exit status plus one. */
static int parse(struct cmd *c, int argc, char **argv)
{
	int o, at = 0;

	while ((o = getopt_long(argc, argv, "", options, &at)) != -1) {
		if (o == OPT_HELP) {
			usage(stdout);
			return 1;
		}
		if (o == OPT_VERSION) {
			puts("ibvmig-vswitch " IBVMIG_VERSION);
			return 1;
		}
		if (o == '?')
			return 3;
		if (!set_option(c, o, optarg)) {
			fprintf(stderr, "ibvmig-vswitch: --%s %s: out of range\n", options[at].name,
				optarg);
			return 3;
		}
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct cmd c = {.top = 20,
			.pairs = 1000,
			.drained = 16,
			.seed = 1,
			.step = 1,
			.smp_us = -1,
			.direct_us = -1};
	struct fabric_error e = {""};
	int stop = parse(&c, argc, argv);

	if (stop)
		return stop - 1;
	for (unsigned i = 0; optind < argc && i < ARRAY_SIZE(commands); i++) {
		if (strcmp(argv[optind], commands[i].name) != 0)
			continue;
		c.args = argc - optind - 1;
		c.arg = argv + optind + 1;
		if (commands[i].run(&c, &e)) {
			fprintf(stderr, "ibvmig-vswitch: %s\n", e.text);
			return 1;
		}
		return ferror(stdout) || fflush(stdout) ? 1 : 0;
	}
	usage(stderr);
	return 2;
}
