/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/fabric/umad_guids.h"
#include "common/util.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define POLL_US 2000
#define UNDO_MS 5000 /* as the plugin's */

struct work {
	struct probe *m; /* borrowed, as slot and error */
	const struct sm_slot *slot;
	unsigned count;
	uint64_t own_guid, give_up_ms;
	uint16_t lid[SM_ASSIGN_MAX];    /* LID of a slot's port */
	uint64_t before[SM_ASSIGN_MAX]; /* contents of the slot's entry at first */
	uint64_t after[SM_ASSIGN_MAX];  /* wanted contents of the entry */
	unsigned writes;
	char *error;
};

static int fail(struct work *w, int rc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

static int fail(struct work *w, int rc, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(w->error, PROBE_ERROR_MAX, fmt, ap);
	va_end(ap);
	return rc;
}

static unsigned block_of(const struct sm_slot *s)
{
	return s->index / PROBE_GUID_BLOCK;
}

static bool same_block(const struct sm_slot *a, const struct sm_slot *b)
{
	return a->port_guid == b->port_guid && block_of(a) == block_of(b);
}

/* True if slot i is the first of those in its block: a block is read and written once, for all of
 * its slots. */
static bool is_first(const struct work *w, unsigned i)
{
	for (unsigned k = 0; k < i; k++)
		if (same_block(&w->slot[k], &w->slot[i]))
			return false;
	return true;
}

/* The LID that the SA's record has for a GUID; 0: none. */
static uint16_t sa_lid(struct work *w, uint64_t guid)
{
	const struct ib_gid from = {IB_GID_PREFIX_LL, w->own_guid}, to = {IB_GID_PREFIX_LL, guid};
	char ignored[PROBE_ERROR_MAX];
	struct probe_path path;

	return probe_path(w->m, 0, &from, &to, 0, &path, ignored) ? 0 : path.dlid;
}

static int read_block(struct work *w, unsigned i, uint64_t ret_guid[static PROBE_GUID_BLOCK])
{
	const struct sm_slot *s = &w->slot[i];

	return probe_guid_block(w->m, w->lid[i], s->port_guid, block_of(s), ret_guid, w->error);
}

/* True if a GUID that an entry shows may leave it. */
static bool is_expected(const struct work *w, unsigned i)
{
	uint64_t shown = w->before[i];

	if (!shown || shown == w->slot[i].was_guid)
		return true;
	for (unsigned k = 0; k < w->count; k++)
		if (w->slot[k].guid == shown)
			return true;
	return false;
}

static int find(struct work *w, unsigned i)
{
	const struct sm_slot *s = &w->slot[i];
	uint64_t shown[PROBE_GUID_BLOCK];
	int rc;

	w->after[i] = s->guid;
	if (!(w->lid[i] = sa_lid(w, s->port_guid)))
		return fail(w, -ENOENT, "the SA knows no path to port 0x%016" PRIx64, s->port_guid);
	if ((rc = read_block(w, i, shown)))
		return rc;
	w->before[i] = shown[s->index % PROBE_GUID_BLOCK];
	if (is_expected(w, i))
		return 0;
	return fail(w, -EEXIST,
		    "entry %u of port 0x%016" PRIx64 " shows 0x%016" PRIx64
		    ", which is somebody else's",
		    s->index, s->port_guid, w->before[i]);
}

/* The GUID leaves an entry of the batch, or no other port has it. */
static int check_free(struct work *w, unsigned i)
{
	uint64_t guid = w->slot[i].guid;
	uint16_t lid;

	for (unsigned k = 0; k < w->count; k++)
		if (w->before[k] == guid)
			return 0;
	lid = guid ? sa_lid(w, guid) : 0;
	if (!lid || lid == w->lid[i])
		return 0;
	return fail(w, -EEXIST, "GUID 0x%016" PRIx64 " belongs to the port with LID %u", guid, lid);
}

/* Asks the SA for a block of slot i's port; guid: what it has there in the end. */
static int write_block(struct work *w, unsigned i, bool set, uint8_t mask,
		       uint64_t guid[static PROBE_GUID_BLOCK])
{
	if (!mask)
		return 0;
	w->writes++;
	return probe_write_guids(w->m, w->lid[i], block_of(&w->slot[i]), set, mask, guid, w->error);
}

/* Asks for the entries that show something; entry 0 is the port's own GUID and needs no asking. */
static uint8_t shown_mask(const struct work *w, unsigned i, const uint64_t guid[])
{
	uint8_t mask = 0;

	for (unsigned k = 0; k < PROBE_GUID_BLOCK; k++)
		if (guid[k] && (k || block_of(&w->slot[i])))
			mask |= (uint8_t)(1 << k);
	return mask;
}

/* Waits until the port shows what it shall, in the entries of the batch. */
static int await(struct work *w, unsigned i, const uint64_t want[static PROBE_GUID_BLOCK])
{
	uint64_t shown[PROBE_GUID_BLOCK];
	int rc;

	while (!(rc = read_block(w, i, shown)) && memcmp(shown, want, sizeof shown) &&
	       now_ms() < w->give_up_ms)
		usleep(POLL_US);
	if (rc || !memcmp(shown, want, sizeof shown))
		return rc;
	return fail(w, -EIO,
		    "port 0x%016" PRIx64 " does not show what the SA was asked for in block %u",
		    w->slot[i].port_guid, block_of(&w->slot[i]));
}

/* Tells the SM which GUIDs leave a block. An SM that has been started anew does not know what the
 * port shows: it deletes nothing that it does not know, and writes all eight entries. So it is told
 * of them first. */
static int leave(struct work *w, unsigned i)
{
	uint64_t shown[PROBE_GUID_BLOCK], known[PROBE_GUID_BLOCK];
	uint8_t mask = 0;
	int rc = read_block(w, i, shown);

	if (rc)
		return rc;
	memcpy(known, shown, sizeof known);
	for (unsigned k = 0; k < w->count; k++) {
		unsigned at = w->slot[k].index % PROBE_GUID_BLOCK;

		if (same_block(&w->slot[k], &w->slot[i]) && shown[at] && shown[at] != w->after[k]) {
			mask |= (uint8_t)(1 << at);
			shown[at] = 0;
		}
	}
	if (!mask)
		return 0;
	rc = write_block(w, i, true, shown_mask(w, i, known), known);
	return rc || (rc = write_block(w, i, false, mask, known)) ? rc : await(w, i, shown);
}

/* True if port and SA agree on the block's slots. */
static bool is_so(struct work *w, unsigned i, const uint64_t shown[static PROBE_GUID_BLOCK])
{
	for (unsigned k = 0; k < w->count; k++)
		if (same_block(&w->slot[k], &w->slot[i]) && w->after[k] &&
		    (shown[w->slot[k].index % PROBE_GUID_BLOCK] != w->after[k] ||
		     sa_lid(w, w->after[k]) != w->lid[i]))
			return false;
	return true;
}

static int enter(struct work *w, unsigned i)
{
	uint64_t want[PROBE_GUID_BLOCK], got[PROBE_GUID_BLOCK];
	int rc = read_block(w, i, want);

	if (rc || is_so(w, i, want))
		return rc;
	for (unsigned k = 0; k < w->count; k++)
		if (same_block(&w->slot[k], &w->slot[i]))
			want[w->slot[k].index % PROBE_GUID_BLOCK] = w->after[k];
	memcpy(got, want, sizeof got);
	if ((rc = write_block(w, i, true, shown_mask(w, i, want), got)))
		return rc;
	for (unsigned k = 0; k < PROBE_GUID_BLOCK; k++)
		if (want[k] && got[k] != want[k])
			return fail(w, -EEXIST,
				    "GUID 0x%016" PRIx64
				    " belongs to another port, says the SA (asked for by port "
				    "0x%016" PRIx64 ")",
				    want[k], w->slot[i].port_guid);
	return await(w, i, want);
}

static int write_all(struct work *w)
{
	int rc = 0;

	for (unsigned i = 0; !rc && i < w->count; i++)
		if (is_first(w, i))
			rc = leave(w, i);
	for (unsigned i = 0; !rc && i < w->count; i++)
		if (is_first(w, i))
			rc = enter(w, i);
	return rc;
}

/* Makes all as it was; how that went goes into the error. */
static int take_back(struct work *w, int rc)
{
	char cause[PROBE_ERROR_MAX];
	bool back;

	if (!w->writes)
		return rc;
	snprintf(cause, sizeof cause, "%s", w->error);
	memcpy(w->after, w->before, sizeof w->after);
	w->give_up_ms = now_ms() + UNDO_MS;
	back = !write_all(w);
	return fail(w, back ? -EREMOTEIO : -EIO, "%.*s%s", PROBE_ERROR_MAX - 64, cause,
		    back ? "; taken back" : "; taking it back has failed, too");
}

int umad_guids_write(struct probe *m, const struct sm_slot *slots, unsigned count,
		     unsigned deadline_ms, struct sm_guids_reply *ret_reply, char *error)
{
	struct work w = {.m = m,
			 .slot = slots,
			 .count = count,
			 .give_up_ms = now_ms() + deadline_ms,
			 .error = error};
	int rc = probe_own_guid(m, &w.own_guid, error);

	for (unsigned i = 0; !rc && i < count; i++)
		rc = find(&w, i);
	for (unsigned i = 0; !rc && i < count; i++)
		rc = check_free(&w, i);
	if (rc)
		return rc;
	if ((rc = write_all(&w)))
		return take_back(&w, rc);
	ret_reply->guid_smps = w.writes;
	memcpy(ret_reply->before, w.before, sizeof w.before);
	memcpy(ret_reply->lid, w.lid, sizeof w.lid);
	return 0;
}
