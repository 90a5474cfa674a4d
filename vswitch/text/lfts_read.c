/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The reader of LFT dumps. A table of dump_lfts is whole if it has as many entries as its end says.
 * OpenSM's end says the highest LID, and its fdbs have no end but name every LID. */
#include "vswitch/text/scan.h"
#include "vswitch/text/text.h"
#include "common/ib.h"
#include "common/util.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

enum dump_form {
	DUMP_IBROUTE, /* dump_lfts, dump_fts */
	DUMP_OPENSM,  /* opensm-lfts.dump: the range is decimal */
	DUMP_FDBS,    /* opensm.fdbs, ibdiagnet.fdbs */
	DUMP_MULTICAST,
};

struct dump {
	struct scan scan;
	struct fabric *f;
	bool *seen;   /* owned; per switch */
	uint8_t *row; /* owned; the table at hand */
	bool *said;   /* owned; which of its LIDs have been */
	enum dump_form form;
	uint32_t sw;  /* FABRIC_NONE: between tables */
	unsigned top; /* the table's last LID */
	unsigned count, tables;
};

static int keep_table(struct dump *d)
{
	int rc = 0;

	for (unsigned b = 0; !rc && b <= d->top / IB_LFT_BLOCK; b++)
		rc = fabric_set_lft(d->f, d->sw, b, d->row + (size_t)b * IB_LFT_BLOCK);
	d->sw = FABRIC_NONE;
	return rc ? fabric_fail(d->scan.e, rc, "no memory") : 0;
}

/* The next table or the end of the text ends a table of fdbs: it is whole if it names every LID. */
static int end_fdbs(struct dump *d)
{
	unsigned top = fabric_top_lid(d->f);

	if (d->sw == FABRIC_NONE || d->form != DUMP_FDBS)
		return 0;
	for (unsigned lid = 1; lid <= top; lid++) {
		struct fabric_owner o = fabric_find_lid(d->f, lid);

		if ((o.sw != FABRIC_NONE || o.end != FABRIC_NONE) && !d->said[lid])
			return scan_fail(&d->scan,
					 "LID %u is missing in the table of switch %s: the text "
					 "is not whole, or older than the topology",
					 lid, d->f->sw[d->sw].desc);
	}
	return keep_table(d);
}

/* The GUID of the switch; the form and the last LID are known. */
static int begin_table(struct dump *d)
{
	struct scan *s = &d->scan;
	uint64_t guid;

	if (!scan_number(s, 16, UINT64_MAX, &guid))
		return scan_fail(s, "the GUID of the switch is missing");
	d->sw = fabric_find_switch(d->f, guid);
	if (d->sw == FABRIC_NONE)
		return scan_fail(s,
				 "no switch has GUID 0x%016" PRIx64
				 ": the topology must be of the same time",
				 guid);
	if (d->seen[d->sw])
		return scan_fail(s, "a second table of switch %s", d->f->sw[d->sw].desc);
	d->seen[d->sw] = true;
	d->count = 0;
	d->tables++;
	memset(d->row, VSWITCH_NO_PATH, IB_LID_UCAST_MAX + 1);
	memset(d->said, 0, IB_LID_UCAST_MAX + 1);
	return 0;
}

/* "[0x0-0xb]", or "[0-11]" of OpenSM, whose numbers are decimal. */
static int read_range(struct dump *d)
{
	struct scan *s = &d->scan;
	uint64_t first, last;
	unsigned base;

	if (!scan_word(s, "["))
		return scan_fail(s, "the range of LIDs is missing");
	base = s->stop - s->at > 2 && !memcmp(s->at, "0x", 2) ? 16 : 10;
	if (!scan_number(s, base, 0xffff, &first) || !scan_word(s, "-") ||
	    !scan_number(s, base, 0xffff, &last) || !scan_word(s, "]"))
		return scan_fail(s, "the range of LIDs is missing");
	if (first || last > IB_LID_UCAST_MAX)
		return scan_fail(s,
				 "LIDs 0x%" PRIx64 " to 0x%" PRIx64
				 ": a whole table, 0 to at most 0x%x, is needed",
				 first, last, IB_LID_UCAST_MAX);
	d->form = base == 16 ? DUMP_IBROUTE : DUMP_OPENSM;
	d->top = (unsigned)last;
	return 0;
}

/* "Unicast lids [0x0-0xb] of switch DR path slid 0; dlid 0; 0,1 guid 0x0000000000200001 (leaf1):"
 */
