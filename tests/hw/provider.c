/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The provider mlx5 on this machine's own ConnectX cards: `make check-hw`, as root. Exit status 77
 * where there is none that is ready. What it changes it changes back, on one VF that no VM may
 * have:
 *
 *   $IBVMIG_HW_VF  its name, as "mlx5_0vf3"; without it only what changes nothing is checked
 *   $IBVMIG_HW_CONF  a configuration of ibvmigd, for its "pf" lines and what else the provider
 * reads
 */
#include "common/conf.h"
#include "common/ib.h"
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "daemon/provider_mlx5.h"
#include "daemon/vf_guid.h"

#include <string.h>

#define SKIP 77

static const char *const keys[] = {
	"provider", "pf", "vf-policy", "vfio-driver", "vfio-backend", "device-property", NULL};
static unsigned count, failed;

static void result(bool ok, const char *what, const char *error)
{
	printf("%sok %u - %s\n", ok ? "" : "not ", ++count, what);
	failed += !ok;
	if (!ok)
		printf("# %s\n", error);
}

static int skip(const char *why)
{
	printf("1..0 # skip %s\n", why);
	return SKIP;
}

/* Read-only: without this the inventory would give GUIDs to VFs. */
static bool a_pf_is_ready(const struct hca_host *h, char *error)
{
	struct sysfs_list l AUTO_LIST = hca_pfs(h);
	bool ready = false;

	snprintf(error, HTTP_ERROR_MAX, "no ConnectX card in this machine");
	for (size_t i = 0; i < l.count; i++) {
		struct hca_pf pf;
		int rc = hca_pf_load(h, l.names[i], NULL, 0, &pf, error);

		printf("# PF %s: %s\n", l.names[i], rc ? error : "ready");
		ready = ready || !rc;
		for (size_t k = 0; !rc && k < pf.vf_count; k++) {
			char driver[SYSFS_NAME_MAX];

			hca_driver(h, pf.vfs[k].bdf, driver);
			printf("#   %s %s driver \"%s\" parked GUID 0x%016llx\n", pf.vfs[k].name,
			       pf.vfs[k].bdf, driver, (unsigned long long)pf.vfs[k].parked_guid);
		}
		hca_pf_clear(&pf);
	}
	return ready;
}

static struct json_object *find_vf(struct json_object *inventory, const char *name)
{
	struct json_object *vfs = json_opt(inventory, "vfs");

	for (size_t i = 0; vfs && i < json_object_array_length(vfs); i++)
		if (str_eq(json_opt_str(json_object_array_get_idx(vfs, i), "name", ""), name))
			return json_object_array_get_idx(vfs, i);
	return NULL;
}

static void check_life(struct provider *p, struct json_object *inventory, const char *name)
{
	struct json_object *vf = find_vf(inventory, name), *in AUTO_JSON, *out AUTO_JSON = NULL;
	char error[HTTP_ERROR_MAX] = "no such VF in the inventory";
	uint64_t parked = 0;

	in = json_object_new_object();
	ib_guid_parse(json_opt_str(vf, "parked_guid", ""), &parked);
	if (json_opt_str(vf, "guid", NULL) &&
	    !str_eq(json_opt_str(vf, "guid", ""), json_opt_str(vf, "parked_guid", ""))) {
		result(false, "the VF is free", "it shows a GUID that is not its parked one");
		return;
	}
	result(vf, "the VF is free", error);
	if (!vf)
		return;
	json_set_str(in, "vf", name);
	json_set_str(in, "vguid", json_opt_str(vf, "parked_guid", ""));
	json_set_str(in, "pkey", "0xffff");
	for (int i = 0; i < 2; i++)
		result(!provider_prepare(p, in, &out, error), "prepare", error);
	printf("# %s\n", out ? json_text(out) : "no commands");
	/* another locally administered one, which no VF of this host has */
	result(!provider_set_guid(p, name, parked ^ 0x8000ull << 24, error), "a vGUID, read back",
	       error);
	result(!provider_set_guid(p, name, parked, error), "the parked GUID again", error);
	for (int i = 0; i < 2; i++)
		result(!provider_release(p, name, error), "release", error);
}

int main(void)
{
	const char *path = getenv("IBVMIG_HW_CONF"), *vf = getenv("IBVMIG_HW_VF");
	struct json_object *inventory AUTO_JSON = NULL;
	struct mlx5_config config;
	struct provider *p = NULL;
	struct conf *conf = NULL;
	char error[HTTP_ERROR_MAX], *why = NULL;

	log_init("hw_provider");
	if (conf_load(path ? path : "/dev/null", keys, &conf, &why) ||
	    mlx5_config_read(conf, &config, &why) || provider_mlx5_new(&config, &p)) {
		fprintf(stderr, "%s\n", why ? why : "out of memory");
		return 1;
	}
	if (!a_pf_is_ready(&config.host, error))
		return skip(error);
	if (!vf)
		return skip("nothing is changed without IBVMIG_HW_VF, the name of a free VF");
	result(!provider_inventory(p, &inventory, error), "inventory", error);
	if (inventory)
		check_life(p, inventory, vf);
	printf("1..%u\n", count);
	provider_free(p);
	mlx5_config_clear(&config);
	conf_free(conf);
	return failed ? 1 : 0;
}
