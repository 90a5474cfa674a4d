/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/libvirt/qmp.h"
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "daemon/libvirt/virt.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

/* Ends QEMU's "No TLS credentials with id '...'", which virsh shows. */
#define SAVE_REFUSED "ibvmig: a VM with a VF is saved by ibvmig save"

#define VFIO_DRIVER "vfio-pci" /* or vfio-pci-nohotplug */

#define CLASS_ETHERNET 0x020000 /* PCI class code */
/* Part of QEMU's words for a pair id at a device of another class (hw/pci/pci.c). */
#define CLASS_REFUSED "not an Ethernet device"

/* Words of a provider's command beside "execute" and "arguments" are for the daemon. */
static int send(struct virt *v, const char *uuid, struct json_object *command, char **ret_text,
		char *error)
{
	struct json_object *bare AUTO_JSON = json_object_new_object();
	const char *file = json_opt_str(command, "file", NULL);
	int fd AUTO_CLOSE = file ? open(file, O_RDWR | O_CLOEXEC) : -1;

	if (file && fd < 0) {
		int rc = -errno;

		snprintf(error, HTTP_ERROR_MAX, "cannot open %s for QEMU: %s", file, strerror(-rc));
		return rc;
	}
	json_set_str(bare, "execute", json_opt_str(command, "execute", ""));
	if (json_opt(command, "arguments"))
		json_set(bare, "arguments", json_object_get(json_opt(command, "arguments")));
	return virt_monitor(v, uuid, json_text(bare), fd, ret_text, error);
}

static int run(struct virt *v, const char *uuid, struct json_object *command,
	       struct json_object **ret_value, char *error)
{
	struct json_object *answer AUTO_JSON = NULL, *e;
	const char *execute = json_opt_str(command, "execute", "?");
	char *text AUTO_FREE = NULL;
	int rc = send(v, uuid, command, &text, error);

	if (rc)
		return rc;
	if (json_parse(text, strlen(text), &answer)) {
		snprintf(error, HTTP_ERROR_MAX, "QEMU answered %s without a JSON object", execute);
		return -EBADMSG;
	}
	e = json_opt(answer, "error");
	if (e) {
		snprintf(error, HTTP_ERROR_MAX, "QEMU refused %s: %s", execute,
			 json_opt_str(e, "desc", "no reason given"));
		return -EREMOTEIO;
	}
	if (ret_value)
		*ret_value = json_object_get(json_opt(answer, "return"));
	return 0;
}

int qmp_call(struct virt *v, const char *uuid, const char *execute, struct json_object *args,
	     struct json_object **ret_value, char *error)
{
	struct json_object *command AUTO_JSON = json_object_new_object();

	json_set_str(command, "execute", execute);
	if (args)
		json_set(command, "arguments", args);
	return run(v, uuid, command, ret_value, error);
}

static bool says(const char *error, const char *word)
{
	return strstr(error, word);
}

static int parse_commands(const char *text, struct json_object **ret_wrapper, char *error)
{
	char *wrapped AUTO_FREE = strf("{\"list\":%s}", text && *text ? text : "[]");

	if (wrapped && !json_parse(wrapped, strlen(wrapped), ret_wrapper) &&
	    json_object_is_type(json_opt(*ret_wrapper, "list"), json_type_array))
		return 0;
	snprintf(error, HTTP_ERROR_MAX, "the VF provider's monitor commands are not a JSON array");
	return -EBADMSG;
}

/* The device_add of a list, borrowed, or NULL. */
static struct json_object *device_add(struct json_object *list)
{
	return json_find(list, "execute", "device_add");
}

/* A device that needs a descriptor cannot be on the command line of a QEMU that libvirt starts. */
static bool passes_file(struct json_object *list)
{
	for (size_t i = 0; i < json_count(list); i++)
		if (json_opt(json_object_array_get_idx(list, i), "file"))
			return true;
	return false;
}

bool qmp_device_flag(const char *commands, const char *flag)
{
	struct json_object *wrapper AUTO_JSON = NULL;
	char error[HTTP_ERROR_MAX];

	return !parse_commands(commands, &wrapper, error) &&
	       json_opt_bool(device_add(json_opt(wrapper, "list")), flag, false);
}

char *qmp_mark_native(struct json_object *commands, bool wanted)
{
	struct json_object *c = device_add(commands);

	if (c && json_opt_bool(c, QMP_MIGRATES_STATE, false))
		json_set_bool(c, QMP_NATIVE, wanted && !passes_file(commands));
	return strdup(json_text(commands));
}

