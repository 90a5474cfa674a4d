/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/guest/rdma_check_options.h"
#include "tests/guest/rdma_conn.h"
#include "tests/guest/rdma_message.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct check_options check_options = {
	.port = 18700, .qps = 1, .rate = 500, .slots = SLOTS_MAX, .status_us = 100000};

static void set_dirty(struct check_options *o, char *text)
{
	char *comma = strchr(text, ',');

	if (comma)
		*comma++ = '\0';
	o->dirty_mib = option_number(text, 1, 65536, 'D');
	o->dirty_rate = comma ? option_number(comma, 0, 100000, 'D') : 0;
}

static void set_pkeys(struct check_options *o, char *text)
{
	char *left, *word = strtok_r(text, ",", &left);

	for (unsigned i = 0; i < PKEYS_MAX; i++) {
		o->pkeys[i] = word ? (int)strtol(word, NULL, 16) : i ? o->pkeys[i - 1] : 0;
		word = word ? strtok_r(NULL, ",", &left) : NULL;
	}
	if (word)
		die("-P: at most %d P_Keys", PKEYS_MAX);
}

/* Takes the options that say what the traffic is. false: none of them. */
static bool set_traffic(struct check_options *o, int c)
{
	switch (c) {
	case 'r':
		o->rate = option_number(optarg, 1, 1000000, 'r');
		return true;
	case 'm':
		message_rules.max_bytes = option_number(optarg, 256, 4 << 20, 'm') & ~7u;
		return true;
	case 'l':
		message_rules.log_sizes = true;
		return true;
	case 's':
		message_rules.seed = option_number(optarg, 0, UINT32_MAX, 's');
		return true;
	case 'w':
		o->slots = option_number(optarg, 4, SLOTS_MAX, 'w');
		return true;
	case 'u':
		o->uc = o->no_reads = true;
		return true;
	case 'x':
		o->extended = true;
		return true;
	case 'e':
		o->events = true;
		return true;
	case 'S':
		o->srq = true;
		return true;
	case 'A':
		o->atomics = true;
		return true;
	case 'N':
		o->no_reads = true;
		return true;
	default:
		return false;
	}
}

static void set_other(struct check_options *o, int c)
{
	switch (c) {
	case 'd':
		o->device = optarg;
		break;
	case 'g':
		o->gid_index = (int)option_number(optarg, 0, 255, 'g');
		break;
	case 'L':
		o->gid_index = CONN_BY_LID;
		break;
	case 'P':
		set_pkeys(o, optarg);
		break;
	case 'p':
		o->port = option_number(optarg, 1, 65535, 'p');
		break;
	case 'q':
		o->qps = option_number(optarg, 1, QPS_MAX, 'q');
		break;
	case 't':
		o->seconds = atof(optarg);
		break;
	case 'T':
		conn_timeout = (uint8_t)option_number(optarg, 1, 31, 'T');
		break;
	case 'V':
		conn_sl = (uint8_t)option_number(optarg, 0, 15, 'V');
		break;
	case 'o':
		o->output = optarg;
		break;
	case 'i':
		o->status_us = 1000ull * option_number(optarg, 1, 60000, 'i');
		break;
	case 'R':
		o->receives = option_number(optarg, 1, SLOTS_MAX, 'R');
		break;
	case 'k':
		o->withhold = option_number(optarg, 0, 100, 'k');
		break;
	case 'n':
		conn_rnr_timer = (uint8_t)option_number(optarg, 0, 31, 'n');
		break;
	case 'z':
		o->stall = optarg;
		break;
	case 'D':
		set_dirty(o, optarg);
		break;
	default:
		die("usage: see rdma_check_options.h");
	}
}

void check_options_parse(int argc, char **argv)
{
	struct check_options *o = &check_options;
	int c;

	while ((c = getopt(argc, argv, "d:g:LP:p:q:t:T:V:o:i:r:m:ls:w:uxeSANR:k:n:z:D:")) != -1)
		if (!set_traffic(o, c))
			set_other(o, c);
	o->host = argv[optind];
	if (o->slots & (o->slots - 1))
		die("-w %u: a power of 2 is needed", o->slots);
	if (o->uc && o->atomics)
		die("-A needs RC: it does not go with -u");
	if (!o->receives || o->receives > o->slots)
		o->receives = o->slots;
}