static int read_head(struct dump *d)
{
	struct scan *s = &d->scan;
	int rc = read_range(d);

	if (rc)
		return rc;
	if (!scan_find(s, " guid "))
		return scan_fail(s, "the GUID of the switch is missing");
	return begin_table(d);
}

/* The port of an entry: "010 :", "010 #", or of fdbs ": 010  : 00   : yes", ": UNREACHABLE". */
static bool read_port(struct dump *d, uint64_t *ret_port)
{
	struct scan *s = &d->scan;
	bool fdbs = d->form == DUMP_FDBS;

	scan_blanks(s);
	if (fdbs && !scan_word(s, ":"))
		return false;
	scan_blanks(s);
	*ret_port = VSWITCH_NO_PATH;
	if (fdbs && scan_word(s, "UNREACHABLE"))
		return true;
	if (!scan_number(s, 10, 255, ret_port))
		return false;
	scan_blanks(s);
	if (fdbs && !scan_word(s, ":"))
		return false; /* a port may be cut short */
	if (scan_find(s, "illegal port)"))
		*ret_port = VSWITCH_NO_PATH;
	return true;
}

/* A LID that stands again in the table, with the same port or another one. */
static int read_again(struct dump *d, unsigned lid, unsigned port)
{
	struct fabric_owner o = fabric_find_lid(d->f, lid);
	bool owned = o.sw != FABRIC_NONE || o.end != FABRIC_NONE;

	if (owned && d->row[lid] != port)
		return scan_fail(&d->scan,
				 "LID %u is twice in the table, with port %u and with port %u", lid,
				 d->row[lid], port);
	notes_add(d->scan.notes, d->scan.line, "LID %u is twice in the table, with one port", lid);
	return 0;
}

static int keep_entry(struct dump *d, unsigned lid, unsigned port)
{
	struct scan *s = &d->scan;
	struct fabric_owner o = fabric_find_lid(d->f, lid);

	if (port != VSWITCH_NO_PATH && port > d->f->sw[d->sw].ports)
		return scan_fail(s, "LID %u: port %u is beyond the %u of switch %s", lid, port,
				 d->f->sw[d->sw].ports, d->f->sw[d->sw].desc);
	if (port != VSWITCH_NO_PATH && o.sw == FABRIC_NONE && o.end == FABRIC_NONE) {
		notes_add(s->notes, s->line,
			  "LID %u (port %u of switch %s) is nobody's in the topology: left out",
			  lid, port, d->f->sw[d->sw].desc);
		port = VSWITCH_NO_PATH;
	}
	d->said[lid] = true;
	d->row[lid] = (uint8_t)port;
	d->count++;
	return 0;
}

/* "0x0001 010 : (...)" */
static int read_entry(struct dump *d)
{
	struct scan *s = &d->scan;
	uint64_t lid, port;

	if (d->form == DUMP_MULTICAST)
		return 0;
	if (d->sw == FABRIC_NONE)
		return scan_fail(s, "an entry without a table above it");
	if (!scan_number(s, 16, 0xffff, &lid))
		return scan_fail(s, "a LID is missing");
	if (!read_port(d, &port))
		return scan_fail(s, "LID %" PRIu64 ": the port must be 0 to 255", lid);
	if (d->form == DUMP_FDBS && lid > d->top && lid <= IB_LID_UCAST_MAX)
		d->top = (unsigned)lid;
	if (lid > d->top)
		return scan_fail(s, "LID %" PRIu64 " is beyond the table, which ends at %u", lid,
				 d->top);
	if (d->said[lid])
		return read_again(d, (unsigned)lid, (unsigned)port);
	return keep_entry(d, (unsigned)lid, (unsigned)port);
}

/* "11 valid lids dumped"; OpenSM says the highest LID in place of the count. */
static int read_end(struct dump *d, uint64_t count)
{
	struct scan *s = &d->scan;

	if (d->sw == FABRIC_NONE || d->form == DUMP_FDBS)
		return scan_fail(s, "the end of a table that did not begin");
	if (d->form == DUMP_OPENSM && count != d->top)
		return scan_fail(s, "LIDs of switch %s go to %u, and %" PRIu64 " is said here",
				 d->f->sw[d->sw].desc, d->top, count);
	if (d->form == DUMP_IBROUTE && count != d->count)
		return scan_fail(s, "%" PRIu64 " entries of switch %s are counted, %u are there",
				 count, d->f->sw[d->sw].desc, d->count);
	return keep_table(d);
}