char *qmp_mark_stays(const char *commands)
{
	struct json_object *wrapper AUTO_JSON = NULL, *c;
	char error[HTTP_ERROR_MAX];

	if (parse_commands(commands, &wrapper, error))
		return NULL;
	c = device_add(json_opt(wrapper, "list"));
	if (c)
		json_set_bool(c, QMP_STAYS, true);
	return strdup(json_text(json_opt(wrapper, "list")));
}

/* Every command that adds something counts: netdev_add and others may stand before the device_add
 * of a vfio device. */
static bool already_there(const char *execute, const char *error)
{
	bool adds = strlen(execute) > 4 && !strcmp(execute + strlen(execute) - 4, "_add");

	return (adds || !strcmp(execute, "object-add")) &&
	       (says(error, "Duplicate") || says(error, "already exists") ||
		says(error, "duplicate"));
}

/* QEMU refuses to name the properties of a driver that it does not have: device_add will say so. */
static int properties_of(struct virt *v, const char *uuid, const char *driver,
			 struct json_object **ret_list, char *error)
{
	struct json_object *args = json_object_new_object();
	int rc;

	json_set_str(args, "typename", driver);
	rc = qmp_call(v, uuid, "device-list-properties", args, ret_list, error);
	return rc == -EREMOTEIO ? 0 : rc;
}

/* Makes QEMU allow that the device leaves during a migration: by our patch where it is in
 * (hooks/qemu), else by the pair id. The pair id is for Ethernet devices. A VF says to be one where
 * QEMU can have it say so, unless the provider names another class. */
static int let_it_leave(struct virt *v, const char *uuid, struct json_object *args, char *error)
{
	struct json_object *properties AUTO_JSON = NULL;
	int rc = properties_of(v, uuid, json_opt_str(args, "driver", ""), &properties, error);

	if (rc)
		return rc;
	if (json_find(properties, "name", QMP_LATE_DETACH)) {
		json_set_bool(args, QMP_LATE_DETACH, true);
		return 0;
	}
	json_set_str(args, QMP_PAIR_ID, QMP_NO_PAIR);
	if (json_find(properties, "name", QMP_CLASS_CODE) && !json_opt(args, QMP_CLASS_CODE))
		json_set_u64(args, QMP_CLASS_CODE, CLASS_ETHERNET);
	return 0;
}

/* The nodes that QEMU opens by itself for a device. What does not go well is told, no more: the
 * administrator may have let it, and if not, QEMU says so. */
static void let_open(struct virt *v, const char *uuid, struct json_object *add, bool may)
{
	struct json_object *nodes = json_opt(add, QMP_OPENS);
	char error[HTTP_ERROR_MAX];

	for (size_t i = 0; i < json_count(nodes); i++) {
		const char *node = json_object_get_string(json_object_array_get_idx(nodes, i));

		if (!node || (!may && !strcmp(node, QMP_VFIO_CONTAINER)))
			continue;
		if (virt_let_open(v, uuid, node, may, error))
			log_warn("VM %s: %s", uuid, error);
	}
}

/* Runs the commands once; leaves: the device is to be one that may leave, if it can be. */
static int attach(struct virt *v, const char *uuid, const char *commands, const char *dev_id,
		  const char *bus, bool leaves, char *error)
{
	struct json_object *wrapper AUTO_JSON = NULL, *list;
	int rc = parse_commands(commands, &wrapper, error);

	list = json_opt(wrapper, "list");
	for (size_t i = 0; !rc && i < json_object_array_length(list); i++) {
		struct json_object *c = json_object_array_get_idx(list, i);
		struct json_object *args = json_opt(c, "arguments");
		const char *execute = json_opt_str(c, "execute", "");

		if (!strcmp(execute, "device_add") && args) {
			json_set_str(args, "id", dev_id);
			json_set_str(args, "bus", bus);
			let_open(v, uuid, c, true);
			if (leaves && !json_opt_bool(c, QMP_NATIVE, false))
				rc = let_it_leave(v, uuid, args, error);
		}
		if (!rc && json_opt_bool(c, "pins_memory", false))
			rc = virt_allow_pinning(v, uuid, error);
		if (!rc)
			rc = run(v, uuid, c, NULL, error);
		if (rc == -EREMOTEIO && already_there(execute, error))
			rc = 0;
	}
	return rc;
}

