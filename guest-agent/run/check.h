/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The check whether the verbs shim can be put into a program, from the program's file alone. */
#ifndef IBVMIG_GUEST_AGENT_RUN_CHECK_H
#define IBVMIG_GUEST_AGENT_RUN_CHECK_H

#include <stdbool.h>
#include <sys/types.h>

#define RUN_TEXT_MAX  640
#define RUN_NOTES_MAX 4

/* The user and the environment that start the program. All borrowed. */
struct run_caller {
	uid_t uid; /* real and effective */
	gid_t gid;
	const char *library;     /* path of the shim */
	const char *path;        /* $PATH, NULL: none */
	const char *preload;     /* $LD_PRELOAD, NULL: none */
	const char *etc_preload; /* path of the file that preloads for all: RUN_ETC_PRELOAD */
};

#define RUN_ETC_PRELOAD "/etc/ld.so.preload"

struct run_verdict {
	bool covered;
	char why[RUN_TEXT_MAX]; /* if not covered: the rest of a sentence, "cannot be covered: ..."
				 */
	bool preloaded;         /* the shim is in front of it already: nothing to set */
	bool for_all;           /* by etc_preload, which the loader heeds for every program */
	/* Notes for the user; each is a whole line. */
	char note[RUN_NOTES_MAX][RUN_TEXT_MAX];
	unsigned notes;
};

/* program: path of an executable file. */
void run_check(const struct run_caller *c, const char *program, struct run_verdict *ret_verdict);

/* As execvp() looks for it along path. Owned by the caller; NULL: nowhere. */
char *run_find(const char *name, const char *path);

#endif
