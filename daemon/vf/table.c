/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/vf/table.h"
#include "common/ib.h"
#include "common/json.h"
#include "common/util.h"
#include "daemon/store/journal.h"

#include <errno.h>
#include <string.h>

static void copy(char *to, size_t size, const char *from)
{
	snprintf(to, size, "%s", from);
}

/* Whole: by a name that was cut, the provider would be asked for another VF. */
static void need_name(struct json_reader *r, const char *key, char name[static VF_NAME_MAX])
{
	const char *text = json_need_str(r, key);

	if (r->error)
		return;
	if (!*text || strlen(text) >= VF_NAME_MAX) {
		r->error = -EINVAL;
		snprintf(r->message, sizeof r->message,
			 "field \"%s\" has %zu bytes; allowed is 1 to %d", key, strlen(text),
			 VF_NAME_MAX - 1);
		return;
	}
	copy(name, VF_NAME_MAX, text);
}

static int load_pf(struct pf *pf, struct json_object *o, char *error)
{
	struct json_reader r;
	struct json_object *pkeys;

	json_reader_init(&r, o);
	need_name(&r, "name", pf->name);
	pf->guid = json_need_guid(&r, "guid");
	pkeys = json_need_array(&r, "pkeys");
	for (size_t i = 0; pkeys && i < json_object_array_length(pkeys); i++) {
		const char *text = json_object_get_string(json_object_array_get_idx(pkeys, i));

		if (pf->pkey_count < VF_PKEYS_MAX && text &&
		    !ib_pkey_parse(text, &pf->pkeys[pf->pkey_count]))
			pf->pkey_count++;
	}
	if (r.error)
		snprintf(error, HTTP_ERROR_MAX, "the provider's inventory, pfs: %s", r.message);
	return r.error;
}

static int load_vf(struct vf *vf, struct json_object *o, char *error)
{
	struct json_reader r;

	json_reader_init(&r, o);
	need_name(&r, "name", vf->name);
	need_name(&r, "pf", vf->pf);
	vf->index = (unsigned)json_need_u64(&r, "index", 0, 65535);
	vf->parked_guid = json_need_guid(&r, "parked_guid");
	if (json_opt(o, "port_guid"))
		vf->port_guid = json_need_guid(&r, "port_guid");
	copy(vf->pci, sizeof vf->pci, json_opt_str(o, "pci", ""));
	vf->guid_index = vf->index < UINT8_MAX ? vf->index + 1 : 0; /* entry 0 is the port's own */
	if (json_opt(o, "guid_index"))
		vf->guid_index = (unsigned)json_need_u64(&r, "guid_index", 1, 255);
	if (r.error)
		snprintf(error, HTTP_ERROR_MAX, "the provider's inventory, vfs: %s", r.message);
	return r.error;
}

static struct pf *find_pf(struct vf_table *t, const char *name)
{
	for (size_t i = 0; i < t->pf_count; i++)
		if (!strcmp(t->pfs[i].name, name))
			return &t->pfs[i];
	return NULL;
}

void vf_set_entry(struct json_object *o, const struct vf *vf)
{
	if (!vf->port_guid || !vf->guid_index)
		return;
	json_set_guid(o, "port_guid", vf->port_guid);
	json_set_u64(o, "guid_index", vf->guid_index);
}

void vf_copy_entry(struct json_object *to, struct json_object *from)
{
	if (!json_opt(from, "port_guid"))
		return;
	json_set(to, "port_guid", json_object_get(json_opt(from, "port_guid")));
	json_set(to, "guid_index", json_object_get(json_opt(from, "guid_index")));
}

/* The PF tells what the provider has not told of a VF. */
static void find_ports(struct vf_table *t)
{
	for (size_t i = 0; i < t->vf_count; i++) {
		const struct pf *pf = find_pf(t, t->vfs[i].pf);

		if (!t->vfs[i].port_guid && pf)
			t->vfs[i].port_guid = pf->guid;
	}
}

static void load_lease(struct vf_table *t, struct json_object *o)
{
	struct vf *vf = vf_by_name(t, json_opt_str(o, "vf", ""));
	uint64_t pkey = 0;

	if (!vf)
		return;
	vf->leased = true;
	copy(vf->vm, sizeof vf->vm, json_opt_str(o, "vm", ""));
	copy(vf->vm_name, sizeof vf->vm_name, json_opt_str(o, "vm_name", ""));
	copy(vf->migration, sizeof vf->migration, json_opt_str(o, "migration", ""));
	copy(vf->bus, sizeof vf->bus, json_opt_str(o, "bus", ""));
	ib_guid_parse(json_opt_str(o, "vguid", ""), &vf->vguid);
	parse_u64(json_opt_str(o, "pkey", "0"), 0, 0xffff, &pkey);
	vf->pkey = (uint16_t)pkey;
	vf->lid = (unsigned)json_opt_u64(o, "lid", 0);
	vf->since_ms = json_opt_u64(o, "since_ms", 0);
	str_set(&vf->attach, json_opt_str(o, "attach", NULL));
	str_set(&vf->detach, json_opt_str(o, "detach", NULL));
}

