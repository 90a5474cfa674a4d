/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The configuration of the provider for ConnectX cards. */
#include "common/conf.h"
#include "common/json.h"
#include "common/util.h"
#include "daemon/vf/mlx5.h"

#include <linux/if_link.h>
#include <linux/netlink.h>
#include <string.h>

#define VFS_MAX 127 /* most VFs of one PF, by the cards' firmware */

struct word {
	const char *text;
	unsigned value;
};

/* words: those that the table of settings allows, all of them. */
static unsigned read_word(const struct conf *conf, const char *key, const struct word *words)
{
	const char *text = conf_get(conf, key);

	while (strcmp(text, words->text) != 0)
		words++;
	return words->value;
}

/* NAME DEVICE [VFS] */
static int read_pf(const struct conf *conf, const char *line, struct mlx5_config *c,
		   char **ret_error)
{
	struct mlx5_pf *pf = &c->pfs[c->pf_count];
	uint64_t vfs = 0;
	char number[8] = "0";
	int end = -1, fields;

	fields = c->pf_count < VF_PFS_MAX ? sscanf(line, " %51s %63s %n%7s %n", pf->name,
						   pf->device, &end, number, &end)
					  : 0;
	if (fields < 2 || end < 0 || line[end] || parse_u64(number, 0, VFS_MAX, &vfs))
		return conf_refuse(
			conf, line, ret_error,
			"must be a name, a PCI address or RDMA device, and perhaps how "
			"many VFs to create (1 to %d), as in \"pf0 0000:3b:00.0 16\"; at "
			"most %d lines",
			VFS_MAX, VF_PFS_MAX);
	for (size_t i = 0; i < c->pf_count; i++)
		if (!strcmp(c->pfs[i].name, pf->name) || !strcmp(c->pfs[i].device, pf->device))
			return conf_refuse(conf, line, ret_error,
					   "another line has this name or this device");
	pf->vfs = (unsigned)vfs;
	c->pf_count++;
	return 0;
}

/* QEMU's monitor wants numbers and booleans as such. */
static struct json_object *typed(const char *text)
{
	uint64_t n;

	if (!parse_u64(text, 0, INT64_MAX, &n))
		return json_object_new_int64((int64_t)n);
	if (!strcmp(text, "true") || !strcmp(text, "false"))
		return json_object_new_boolean(*text == 't');
	return json_object_new_string(text);
}

static int read_property(const struct conf *conf, const char *line, struct mlx5_config *c,
			 char **ret_error)
{
	static const char *const ours[] = {"driver",          "id", "bus", "host", "fd", "iommufd",
					   "failover_pair_id"};
	size_t n = strcspn(line, "=");
	char *name AUTO_FREE = strndup(line, n);
	bool bad = !n || !line[n] || !name || strpbrk(name, " \t");

	for (size_t i = 0; name && i < ARRAY_SIZE(ours); i++)
		bad = bad || !strcmp(name, ours[i]);
	if (bad)
		return conf_refuse(conf, line, ret_error,
				   "must be NAME=VALUE of QEMU's vfio-pci, as in "
				   "x-pci-class-code=0x020000, and none that ibvmigd sets itself");
	json_set(c->properties, name, typed(line + n + 1));
	return 0;
}

static int read_lists(const struct conf *conf, struct mlx5_config *c, char **ret_error)
{
	const char *line;
	int rc = 0;

	for (size_t n = 0; !rc && (line = conf_nth(conf, "pf", n)); n++)
		rc = read_pf(conf, line, c, ret_error);
	for (size_t n = 0; !rc && (line = conf_nth(conf, "device-property", n)); n++)
		rc = read_property(conf, line, c, ret_error);
	return rc;
}

int mlx5_config_read(const struct conf *conf, struct mlx5_config *ret, char **ret_error)
{
	static const struct word policies[] = {{"follow", IFLA_VF_LINK_STATE_AUTO},
					       {"up", IFLA_VF_LINK_STATE_ENABLE}};
	static const struct word backends[] = {
		{"auto", MLX5_AUTO}, {"iommufd", MLX5_IOMMUFD}, {"group", MLX5_GROUP}};
	struct mlx5_config *c = ret;
	int rc;

	*c = (struct mlx5_config){
		.host = {.sysfs = {.root = "/sys"},
			 .netlink = {NETLINK_ROUTE, 0},
			 .dev = "/dev",
			 .proc = "/proc"},
		.properties = json_object_new_object(),
		.policy = read_word(conf, "vf-policy", policies),
		.driver = conf_get(conf, "vfio-driver"),
		.backend = (enum mlx5_backend)read_word(conf, "vfio-backend", backends),
	};
	rc = read_lists(conf, c, ret_error);
	if (rc)
		mlx5_config_clear(c);
	return rc;
}

void mlx5_config_clear(struct mlx5_config *c)
{
	json_object_put(TAKE(c->properties));
}

void mlx5_config_free(struct mlx5_config *c)
{
	if (!c)
		return;
	mlx5_config_clear(c);
	free(c);
}