int qmp_attach(struct virt *v, const char *uuid, const char *commands, const char *dev_id,
	       const char *bus, bool *ret_stays, char *error)
{
	int rc = attach(v, uuid, commands, dev_id, bus, true, error);

	*ret_stays = rc == -EREMOTEIO && says(error, CLASS_REFUSED);
	return *ret_stays ? attach(v, uuid, commands, dev_id, bus, false, error) : rc;
}

void qmp_take_back(struct virt *v, const char *uuid, const char *commands)
{
	struct json_object *wrapper AUTO_JSON = NULL;
	char error[HTTP_ERROR_MAX];

	if (!parse_commands(commands, &wrapper, error))
		let_open(v, uuid, device_add(json_opt(wrapper, "list")), false);
}

int qmp_cleanup(struct virt *v, const char *uuid, const char *commands, char *error)
{
	struct json_object *wrapper AUTO_JSON = NULL, *list;
	int rc = parse_commands(commands, &wrapper, error);

	list = json_opt(wrapper, "list");
	for (size_t i = 0; !rc && i < json_object_array_length(list); i++) {
		rc = run(v, uuid, json_object_array_get_idx(list, i), NULL, error);
		if (rc == -EREMOTEIO && says(error, "not found"))
			rc = 0;
	}
	return rc;
}

int qmp_device_del(struct virt *v, const char *uuid, const char *dev_id, char *error)
{
	struct json_object *args = json_object_new_object();
	int rc;

	json_set_str(args, "id", dev_id);
	rc = qmp_call(v, uuid, "device_del", args, NULL, error);
	if (rc == -EREMOTEIO && says(error, "not found"))
		return -ENODEV;
	/* Asked before, and the guest has not answered yet: the event is still to come. */
	return rc == -EREMOTEIO && says(error, "already in the process") ? 0 : rc;
}

int qmp_has_device(struct virt *v, const char *uuid, const char *dev_id, bool *ret_has, char *error)
{
	struct json_object *args = json_object_new_object(), *list AUTO_JSON = NULL;
	int rc;

	json_set_str(args, "path", "/machine/peripheral");
	rc = qmp_call(v, uuid, "qom-list", args, &list, error);
	if (rc)
		return rc;
	*ret_has = json_find(list, "name", dev_id);
	return 0;
}

int qmp_keeps_vm(struct virt *v, const char *uuid, const char *commands, const char *dev_id,
		 bool emulated_too, bool *ret_keeps, char *error)
{
	struct json_object *wrapper AUTO_JSON = NULL, *answer AUTO_JSON = NULL, *args;
	struct json_object *command AUTO_JSON = json_object_new_object();
	char path[64], *text AUTO_FREE = NULL;
	int rc = parse_commands(commands, &wrapper, error);

	*ret_keeps = false;
	if (rc)
		return rc;
	args = json_opt(device_add(json_opt(wrapper, "list")), "arguments");
	if (emulated_too && strncmp(json_opt_str(args, "driver", VFIO_DRIVER), VFIO_DRIVER,
				    strlen(VFIO_DRIVER)) != 0) {
		*ret_keeps = true;
		return 0;
	}
	args = json_object_new_object();
	snprintf(path, sizeof path, "/machine/peripheral/%s", dev_id);
	json_set_str(args, "path", path);
	json_set_str(args, "property", QMP_LATE_DETACH);
	json_set_str(command, "execute", "qom-get");
	json_set(command, "arguments", args);
	rc = virt_monitor(v, uuid, json_text(command), -1, &text, error);
	if (!rc && !json_parse(text, strlen(text), &answer))
		*ret_keeps = json_opt_bool(answer, "return", false);
	return rc;
}

int qmp_query_migrate(struct virt *v, const char *uuid, struct qmp_migration *ret, char *error)
{
	struct json_object *value AUTO_JSON = NULL, *ram, *mbps;
	int rc = qmp_call(v, uuid, "query-migrate", NULL, &value, error);

	if (rc)
		return rc;
	ram = json_opt(value, "ram");
	mbps = json_opt(ram, "mbps");
	*ret = (struct qmp_migration){
		.remaining_bytes = json_opt_u64(ram, "remaining", 0),
		.passes = json_opt_u64(ram, "dirty-sync-count", 0),
		.sent_bytes = (json_opt_u64(ram, "normal", 0) + json_opt_u64(ram, "duplicate", 0)) *
			      json_opt_u64(ram, "page-size", 4096),
		.mbps = mbps ? (uint64_t)json_object_get_double(mbps) : 0,
	};
	snprintf(ret->status, sizeof ret->status, "%s", json_opt_str(value, "status", "none"));
	return 0;
}