static int load_lists(struct vf_table *t, struct json_object *pfs, struct json_object *vfs,
		      char *error)
{
	size_t n_pf = json_object_array_length(pfs), n_vf = json_object_array_length(vfs);
	int rc = 0;

	if (n_pf > VF_PFS_MAX || n_vf > VF_VFS_MAX) {
		snprintf(error, HTTP_ERROR_MAX,
			 "the provider's inventory has %zu PFs and %zu VFs; at most %d and %d",
			 n_pf, n_vf, VF_PFS_MAX, VF_VFS_MAX);
		return -EINVAL;
	}
	t->pfs = calloc(n_pf + 1, sizeof *t->pfs);
	t->vfs = calloc(n_vf + 1, sizeof *t->vfs);
	if (!t->pfs || !t->vfs) {
		snprintf(error, HTTP_ERROR_MAX,
			 "out of memory for the provider's inventory of %zu PFs and %zu VFs", n_pf,
			 n_vf);
		return -ENOMEM;
	}
	for (; !rc && t->pf_count < n_pf; t->pf_count++)
		rc = load_pf(&t->pfs[t->pf_count], json_object_array_get_idx(pfs, t->pf_count),
			     error);
	for (; !rc && t->vf_count < n_vf; t->vf_count++)
		rc = load_vf(&t->vfs[t->vf_count], json_object_array_get_idx(vfs, t->vf_count),
			     error);
	return rc;
}

int vf_table_load(struct vf_table *t, struct journal *journal, struct json_object *inventory,
		  char error[static HTTP_ERROR_MAX])
{
	struct json_object *pfs, *vfs, *leases AUTO_JSON = NULL;
	struct json_reader r;
	int rc;

	*t = (struct vf_table){.journal = journal};
	json_reader_init(&r, inventory);
	pfs = json_need_array(&r, "pfs");
	vfs = json_need_array(&r, "vfs");
	if (r.error) {
		snprintf(error, HTTP_ERROR_MAX, "the provider's inventory: %s", r.message);
		return r.error;
	}
	rc = load_lists(t, pfs, vfs, error);
	if (rc) {
		vf_table_clear(t);
		return rc;
	}
	find_ports(t);
	leases = journal_leases(journal);
	for (size_t i = 0; i < json_object_array_length(leases); i++)
		load_lease(t, json_object_array_get_idx(leases, i));
	return 0;
}

void vf_table_clear(struct vf_table *t)
{
	for (size_t i = 0; i < t->vf_count; i++) {
		free(t->vfs[i].attach);
		free(t->vfs[i].detach);
	}
	free(t->pfs);
	free(t->vfs);
	*t = (struct vf_table){.journal = t->journal};
}

void vf_table_free(struct vf_table *t)
{
	if (!t)
		return;
	vf_table_clear(t);
	free(t);
}

/* Appends to a line of fixed size; what does not fit is cut. */
static void append(char *line, const char *sep, const char *text)
{
	size_t n = strlen(line);

	snprintf(line + n, HTTP_ERROR_MAX - n, "%s%s", n && line[n - 1] != ' ' ? sep : "", text);
}

static int unknown_pf(struct vf_table *t, const char *name, char *error)
{
	snprintf(error, HTTP_ERROR_MAX, "pf \"%s\" is unknown; this host has ", name);
	for (size_t i = 0; i < t->pf_count; i++)
		append(error, ", ", t->pfs[i].name);
	if (!t->pf_count)
		append(error, "", "none");
	return -EINVAL;
}

static int none_free(struct vf_table *t, const char *pf, char *error)
{
	snprintf(error, HTTP_ERROR_MAX, "%s has no free VF; VMs that have one: ", pf);
	for (size_t i = 0; i < t->vf_count; i++)
		if (!strcmp(t->vfs[i].pf, pf))
			append(error, ", ", t->vfs[i].vm_name);
	return -EBUSY;
}

