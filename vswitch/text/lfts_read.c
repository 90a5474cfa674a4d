/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The reader of LFT dumps. The number of entries at the end of each table shows that it is whole.
 */
#include "vswitch/text/scan.h"
#include "vswitch/text/text.h"
#include "common/ib.h"
#include "common/util.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

struct dump {
	struct scan scan;
	struct fabric *f;
	bool *seen;   /* owned; per switch */
	uint8_t *row; /* owned; the table at hand */
	bool *said;   /* owned; which of its LIDs have been */
	uint32_t sw;  /* FABRIC_NONE: between tables */
	unsigned top; /* the table's last LID */
	unsigned count;
};

/* "Unicast lids [0x0-0xb] of switch DR path slid 0; dlid 0; 0,1 guid 0x0000000000200001 (leaf1):"
 */
static int read_head(struct dump *d)
{
	struct scan *s = &d->scan;
	uint64_t first, last, guid;

	if (d->sw != FABRIC_NONE)
		return scan_fail(s, "the table of switch %s has no end", d->f->sw[d->sw].desc);
	if (!scan_word(s, "[") || !scan_number(s, 16, 0xffff, &first) || !scan_word(s, "-") ||
	    !scan_number(s, 16, 0xffff, &last) || !scan_word(s, "]"))
		return scan_fail(s, "the range of LIDs is missing");
	if (first || last > IB_LID_UCAST_MAX)
		return scan_fail(s,
				 "LIDs 0x%" PRIx64 " to 0x%" PRIx64
				 ": a whole table, 0 to at most 0x%x, is needed",
				 first, last, IB_LID_UCAST_MAX);
	if (!scan_find(s, " guid ") || !scan_number(s, 16, UINT64_MAX, &guid))
		return scan_fail(s, "the GUID of the switch is missing");
	d->sw = fabric_find_switch(d->f, guid);
	if (d->sw == FABRIC_NONE)
		return scan_fail(s, "no switch has GUID 0x%016" PRIx64, guid);
	if (d->seen[d->sw])
		return scan_fail(s, "a second table of switch %s", d->f->sw[d->sw].desc);
	d->seen[d->sw] = true;
	d->top = (unsigned)last;
	d->count = 0;
	memset(d->row, VSWITCH_NO_PATH, IB_LID_UCAST_MAX + 1);
	memset(d->said, 0, IB_LID_UCAST_MAX + 1);
	return 0;
}

/* "0x0001 010 : (...)" */
static int read_entry(struct dump *d)
{
	struct scan *s = &d->scan;
	struct fabric_owner o;
	uint64_t lid, port;

	if (d->sw == FABRIC_NONE)
		return scan_fail(s, "an entry without a table above it");
	if (!scan_number(s, 16, 0xffff, &lid))
		return scan_fail(s, "a LID is missing");
	scan_blanks(s);
	if (!scan_number(s, 10, 255, &port))
		return scan_fail(s, "LID %" PRIu64 ": the port must be 0 to 255", lid);
	if (lid > d->top)
		return scan_fail(s, "LID %" PRIu64 " is beyond the table, which ends at %u", lid,
				 d->top);
	if (port != VSWITCH_NO_PATH && port > d->f->sw[d->sw].ports)
		return scan_fail(s,
				 "LID %" PRIu64 ": port %" PRIu64 " is beyond the %u of switch %s",
				 lid, port, d->f->sw[d->sw].ports, d->f->sw[d->sw].desc);
	if (d->said[lid])
		return scan_fail(s, "LID %" PRIu64 " is twice in the table", lid);
	o = fabric_find_lid(d->f, (unsigned)lid);
	if (port != VSWITCH_NO_PATH && o.sw == FABRIC_NONE && o.end == FABRIC_NONE)
		return scan_fail(s, "LID %" PRIu64 " is nobody's in the topology", lid);
	d->said[lid] = true;
	d->row[lid] = (uint8_t)port;
	d->count++;
	return 0;
}

/* "11 valid lids dumped" */
static int read_end(struct dump *d)
{
	struct scan *s = &d->scan;
	uint64_t count;
	int rc = 0;

	if (d->sw == FABRIC_NONE)
		return scan_fail(s, "the end of a table that did not begin");
	if (!scan_number(s, 10, UINT32_MAX, &count) || !scan_find(s, "lids dumped"))
		return scan_fail(s, "not understood");
	if (count != d->count)
		return scan_fail(s, "%" PRIu64 " entries of switch %s are counted, %u are there",
				 count, d->f->sw[d->sw].desc, d->count);
	for (unsigned b = 0; !rc && b <= d->top / IB_LFT_BLOCK; b++)
		rc = fabric_set_lft(d->f, d->sw, b, d->row + (size_t)b * IB_LFT_BLOCK);
	d->sw = FABRIC_NONE;
	return rc ? fabric_fail(s->e, rc, "no memory") : 0;
}

static int read_line(struct dump *d)
{
	struct scan *s = &d->scan;

	if (scan_done(s) || scan_word(s, "#") || scan_word(s, "Lid  Out") ||
	    scan_word(s, "Port     Info"))
		return 0;
	if (scan_word(s, "Unicast lids "))
		return read_head(d);
	if (s->stop - s->at > 2 && !memcmp(s->at, "0x", 2))
		return read_entry(d);
	return read_end(d);
}

static int read_all(struct dump *d)
{
	int rc = 0, more = 1;

	while (!rc && (more = scan_line(&d->scan)) > 0)
		rc = read_line(d);
	rc = rc ? rc : more;
	if (!rc && d->sw != FABRIC_NONE)
		rc = scan_fail(&d->scan, "the text ends within the table of switch %s",
			       d->f->sw[d->sw].desc);
	for (uint32_t i = 0; !rc && i < d->f->switches; i++)
		if (!d->seen[i])
			rc = scan_fail(&d->scan, "there is no table of switch %s",
				       d->f->sw[i].desc);
	return rc;
}

int lfts_read(const char *text, size_t bytes, struct fabric *f, struct fabric_error *e)
{
	struct dump d = {
		.scan = {.text = text, .end = text + bytes, .e = e}, .f = f, .sw = FABRIC_NONE};
	int rc = bytes > TEXT_BYTES_MAX ? scan_fail(&d.scan, "more than 1 GiB") : 0;

	d.seen = calloc(f->switches + 1u, 1);
	d.row = malloc(IB_LID_UCAST_MAX + 1);
	d.said = malloc(IB_LID_UCAST_MAX + 1);
	fabric_forget_lfts(f);
	if (!d.seen || !d.row || !d.said)
		rc = fabric_fail(e, -ENOMEM, "no memory");
	rc = rc ? rc : read_all(&d);
	free(d.seen);
	free(d.row);
	free(d.said);
	if (rc)
		fabric_forget_lfts(f);
	return rc;
}
