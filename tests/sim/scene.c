/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/sim/scene.h"
#include "common/log.h"
#include "common/util.h"
#include "tests/sim/right.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int unlink_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static bool run(const struct sim_scene *s, const char *dir)
{
	int status = 1;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (!pid) {
		bool ok;

		mkdir(dir, 0700);
		ok = s->play(s->arg, dir);
		if (!ok)
			printf("# %s: %s%s\n", s->name, sim_wrong, sim_broken);
		fflush(NULL);
		nftw(dir, unlink_one, 16, FTW_DEPTH | FTW_PHYS);
		_exit(!ok);
	}
	waitpid(pid, &status, 0);
	return !status;
}

int sim_scenes(const struct sim_scene *scenes, size_t count, int argc, char **argv)
{
	char dir[] = "/tmp/ibvmig-scenes-XXXXXX";
	unsigned bad = 0, n = 0;

	if (!mkdtemp(dir)) {
		perror("mkdtemp");
		return 1;
	}
	log_init("scenes");
	log_set_level(argc > 1 ? LOG_DEBUG : (enum log_level)0);
	for (size_t i = 0; i < count; i++) {
		char *own AUTO_FREE = strf("%s/%zu", dir, i);
		bool ok;

		if (argc > 1 && strcmp(argv[1], scenes[i].name))
			continue;
		ok = run(&scenes[i], own);
		printf("%s %u - %s\n", ok ? "ok" : "not ok", ++n, scenes[i].name);
		bad += !ok;
	}
	printf("1..%u\n", n);
	rmdir(dir);
	return bad != 0;
}