static struct vf *find_free(struct vf_table *t, const char *pf)
{
	for (size_t i = 0; i < t->vf_count; i++)
		if (!t->vfs[i].leased && !strcmp(t->vfs[i].pf, pf))
			return &t->vfs[i];
	return NULL;
}

/* The free VF at this address. -EINVAL, -EBUSY: as vf_claim(). */
static int find_pci(struct vf_table *t, const char *pf, const char *pci, struct vf **ret_vf,
		    char *error)
{
	snprintf(error, HTTP_ERROR_MAX, "pci \"%s\" is no VF of %s, which has ", pci, pf);
	for (size_t i = 0; i < t->vf_count; i++) {
		struct vf *vf = &t->vfs[i];

		if (strcmp(vf->pf, pf))
			continue;
		append(error, ", ", *vf->pci ? vf->pci : "one without an address");
		if (strcasecmp(vf->pci, pci))
			continue;
		if (vf->leased) {
			snprintf(error, HTTP_ERROR_MAX, "VF %s (%s) belongs to VM %s already",
				 vf->name, vf->pci, vf->vm_name);
			return -EBUSY;
		}
		*ret_vf = vf;
		return 0;
	}
	return -EINVAL;
}

static int find_wanted(struct vf_table *t, const struct vf_want *want, struct vf **ret_vf,
		       char *error)
{
	if (*want->pci)
		return find_pci(t, want->pf, want->pci, ret_vf, error);
	*ret_vf = find_free(t, want->pf);
	return *ret_vf ? 0 : none_free(t, want->pf, error);
}

static int check_duplicate(struct vf_table *t, const char *vm, uint64_t vguid, char *error)
{
	for (size_t i = 0; i < t->vf_count; i++) {
		struct vf *vf = &t->vfs[i];

		if (!vf->leased || vf->vguid != vguid || !strcmp(vf->vm, vm))
			continue;
		snprintf(error, HTTP_ERROR_MAX,
			 "vguid 0x%016llx belongs to VM %s on this host already: a vGUID must be "
			 "unique in the subnet",
			 (unsigned long long)vguid, vf->vm_name);
		return -EINVAL;
	}
	return 0;
}

static int claim_one(struct vf_table *t, const char *vm, const char *vm_name,
		     const struct vf_want *want, const char *migration, struct vf **ret_vf,
		     char *error)
{
	struct vf *vf = vf_of_vm(t, vm, want->vguid);
	bool had = vf;
	int rc;

	if (!find_pf(t, want->pf))
		return unknown_pf(t, want->pf, error);
	rc = check_duplicate(t, vm, want->vguid, error);
	if (!rc && !vf)
		rc = find_wanted(t, want, &vf, error);
	if (rc)
		return rc;
	vf->leased = true;
	copy(vf->vm, sizeof vf->vm, vm);
	copy(vf->vm_name, sizeof vf->vm_name, vm_name);
	copy(vf->migration, sizeof vf->migration, migration);
	vf->vguid = want->vguid;
	vf->pkey = want->pkey;
	rc = vf_save(t, vf);
	if (rc) {
		vf->leased = had; /* QEMU may have it */
		snprintf(error, HTTP_ERROR_MAX, "the journal cannot be written; is the disk full?");
		return rc;
	}
	*ret_vf = vf;
	return 0;
}

int vf_claim(struct vf_table *t, const char *vm, const char *vm_name, const struct vf_want *wants,
	     unsigned count, const char *migration, struct vf **ret_vfs,
	     char error[static HTTP_ERROR_MAX])
{
	struct vf *vfs[DOMAIN_VFS_MAX] = {NULL};
	bool had[DOMAIN_VFS_MAX];
	unsigned n = 0;
	int rc = 0;

	for (; n < count; n++) {
		had[n] = vf_of_vm(t, vm, wants[n].vguid) != NULL;
		rc = claim_one(t, vm, vm_name, &wants[n], migration, &vfs[n], error);
		if (rc)
			break;
	}
	if (!rc)
		memcpy(ret_vfs, vfs, count * sizeof *vfs);
	while (rc && n--)
		if (!had[n])
			vf_free_lease(t, vfs[n]);
	return rc;
}

struct json_object *vf_lease_json(const struct vf *vf)
{
	struct json_object *o = json_object_new_object();
	char pkey[8];

	snprintf(pkey, sizeof pkey, "0x%04x", vf->pkey);
	json_set_str(o, "vf", vf->name);
	json_set_guid(o, "parked_guid", vf->parked_guid);
	vf_set_entry(o, vf);
	json_set_guid(o, "vguid", vf->vguid);
	json_set_str(o, "pkey", pkey);
	json_set_str(o, "bus", vf->bus);
	json_set_str(o, "attach", vf->attach ? vf->attach : "[]");
	json_set_str(o, "detach", vf->detach ? vf->detach : "[]");
	return o;
}