/* The head of a table, of which the last one has to be whole. */
static int read_any_head(struct dump *d, int (*read)(struct dump *))
{
	int rc = end_fdbs(d);

	if (rc)
		return rc;
	if (d->sw != FABRIC_NONE)
		return scan_fail(&d->scan, "the table of switch %s has no end",
				 d->f->sw[d->sw].desc);
	d->form = DUMP_IBROUTE;
	return read(d);
}

/* "osm_ucast_mgr_dump_ucast_routes: Switch 0x0000000000200001", with a prefix or none. */
static int read_fdbs_head(struct dump *d)
{
	d->form = DUMP_FDBS;
	d->top = 0;
	return begin_table(d);
}

/* "Multicast mlids [0xc000-0xc003] of switch ..." */
static int read_multicast_head(struct dump *d)
{
	notes_add(d->scan.notes, d->scan.line, "a table of multicast LIDs: left out");
	d->form = DUMP_MULTICAST;
	return 0;
}

static int read_line(struct dump *d)
{
	static const char *const ignored[] = {"#", "Lid  Out", "Port     Info", "LID    : Port"};
	struct scan *s = &d->scan;
	struct scan from;
	uint64_t count;

	if (scan_done(s))
		return 0;
	for (unsigned i = 0; i < ARRAY_SIZE(ignored); i++)
		if (scan_word(s, ignored[i]))
			return 0;
	if (scan_word(s, "Unicast lids "))
		return read_any_head(d, read_head);
	if (scan_word(s, "Multicast mlids "))
		return read_any_head(d, read_multicast_head);
	if (scan_find(s, "dump_ucast_routes: Switch "))
		return read_any_head(d, read_fdbs_head);
	if (s->stop - s->at > 2 && !memcmp(s->at, "0x", 2))
		return read_entry(d);
	from = *s;
	if (d->form != DUMP_MULTICAST && scan_number(s, 10, UINT32_MAX, &count) &&
	    (scan_word(s, " valid lids dumped") || scan_word(s, " lids dumped")))
		return read_end(d, count);
	if (d->form != DUMP_MULTICAST)
		scan_skip(&from);
	return 0;
}

static int read_all(struct dump *d)
{
	int rc = 0, more = 1;

	while (!rc && (more = scan_line(&d->scan)) > 0)
		rc = read_line(d);
	rc = rc ? rc : more;
	rc = rc ? rc : end_fdbs(d);
	if (!rc && d->sw != FABRIC_NONE)
		rc = scan_fail(&d->scan, "the text ends within the table of switch %s",
			       d->f->sw[d->sw].desc);
	if (!rc && d->f->switches && !d->tables)
		rc = scan_fail(&d->scan, "no table in the whole text: dumps of dump_lfts, dump_fts "
					 "and OpenSM (opensm-lfts.dump, opensm.fdbs) are read");
	for (uint32_t i = 0; !rc && i < d->f->switches; i++)
		if (!d->seen[i])
			rc = scan_fail(&d->scan, "there is no table of switch %s",
				       d->f->sw[i].desc);
	return rc;
}

static int read_dump(struct dump *d)
{
	struct fabric *f = d->f;
	int rc;

	d->sw = FABRIC_NONE;
	d->seen = calloc(f->switches + 1u, 1);
	d->row = malloc(IB_LID_UCAST_MAX + 1);
	d->said = malloc(IB_LID_UCAST_MAX + 1);
	fabric_forget_lfts(f);
	if (d->seen && d->row && d->said)
		rc = read_all(d);
	else
		rc = fabric_fail(d->scan.e, -ENOMEM, "no memory");
	free(d->seen);
	free(d->row);
	free(d->said);
	if (rc)
		fabric_forget_lfts(f);
	return rc;
}

int lfts_read(const char *text, size_t bytes, struct fabric *f, struct text_notes *notes,
	      struct fabric_error *e)
{
	struct dump d = {.scan = {.text = text, .end = text + bytes, .notes = notes, .e = e},
			 .f = f};

	return read_dump(&d);
}

int lfts_read_file(FILE *in, struct fabric *f, struct text_notes *notes, struct fabric_error *e)
{
	char *window AUTO_FREE = malloc(SCAN_WINDOW);
	struct dump d = {.scan = {.text = window,
				  .end = window,
				  .in = in,
				  .window = window,
				  .notes = notes,
				  .e = e},
			 .f = f};

	if (!window)
		return fabric_fail(e, -ENOMEM, "no memory");
	return read_dump(&d);
}