int qmp_set_migrate(struct virt *v, const char *uuid, uint64_t max_bandwidth,
		    uint64_t downtime_limit_ms, char *error)
{
	struct json_object *args = json_object_new_object();

	if (max_bandwidth)
		json_set_u64(args, "max-bandwidth", max_bandwidth);
	if (downtime_limit_ms)
		json_set_u64(args, "downtime-limit", downtime_limit_ms);
	return qmp_call(v, uuid, "migrate-set-parameters", args, NULL, error);
}

int qmp_refuse_save(struct virt *v, const char *uuid, bool refuse, char *error)
{
	struct json_object *args = json_object_new_object();

	json_set_str(args, "tls-creds", refuse ? SAVE_REFUSED : "");
	return qmp_call(v, uuid, "migrate-set-parameters", args, NULL, error);
}

int qmp_get_migrate(struct virt *v, const char *uuid, uint64_t *ret_max_bandwidth,
		    uint64_t *ret_downtime_limit_ms, char *error)
{
	struct json_object *value AUTO_JSON = NULL;
	int rc = qmp_call(v, uuid, "query-migrate-parameters", NULL, &value, error);

	if (rc)
		return rc;
	*ret_max_bandwidth = json_opt_u64(value, "max-bandwidth", 0);
	*ret_downtime_limit_ms = json_opt_u64(value, "downtime-limit", 0);
	return 0;
}

static int get_capability(struct virt *v, const char *uuid, const char *name, bool *ret_on,
			  char *error)
{
	struct json_object *list AUTO_JSON = NULL;
	int rc = qmp_call(v, uuid, "query-migrate-capabilities", NULL, &list, error);

	if (rc)
		return rc;
	*ret_on = json_opt_bool(json_find(list, "capability", name), "state", false);
	return 0;
}

int qmp_can_post_copy(struct virt *v, const char *uuid, bool *ret_can, char *error)
{
	return get_capability(v, uuid, "postcopy-ram", ret_can, error);
}

int qmp_compresses(struct virt *v, const char *uuid, bool *ret_does, char *error)
{
	int rc = get_capability(v, uuid, "xbzrle", ret_does, error);

	return rc || *ret_does ? rc : get_capability(v, uuid, "compress", ret_does, error);
}

int qmp_get_throttle(struct virt *v, const char *uuid, struct qmp_throttle *ret, char *error)
{
	struct json_object *value AUTO_JSON = NULL;
	bool converges = false;
	int rc = get_capability(v, uuid, "auto-converge", &converges, error);

	if (!rc && converges)
		rc = qmp_call(v, uuid, "query-migrate-parameters", NULL, &value, error);
	if (rc)
		return rc;
	ret->initial = json_opt_u64(value, "cpu-throttle-initial", 0);
	ret->increment = json_opt_u64(value, "cpu-throttle-increment", 0);
	return 0;
}

int qmp_set_throttle(struct virt *v, const char *uuid, struct qmp_throttle t, char *error)
{
	struct json_object *args = json_object_new_object();

	json_set_u64(args, "cpu-throttle-initial", t.initial);
	json_set_u64(args, "cpu-throttle-increment", t.increment);
	return qmp_call(v, uuid, "migrate-set-parameters", args, NULL, error);
}

int qmp_unlimit_mirrors(struct virt *v, const char *uuid, uint64_t limit, bool *ret_some,
			char *error)
{
	struct json_object *list AUTO_JSON = NULL, *args;
	bool some = false;
	int rc = qmp_call(v, uuid, "query-block-jobs", NULL, &list, error);

	for (size_t i = 0; !rc && i < json_count(list); i++) {
		struct json_object *o = json_object_array_get_idx(list, i);

		if (!str_eq(json_opt_str(o, "type", ""), "mirror"))
			continue;
		some = true;
		if (json_opt_u64(o, "speed", 0) != limit)
			continue;
		args = json_object_new_object();
		json_set_str(args, "device", json_opt_str(o, "device", ""));
		json_set_u64(args, "speed", 0);
		rc = qmp_call(v, uuid, "block-job-set-speed", args, NULL, error);
	}
	if (!rc)
		*ret_some = some;
	return rc;
}
