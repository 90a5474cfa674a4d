/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The answers of QEMU on its monitor, and the monitor commands that a VF provider hands over. */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "common/util.h"
#include "daemon/libvirt/qmp.h"
#include "daemon/libvirt/virt.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *text; /* the input */

int virt_monitor(struct virt *v, const char *uuid, const char *command, int fd, char **ret_answer,
		 char *error)
{
	(void)v;
	(void)uuid;
	(void)command;
	(void)fd;
	(void)error;
	*ret_answer = strdup(text);
	return *ret_answer ? 0 : -ENOMEM;
}

int virt_let_open(struct virt *v, const char *uuid, const char *node, bool may, char *error)
{
	(void)v;
	(void)uuid;
	(void)may;
	if (!node)
		abort();
	*error = '\0';
	return 0;
}

int virt_allow_pinning(struct virt *v, const char *uuid, char *error)
{
	(void)v;
	(void)uuid;
	(void)error;
	return 0;
}

static void ask(char *error)
{
	struct json_object *value AUTO_JSON = NULL;
	struct qmp_migration m;
	bool has, can;

	qmp_call(NULL, "uuid", "query-status", NULL, &value, error);
	qmp_query_migrate(NULL, "uuid", &m, error);
	qmp_has_device(NULL, "uuid", "ibvf0", &has, error);
	qmp_unlimit_mirrors(NULL, "uuid", 0, &has, error);
	qmp_device_del(NULL, "uuid", "ibvf0", error);
	qmp_can_post_copy(NULL, "uuid", &can, error);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *input AUTO_FREE = strndup((const char *)data, size), error[HTTP_ERROR_MAX];
	bool stays;

	if (!input || strstr(input, "\"file\"")) /* QEMU would open the file */
		return 0;
	text = input;
	ask(error);
	qmp_device_flag(input, QMP_MIGRATES_STATE);
	qmp_attach(NULL, "uuid", input, "ibvf0", "pci.5", &stays, error);
	qmp_take_back(NULL, "uuid", input);
	qmp_cleanup(NULL, "uuid", input, error);
	text = "{\"return\":{}}";
	qmp_attach(NULL, "uuid", input, "ibvf0", "pci.5", &stays, error);
	qmp_cleanup(NULL, "uuid", input, error);
	return 0;
}
