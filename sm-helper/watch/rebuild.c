/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/watch/rebuild.h"
#include "common/ib.h"
#include "common/json.h"
#include "common/util.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *rebuild_text(enum rebuild_verdict v)
{
	static const char *const text[] = {"same", "enter", "correct", "left", "conflict"};

	return text[v];
}

void rebuild_free(struct rebuild *r)
{
	free(r->row);
	*r = (struct rebuild){0};
}

static struct rebuild_row *add(struct rebuild *r)
{
	struct rebuild_row *grown = realloc(r->row, (r->count + 1) * sizeof *grown);

	if (!grown)
		return NULL;
	r->row = grown;
	grown += r->count++;
	*grown = (struct rebuild_row){.verdict = REBUILD_ENTER};
	return grown;
}

static void conflict(struct rebuild_row *row, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* The first reason stays. */
static void conflict(struct rebuild_row *row, const char *fmt, ...)
{
	va_list ap;

	if (row->verdict == REBUILD_CONFLICT)
		return;
	row->verdict = REBUILD_CONFLICT;
	va_start(ap, fmt);
	vsnprintf(row->text, sizeof row->text, fmt, ap);
	va_end(ap);
}

static void copy(char to[static REG_TEXT_MAX], const char *from)
{
	snprintf(to, REG_TEXT_MAX, "%s", from);
}

static uint64_t guid_of(struct json_object *vf, const char *key)
{
	uint64_t guid;

	return ib_guid_parse(json_opt_str(vf, key, ""), &guid) ? 0 : guid;
}

static void read_vf(struct rebuild_row *row, const char *host, const char *url,
		    struct json_object *vf)
{
	struct reg_entry *e = &row->e;

	e->vguid = guid_of(vf, "vguid");
	e->at.parked_guid = guid_of(vf, "parked_guid");
	e->since_ms = json_opt_u64(vf, "since_ms", 0);
	copy(e->vm, json_opt_str(vf, "vm_uuid", ""));
	copy(e->name, json_opt_str(vf, "vm", ""));
	copy(e->at.host, host);
	copy(e->at.url, url);
	copy(e->at.vf, json_opt_str(vf, "name", ""));
	if (json_opt(vf, "port_guid")) {
		e->mode = ADDRESS_SHARED_PORT;
		e->at.switch_guid = guid_of(vf, "port_guid");
		e->at.switch_port = (uint8_t)json_opt_u64(vf, "guid_index", 0);
	}
	if (!*e->vm || ib_pkey_parse(json_opt_str(vf, "pkey", ""), &e->pkey) || !e->at.parked_guid)
		conflict(row,
			 "host %.60s does not tell the VM's UUID and partition: is its ibvmigd of "
			 "this release?",
			 host);
	else if (*json_opt_str(vf, "migration", ""))
		conflict(row, "host %.60s is in the middle of a migration of it: wait for its end",
			 host);
}

int rebuild_add_host(struct rebuild *r, const char *url, struct json_object *status)
{
	struct json_object *vfs = json_opt(status, "vfs");
	const char *host = json_opt_str(status, "host", "");

	if (!*host || !json_object_is_type(vfs, json_type_array))
		return -EBADMSG;
	for (size_t i = 0; i < json_count(vfs); i++) {
		struct json_object *vf = json_object_array_get_idx(vfs, i);
		struct rebuild_row *row;

		if (!guid_of(vf, "vguid"))
			continue;
		if (!(row = add(r)))
			return -ENOMEM;
		read_vf(row, host, url, vf);
	}
	return 0;
}

void rebuild_claimed(struct rebuild_row *row, const char *vm)
{
	conflict(row, "VM %.40s has claimed it: release it there first", vm);
}

/* ---- the word of the others ---- */

static void check_pair(struct rebuild_row *a, struct rebuild_row *b)
{
	const char *both = a->e.vguid == b->e.vguid                     ? "the vGUID"
			   : a->e.at.parked_guid == b->e.at.parked_guid ? "this parked GUID"
									: NULL;

	if (!both)
		return;
	conflict(a, "VF %.60s of %.60s has %s too", b->e.at.vf, b->e.at.host, both);
	conflict(b, "VF %.60s of %.60s has %s too", a->e.at.vf, a->e.at.host, both);
}

static const struct sm_home *find_home(const struct sm_home *home, size_t homes, uint64_t guid)
{
	for (size_t i = 0; i < homes; i++)
		if (home[i].port_guid == guid)
			return &home[i];
	return NULL;
}

static bool is_same_place(const struct sm_home *a, const struct sm_home *b)
{
	return a && b ? a->switch_guid == b->switch_guid && a->switch_port == b->switch_port
		      : !a && !b;
}

void rebuild_moved(struct rebuild *r, const struct sm_home *before, size_t befores,
		   const struct sm_home *home, size_t homes)
{
	for (size_t i = 0; i < r->count; i++) {
		struct rebuild_row *row = &r->row[i];

		if (!is_same_place(find_home(before, befores, row->e.vguid),
				   find_home(home, homes, row->e.vguid)))
			conflict(row, "it has moved while hosts were asked: call again");
	}
}

static void find_shared(struct rebuild_row *row, const struct fabric *f)
{
	uint32_t end = fabric_find_end(f, row->e.at.switch_guid);

	if (end == FABRIC_NONE)
		conflict(row, "OpenSM sees no port 0x%016" PRIx64 ", which is to show it",
			 row->e.at.switch_guid);
	else
		row->e.lid = f->end[end].lid;
}

/* Finds its place and LID, as OpenSM has them. */
static void find_place(struct rebuild_row *row, const struct fabric *f, const struct sm_home *home)
{
	uint32_t at = fabric_find_end(f, row->e.vguid);
	const struct fabric_end *end = at == FABRIC_NONE ? NULL : &f->end[at];
	struct reg_vf *vf = &row->e.at;

	if (!end || end->sw == FABRIC_NONE || !end->lid) {
		conflict(row, "OpenSM sees no port that shows the vGUID");
		return;
	}
	row->e.lid = end->lid;
	vf->switch_guid = f->sw[end->sw].guid;
	vf->switch_port = end->sw_port;
	vf->parked_node = vf->parked_guid - (row->e.vguid - end->node_guid);
	row->e.mode = ADDRESS_PREPOPULATED;
	if (!home)
		return;
	if (home->like) {
		row->e.mode = ADDRESS_DYNAMIC;
		vf->lid = home->own_lid;
	}
	if (home->switch_guid != vf->switch_guid || home->switch_port != vf->switch_port)
		conflict(row, "OpenSM's plugin has it at port %u of switch 0x%016" PRIx64,
			 home->switch_port, home->switch_guid);
}

void rebuild_place(struct rebuild *r, const struct sm_place *place, size_t places)
{
	for (size_t i = 0; i < r->count; i++) {
		struct rebuild_row *row = &r->row[i];
		struct reg_vf *vf = &row->e.at;
		unsigned found = 0;

		if (row->e.mode == ADDRESS_SHARED_PORT)
			conflict(row, "its host has it share a port's LID, which this subnet "
				      "manager does by itself");
		for (size_t k = 0; k < places; k++) {
			if (place[k].vguid != row->e.vguid)
				continue;
			found++;
			row->e.lid = place[k].lid;
			vf->switch_guid = place[k].port_guid;
			vf->switch_port = place[k].port;
		}
		if (found != 1 || !row->e.lid)
			conflict(row, "the subnet manager lists %u virtual ports with it%s", found,
				 found == 1 ? ", not active" : "");
	}
}

static const struct reg_entry *find_known(const struct reg_entry *known, size_t knowns,
					  uint64_t vguid)
{
	for (size_t i = 0; i < knowns; i++)
		if (known[i].vguid == vguid)
			return &known[i];
	return NULL;
}

static bool is_same(const struct reg_entry *a, const struct reg_entry *b)
{
	return !strcmp(a->vm, b->vm) && a->pkey == b->pkey && a->lid == b->lid &&
	       a->mode == b->mode && reg_same_vf(&a->at, &b->at) && !strcmp(a->at.vf, b->at.vf) &&
	       a->at.switch_guid == b->at.switch_guid && a->at.switch_port == b->at.switch_port;
}

static void compare(struct rebuild_row *row, const struct reg_entry *known)
{
	if (!known || row->verdict == REBUILD_CONFLICT)
		return;
	if (known->intent != REG_NONE) {
		conflict(row, "a change of it is under way: wait for its end");
		return;
	}
	row->e.had_lids = known->had_lids;
	row->e.member_before = known->member_before;
	row->verdict = is_same(&row->e, known) ? REBUILD_SAME : REBUILD_CORRECT;
	if (row->verdict == REBUILD_CORRECT)
		snprintf(row->text, sizeof row->text,
			 "the registry has VM %.40s, VF %.60s of %.60s, LID %u", known->vm,
			 known->at.vf, known->at.host, known->lid);
}

static bool is_among(const struct rebuild *r, size_t count, uint64_t vguid)
{
	for (size_t i = 0; i < count; i++)
		if (r->row[i].e.vguid == vguid)
			return true;
	return false;
}

bool rebuild_enters(const struct rebuild *r, uint64_t vguid)
{
	for (size_t i = 0; i < r->count; i++)
		if (r->row[i].e.vguid == vguid)
			return r->row[i].verdict == REBUILD_ENTER ||
			       r->row[i].verdict == REBUILD_CORRECT;
	return false;
}

/* The entry that stays in the registry with the VF of this row, or NULL. */
static const struct reg_entry *find_stayer(const struct rebuild *r, const struct rebuild_row *row,
					   const struct reg_entry *known, size_t knowns)
{
	for (size_t i = 0; i < knowns; i++)
		if (known[i].at.parked_guid == row->e.at.parked_guid &&
		    known[i].vguid != row->e.vguid && !rebuild_enters(r, known[i].vguid))
			return &known[i];
	return NULL;
}

/* The registry has one vGUID a VF, and enters all rows or none. A row that is not entered leaves
 * its own VF to the registry's word, so another one may be in the way then. */
static void check_stayers(struct rebuild *r, const struct reg_entry *known, size_t knowns)
{
	bool again;

	do {
		again = false;
		for (size_t i = 0; i < r->count; i++) {
			struct rebuild_row *row = &r->row[i];
			const struct reg_entry *x = row->verdict == REBUILD_ENTER ||
								    row->verdict == REBUILD_CORRECT
							    ? find_stayer(r, row, known, knowns)
							    : NULL;

			if (!x)
				continue;
			conflict(row,
				 "the registry has this VF for vGUID 0x%016" PRIx64
				 " of VM %.40s: let that be released (ibvmig-sm reconcile "
				 "release), and rebuild again",
				 x->vguid, x->vm);
			again = true;
		}
	} while (again);
}

/* Adds vGUIDs of which no host has told. */
static int add_others(struct rebuild *r, const struct sm_home *home, size_t homes,
		      const struct reg_entry *known, size_t knowns)
{
	size_t told = r->count;
	struct rebuild_row *row;

	for (size_t i = 0; i < knowns; i++) {
		if (is_among(r, told, known[i].vguid))
			continue;
		if (!(row = add(r)))
			return -ENOMEM;
		row->e = known[i];
		row->verdict = REBUILD_LEFT;
		snprintf(row->text, sizeof row->text, "no host that answers has it");
	}
	for (size_t i = 0; i < homes; i++) {
		if (is_among(r, r->count, home[i].port_guid))
			continue;
		if (!(row = add(r)))
			return -ENOMEM;
		row->e.vguid = home[i].port_guid;
		row->e.lid = home[i].lid;
		row->e.at.parked_guid = home[i].parked_guid;
		conflict(row,
			 "OpenSM shows it at port %u of switch 0x%016" PRIx64
			 ", and no host that answers has it",
			 home[i].switch_port, home[i].switch_guid);
	}
	return 0;
}

int rebuild_judge(struct rebuild *r, const struct fabric *f, const struct sm_home *home,
		  size_t homes, const struct reg_entry *known, size_t knowns)
{
	for (size_t i = 0; i < r->count; i++)
		for (size_t k = 0; k < i; k++)
			check_pair(&r->row[k], &r->row[i]);
	for (size_t i = 0; i < r->count; i++) {
		struct rebuild_row *row = &r->row[i];

		if (f && row->e.mode == ADDRESS_SHARED_PORT)
			find_shared(row, f);
		else if (f)
			find_place(row, f, find_home(home, homes, row->e.vguid));
		compare(row, find_known(known, knowns, row->e.vguid));
	}
	check_stayers(r, known, knowns);
	return add_others(r, home, homes, known, knowns);
}
