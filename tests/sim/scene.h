/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Runs scenes on simulated hosts (world.h): the world is built of globals, so each has a process.
 */
#ifndef IBVMIG_TESTS_FAKE_SIM_SCENE_H
#define IBVMIG_TESTS_FAKE_SIM_SCENE_H

#include <stdbool.h>
#include <stddef.h>

struct sim_scene {
	const char *name;
	/* dir: an empty folder for its world. false: sim_wrong or sim_broken says what is wrong. */
	bool (*play)(const void *arg, const char *dir);
	const void *arg;
};

/* As a TAP program with these scenes, or those that argv[1] names; its exit status. */
int sim_scenes(const struct sim_scene *scenes, size_t count, int argc, char **argv);

#endif
