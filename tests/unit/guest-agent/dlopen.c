/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A program that is not linked with libibverbs loads it by dlopen() and looks verbs up by version,
 * as NCCL does. The program gets the shim's verbs, and the real ones where the shim has none of its
 * own. */
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <string.h>

#include "tests/fake/verbs/agent.h"
#include "tests/fake/verbs/rig.h"

static unsigned n, failed;

static void result(bool ok, const char *what)
{
	failed += !ok;
	printf("%s %u - %s\n", ok ? "ok" : "not ok", ++n, what);
}

static bool is_in(const void *symbol, const char *library)
{
	Dl_info at;

	return symbol && dladdr(symbol, &at) && strstr(at.dli_fname, library);
}

static void versions(void *lib)
{
	static const struct {
		const char *name, *version, *library;
	} verbs[] = {
		{"ibv_open_device", "IBVERBS_1.1", "libibvmig.so"},
		{"ibv_create_qp", "IBVERBS_1.1", "libibvmig.so"},
		{"ibv_reg_mr", "IBVERBS_1.1", "libibvmig.so"},
		{"ibv_reg_mr_iova2", "IBVERBS_1.8", "libibvmig.so"},
		{"ibv_create_comp_channel", "IBVERBS_1.0", "libibvmig.so"},
		{"ibv_get_device_list", "IBVERBS_1.1", "libibvmig.so"},
		{"ibv_free_device_list", "IBVERBS_1.1", "libibverbs.so"},
	};
	bool all = true;

	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
		if (is_in(dlvsym(lib, verbs[i].name, verbs[i].version), verbs[i].library) &&
		    is_in(dlsym(lib, verbs[i].name), verbs[i].library))
			continue;
		printf("# %s@%s is not in %s\n", verbs[i].name, verbs[i].version, verbs[i].library);
		all = false;
	}
	result(all, "by version and without, verbs are the shim's where it has them");
	result(!dlvsym(lib, "ibv_open_device", "IBVERBS_9.9"),
	       "a version that is not there is not there");
}

static void opens(void *lib)
{
	struct ibv_device **(*get_list)(int *);
	void (*free_list)(struct ibv_device **);
	struct ibv_context *(*open_device)(struct ibv_device *);
	int (*close_device)(struct ibv_context *);
	struct ibv_device **list;
	struct ibv_context *c = NULL;
	void *f[] = {dlvsym(lib, "ibv_get_device_list", "IBVERBS_1.1"),
		     dlvsym(lib, "ibv_open_device", "IBVERBS_1.1"),
		     dlvsym(lib, "ibv_close_device", "IBVERBS_1.1"),
		     dlvsym(lib, "ibv_free_device_list", "IBVERBS_1.1")};

	memcpy(&get_list, &f[0], sizeof(f[0]));
	memcpy(&open_device, &f[1], sizeof(f[1]));
	memcpy(&close_device, &f[2], sizeof(f[2]));
	memcpy(&free_list, &f[3], sizeof(f[3]));
	list = f[0] ? get_list(NULL) : NULL;
	if (list && list[0] && f[1])
		c = open_device(list[0]);
	result(c && is_in((void *)c->ops.poll_cq, "libibvmig.so"), "and what is opened is covered");
	result(c && !close_device(c), "and closed");
	if (list && f[3])
		free_list(list);
}

int main(int argc, char **argv)
{
	void *lib, *other;

	(void)argc;
	if (rig_exec(argv, true) || fake_agent_start()) {
		printf("not ok 1 - the rig starts\n1..1\n");
		return 1;
	}
	result(!dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD), "libibverbs is not loaded");
	lib = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
	result(lib != NULL, "dlopen() loads it");
	if (lib) {
		versions(lib);
		opens(lib);
		result(!dlclose(lib), "it can be closed");
	}
	other = dlopen("libm.so.6", RTLD_NOW);
	result(is_in(other ? dlsym(other, "cos") : NULL, "libm"),
	       "other libraries are what they are");
	result(dlopen(NULL, RTLD_NOW) != NULL, "and so is the program itself");
	printf("1..%u\n", n);
	return failed ? 1 : 0;
}
