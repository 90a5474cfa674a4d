/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Which strategy a migration takes, and why not a better one, on simulated hosts
 * (tests/fake/sim.h); afterwards the world must be right (tests/fake/sim_right.h). */
#include "tests/fake/sim_right.h"
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "daemon/migrate.h"

#include <ftw.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define IPOIB "IPoIB (on mlx5_0)"

static const struct scene {
	const char *name;
	struct sim_mover mover;
	const char *chosen; /* NULL: it is refused */
	const char *word;   /* of the refusal, or of why not the one before chosen; or NULL */
	bool left_before;   /* the VF, before QEMU began */
} scenes[] = {
	{"auto, nothing special", {.strategy = "auto"}, "late", "cannot migrate its state", false},
	{"late", {.strategy = "late"}, "late", NULL, false},
	{"early", {.strategy = "early"}, "early", NULL, true},
	{"auto, a kernel user", {.strategy = "auto", .kernel_user = IPOIB}, "early", IPOIB, true},
	{"late, a kernel user", {.strategy = "late", .kernel_user = IPOIB}, NULL, IPOIB, false},
	{"auto, post-copy", {.strategy = "auto", .post_copy = true}, "early", "post-copy", false},
	{"late, post-copy", {.strategy = "late", .post_copy = true}, NULL, "post-copy", false},
	{"early, post-copy", {.strategy = "early", .post_copy = true}, "early", NULL, true},
	{"native, of a VF that cannot",
	 {.strategy = "native"},
	 NULL,
	 "cannot migrate its state",
	 false},
	{"auto, of a VF that can",
	 {.strategy = "auto", .migrates_state = true},
	 "native",
	 NULL,
	 false},
	{"native", {.strategy = "native", .migrates_state = true}, "native", NULL, false},
	{"native, a kernel user",
	 {.strategy = "native", .migrates_state = true, .kernel_user = IPOIB},
	 "native",
	 NULL,
	 false},
	{"late, of a VF that can",
	 {.strategy = "late", .migrates_state = true},
	 "late",
	 NULL,
	 false},
	{"auto, native and post-copy",
	 {.strategy = "auto", .migrates_state = true, .post_copy = true},
	 NULL,
	 "post-copy",
	 false},
	{"cold", {.strategy = "cold"}, NULL, "shut the VM down", false},
};

static bool left_early;

static void watch(void)
{
	struct sim_qemu *q = &sim_hosts[HOST_A].qemus[0];

	sim_never();
	left_early |= sim_migration.under_way && q->exists && q->job == QJOB_NONE && !q->has_device;
}

static struct json_object *record(void)
{
	struct migration *m = sim_hosts[HOST_A].d.migrations;

	return m ? migrate_record(m) : NULL;
}

/* Of the chosen one's better neighbour. */
static const char *why_not(struct json_object *choice, const char *chosen)
{
	enum domain_strategy s = STRATEGY_AUTO;

	strategy_parse(chosen, &s);
	return json_opt_str(json_opt(choice, "why_not"),
			    strategy_name((enum domain_strategy)(s - 1)), "");
}

static bool chosen_right(const struct scene *s)
{
	struct json_object *r AUTO_JSON = record(),
			      *choice = json_opt(json_opt(r, "data"), "choice");

	/* virsh shows the hook's refusal; of a job that is cancelled later, the record has it. */
	if (!s->chosen)
		return !sim_migration.ok && (strstr(sim_migration.error, s->word) ||
					     strstr(json_opt_str(r, "reason", ""), s->word))
			       ? true
			       : sim_is_wrong("it is not refused with \"%s\": %.200s", s->word,
					      sim_migration.error);
	if (!sim_migration.ok)
		return sim_is_wrong("it fails: %.300s", sim_migration.error);
	if (!str_eq(json_opt_str(r, "strategy", ""), s->chosen) ||
	    !str_eq(json_opt_str(r, "asked", ""), s->mover.strategy))
		return sim_is_wrong("the record says %s, of %s", json_opt_str(r, "strategy", "-"),
				    json_opt_str(r, "asked", "-"));
	if (s->word && !strstr(why_not(choice, s->chosen), s->word))
		return sim_is_wrong("it does not say why not better: %.300s", json_text(choice));
	return left_early == s->left_before ? true
					    : sim_is_wrong("the VF has%s left before QEMU began",
							   left_early ? "" : " not");
}

static bool play(const struct scene *s, const char *dir)
{
	sim_mover = s->mover;
	mkdir(dir, 0700);
	if (!sim_world_start(dir) || !sim_all_right(NULL))
		return false;
	sim_migrate(HOST_A, HOST_B);
	if (!sim_run(sim_quiet, NULL, sim_us() + SIM_QUIET_S * SIM_S, watch) ||
	    !sim_run(sim_all_right, NULL, sim_us() + SIM_QUIET_S * SIM_S, watch))
		return false;
	if (sim_home(&sim_guests[0]) != (s->chosen ? HOST_B : HOST_A))
		return sim_is_wrong("the VM is on the wrong host");
	return chosen_right(s) && !*sim_broken;
}

static int unlink_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

/* The world is built of globals: a process for each scene. */
static bool run(const struct scene *s, const char *dir)
{
	int status = 1;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (!pid) {
		bool ok = play(s, dir);

		if (!ok)
			printf("# %s: %s%s\n", s->name, sim_wrong, sim_broken);
		fflush(NULL);
		nftw(dir, unlink_one, 16, FTW_DEPTH | FTW_PHYS);
		_exit(!ok);
	}
	waitpid(pid, &status, 0);
	return !status;
}

int main(int argc, char **argv)
{
	char dir[] = "/tmp/ibvmig-strategies-XXXXXX";
	unsigned bad = 0, n = 0;

	if (!mkdtemp(dir)) {
		perror("mkdtemp");
		return 1;
	}
	log_init("strategies");
	log_set_level(argc > 1 ? LOG_DEBUG : (enum log_level)0);
	for (size_t i = 0; i < ARRAY_SIZE(scenes); i++) {
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