int vf_save(struct vf_table *t, struct vf *vf)
{
	struct json_object *o AUTO_JSON = json_object_new_object();
	char pkey[8];

	snprintf(pkey, sizeof pkey, "0x%04x", vf->pkey);
	json_set_str(o, "vm_name", vf->vm_name);
	json_set_str(o, "migration", vf->migration);
	json_set_guid(o, "vguid", vf->vguid);
	json_set_str(o, "pkey", pkey);
	json_set_str(o, "bus", vf->bus);
	json_set_u64(o, "lid", vf->lid);
	json_set_u64(o, "since_ms", vf->since_ms);
	if (vf->attach)
		json_set_str(o, "attach", vf->attach);
	if (vf->detach)
		json_set_str(o, "detach", vf->detach);
	return journal_lease_put(t->journal, vf->name, vf->vm, json_text(o));
}

void vf_free_lease(struct vf_table *t, struct vf *vf)
{
	journal_lease_del(t->journal, vf->name);
	vf->leased = false;
	vf->vm[0] = vf->vm_name[0] = vf->migration[0] = vf->bus[0] = '\0';
	vf->vguid = 0;
	vf->lid = 0;
	vf->since_ms = 0;
	str_set(&vf->attach, NULL);
	str_set(&vf->detach, NULL);
}

struct vf *vf_of_vm(struct vf_table *t, const char *vm, uint64_t vguid)
{
	for (size_t i = 0; i < t->vf_count; i++)
		if (t->vfs[i].leased && !strcmp(t->vfs[i].vm, vm) &&
		    (!vguid || t->vfs[i].vguid == vguid))
			return &t->vfs[i];
	return NULL;
}

/* The lease holds all that ibvmig-sm's registry has of a VF, so the registry can be made anew. */
static void write_lease(struct printbuf *text, const struct vf *vf)
{
	char pkey[8];

	snprintf(pkey, sizeof pkey, "0x%04x", vf->pkey);
	json_write_guid(text, "vguid", vf->vguid);
	json_write_str(text, "vm_uuid", vf->vm);
	json_write_str(text, "pkey", pkey);
	json_write_u64(text, "since_ms", vf->since_ms);
	if (!vf->port_guid || !vf->guid_index)
		return;
	json_write_guid(text, "port_guid", vf->port_guid);
	json_write_u64(text, "guid_index", vf->guid_index);
}

void vf_write_status(struct printbuf *text, const char *key, const struct vf_table *t)
{
	json_write_open(text, key, '[');
	for (size_t i = 0; i < t->vf_count; i++) {
		const struct vf *vf = &t->vfs[i];

		json_write_open(text, NULL, '{');
		json_write_str(text, "name", vf->name);
		json_write_str(text, "pf", vf->pf);
		json_write_u64(text, "index", vf->index);
		json_write_str(text, "pci", *vf->pci ? vf->pci : NULL);
		json_write_guid(text, "parked_guid", vf->parked_guid);
		json_write_str(text, "vm", vf->leased ? vf->vm_name : NULL);
		json_write_str(text, "migration", *vf->migration ? vf->migration : NULL);
		if (vf->leased)
			write_lease(text, vf);
		json_write_close(text, '}');
	}
	json_write_close(text, ']');
}

struct json_object *vf_status(const struct vf_table *t)
{
	struct printbuf *text = printbuf_new();

	json_write_open(text, NULL, '{');
	vf_write_status(text, "vfs", t);
	json_write_close(text, '}');
	struct json_object *o AUTO_JSON = json_read_back(text);

	return json_object_get(json_opt(o, "vfs"));
}

struct json_object *vf_pfs(const struct vf_table *t)
{
	struct json_object *list = json_object_new_array();

	for (size_t i = 0; i < t->pf_count; i++) {
		const struct pf *pf = &t->pfs[i];
		struct json_object *o = json_object_new_object();
		struct json_object *pkeys = json_object_new_array();

		for (size_t k = 0; k < pf->pkey_count; k++) {
			char text[8];

			snprintf(text, sizeof text, "0x%04x", pf->pkeys[k]);
			json_object_array_add(pkeys, json_object_new_string(text));
		}
		json_set_str(o, "name", pf->name);
		json_set_guid(o, "guid", pf->guid);
		json_set(o, "pkeys", pkeys);
		json_object_array_add(list, o);
	}
	return list;
}
