/* SPDX-License-Identifier: GPL-2.0-or-later */
/* How the VF of a VM leaves with it, and which way is possible. Pure: facts in, choice out. */
#ifndef IBVMIG_DAEMON_BASE_STRATEGY_H
#define IBVMIG_DAEMON_BASE_STRATEGY_H

#include <stdbool.h>

struct json_object;

/* Best first, after AUTO; docs/migration.md, "Strategies". */
enum domain_strategy {
	STRATEGY_AUTO,
	STRATEGY_NATIVE, /* the device's own state moves in QEMU's stream; only addresses are ours
			  */
	STRATEGY_LATE,   /* the VF leaves when little memory is left to copy */
	STRATEGY_EARLY,  /* the VF leaves before QEMU copies anything */
	STRATEGY_COLD,   /* saved to a file and restored: not by a live migration */
};
#define STRATEGIES         4 /* without AUTO */
#define STRATEGY_WHY_MAX   400
#define STRATEGY_USERS_MAX 250

enum copy_kind {
	COPY_LIVE, /* pre-copy, which can be held */
	COPY_POST, /* QEMU may switch to post-copy: memory is pulled, not held */
	COPY_SAVE, /* to a file: no live migration */
};

/* Facts about the two hosts, QEMU and the guest. */
struct strategy_facts {
	bool state_here, state_there; /* the VF's driver there gives the device's state to QEMU */
	bool passed;                  /* as a descriptor, which no QEMU can start with */
	bool fixed;                   /* QEMU does not unplug the VF while it migrates */
	bool blocked;                 /* QEMU does not migrate with it either: virsh cannot begin */
	bool agent;                   /* the guest's agent answers */
	const char *paused;           /* the VM's name, if it is paused; NULL: it runs. Borrowed */
	bool agent_needed; /* also to go early: without one, QPs are lost (require-agent) */
	enum copy_kind copy;
	unsigned kernel_users; /* drivers of the guest's kernel that use the VF */
	char kernel_user_names[STRATEGY_USERS_MAX]; /* the names of these, in words */
};

struct strategy_choice {
	enum domain_strategy chosen;
	/* Why not, by strategy, for those better than the chosen one; "" for the rest. When nothing
	 * is possible, for all that were tried. */
	char why_not[STRATEGIES + 1][STRATEGY_WHY_MAX];
};

/* "auto" to "cold", by strategy. */
extern const char *const strategy_names[STRATEGIES + 1];
static inline const char *strategy_name(enum domain_strategy s)
{
	return strategy_names[s];
}

/* 0, or -EINVAL for a text that is none of the names. */
int strategy_parse(const char *text, enum domain_strategy *ret_strategy);

/* Chooses for a live migration: the best that is possible, or asked itself (not AUTO) if that is.
 * -ENOTSUP: not possible; why_not says why. */
int strategy_choose(enum domain_strategy asked, const struct strategy_facts *f,
		    struct strategy_choice *ret_choice);
/* {"asked","chosen","why_not":{NAME:TEXT,…}}; owned by the caller. */
struct json_object *strategy_json(enum domain_strategy asked, const struct strategy_choice *c);
/* The refusal as one line, for why nothing was chosen. */
void strategy_refusal(enum domain_strategy asked, const struct strategy_choice *c, char *text,
		      unsigned bytes);

#endif
