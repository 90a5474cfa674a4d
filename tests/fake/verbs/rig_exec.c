/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Apart from rig.c for programs that are not linked with libibverbs. */
#include "tests/fake/verbs/rig.h"

#include <errno.h>
#include <limits.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DONE_ENV "IBVMIG_RIG" /* 0: without the shim, 1: with it */

/* Without the played libibverbs. */
static bool real_verbs;

/* build/tests/PROGRAM: the libraries are build/tests/fake/ and build/lib/. */
int rig_exec(char **argv, bool shim)
{
	char self[PATH_MAX] = "", dir[PATH_MAX], fake[PATH_MAX + 64], lib[PATH_MAX + 64];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (getenv(DONE_ENV))
		return 0;
	if (n < 0)
		return -errno;
	strcpy(dir, self);
	dirname(dir);
	snprintf(fake, sizeof(fake), "%s/fake", dir);
	snprintf(lib, sizeof(lib), "%s/../lib/libibvmig.so", dir);
	if (!real_verbs)
		setenv("LD_LIBRARY_PATH", fake, 1);
	setenv("LD_BIND_NOW", "1", 1); /* no look-up of a symbol while something is counted */
	setenv(DONE_ENV, shim ? "1" : "0", 1);
	if (shim)
		setenv("LD_PRELOAD", lib, 1);
	execv(self, argv);
	return -errno;
}

int rig_exec_real(char **argv)
{
	real_verbs = true;
	return rig_exec(argv, true);
}
