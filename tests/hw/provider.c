/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The provider mlx5 on this machine's own ConnectX cards: `make check-hw`, as root. Exit status 77
 * where there is none that is ready. The check changes back what it changes, on one VF that no VM
 * may have:
 *
 *   $IBVMIG_HW_VF  its name, as "mlx5_0vf3"; without it only what changes nothing is checked
 *   $IBVMIG_HW_CONF  a configuration of ibvmigd, for the lines that the provider reads, as "pf" */
#include "common/conf.h"
#include "common/log.h"
#include "common/util.h"
#include "daemon/base/settings.h"
#include "tests/hw/checks.h"

#define SKIP 77

static unsigned count, failed;

static void tell(struct hw_results *r, enum hw_verdict v, const char *what, const char *why)
{
	(void)r;
	printf("%sok %u - %s%s%s\n", v == HW_FAILED ? "not " : "", ++count, what,
	       v == HW_SKIPPED ? " # SKIP " : "", v == HW_SKIPPED ? why : "");
	failed += v == HW_FAILED;
	if (v == HW_FAILED)
		printf("# %s\n", why);
}

static void list_vfs(const struct hca_host *h, const struct hca_pf *pf)
{
	char driver[SYSFS_NAME_MAX];

	for (size_t k = 0; k < pf->vf_count; k++) {
		hca_driver(h, pf->vfs[k].bdf, driver);
		printf("#   %s %s driver \"%s\" parked GUID 0x%016llx\n", pf->vfs[k].name,
		       pf->vfs[k].bdf, driver, (unsigned long long)pf->vfs[k].parked_guid);
	}
}

/* How many PFs are ready; error: of the last one that is not. */
static unsigned check_pfs(struct hw_results *r, const struct hca_host *h, char *error)
{
	struct sysfs_list l AUTO_LIST = hca_pfs(h);
	unsigned ready = 0;

	snprintf(error, HTTP_ERROR_MAX, "no ConnectX card in this machine");
	for (size_t i = 0; i < l.count; i++) {
		struct hca_pf pf;
		int rc = hca_pf_load(h, l.names[i], NULL, 0, &pf, error);

		printf("# PF %s: %s\n", l.names[i], rc ? error : "ready");
		if (!rc) {
			list_vfs(h, &pf);
			hw_check_pf(r, h, &pf);
			ready++;
		}
		hca_pf_clear(&pf);
	}
	return ready;
}

int main(void)
{
	const char *path = getenv("IBVMIG_HW_CONF"), *vf = getenv("IBVMIG_HW_VF");
	struct hw_results results = {tell};
	struct mlx5_config config;
	struct conf *conf = NULL;
	char error[HTTP_ERROR_MAX], *why = NULL;

	log_init("hw_provider");
	if (conf_load(path ? path : "/dev/null", ibvmigd_settings, &conf, &why) ||
	    mlx5_config_read(conf, &config, &why)) {
		fprintf(stderr, "%s\n", why ? why : "out of memory");
		return 1;
	}
	if (!check_pfs(&results, &config.host, error)) {
		printf("1..0 # skip %s\n", error);
		return SKIP;
	}
	hw_check_memlock(&results);
	if (vf)
		hw_check_vf(&results, &config, vf);
	else
		tell(&results, HW_SKIPPED, "the life of a VF",
		     "nothing is changed without IBVMIG_HW_VF, the name of a free VF");
	printf("1..%u\n", count);
	mlx5_config_clear(&config);
	conf_free(conf);
	return failed ? 1 : 0;
}
