/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "vswitch/text/text.h"
#include "common/ib.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* Writes one CA: the ports of a node stand next to each other. Returns the next one's first port.
 */
static uint32_t write_ca(FILE *out, const struct fabric *f, uint32_t first)
{
	const struct fabric_end *e = &f->end[first];
	unsigned ports = 0;
	uint32_t i;

	for (i = first; i < f->ends && f->end[i].node_guid == e->node_guid; i++)
		ports = f->end[i].port > ports ? f->end[i].port : ports;
	fprintf(out, "caguid=0x%" PRIx64 "\nCa\t%u \"H-%016" PRIx64 "\"\t\t# \"%s\"\n",
		e->node_guid, ports, e->node_guid, e->desc);
	for (i = first; i < f->ends && f->end[i].node_guid == e->node_guid; i++) {
		const struct fabric_switch *s = &f->sw[f->end[i].sw];

		fprintf(out,
			"[%u](%" PRIx64 ") \t\"S-%016" PRIx64
			"\"[%u]\t\t# lid %u lmc %u \"%s\" lid %u 4xEDR\n",
			f->end[i].port, f->end[i].port_guid, s->guid, f->end[i].sw_port,
			f->end[i].lid, f->end[i].lmc, s->desc, s->lid);
	}
	fputc('\n', out);
	return i;
}

static void write_switch(FILE *out, const struct fabric *f, const struct fabric_switch *s)
{
	fprintf(out,
		"switchguid=0x%" PRIx64 "(%" PRIx64 ")\nSwitch\t%u \"S-%016" PRIx64
		"\"\t\t# \"%s\" %s port 0 lid %u lmc %u\n",
		s->guid, s->guid, s->ports, s->guid, s->desc, s->lmc ? "enhanced" : "base", s->lid,
		s->lmc);
	for (unsigned p = 1; p <= s->ports; p++) {
		const struct fabric_peer *peer = &s->peer[p];

		if (peer->sw != FABRIC_NONE)
			fprintf(out, "[%u]\t\"S-%016" PRIx64 "\"[%u]\t\t# \"%s\" lid %u 4xEDR\n", p,
				f->sw[peer->sw].guid, peer->port, f->sw[peer->sw].desc,
				f->sw[peer->sw].lid);
		if (peer->end != FABRIC_NONE)
			fprintf(out,
				"[%u]\t\"H-%016" PRIx64 "\"[%u](%" PRIx64
				") \t\t# \"%s\" lid %u 4xEDR\n",
				p, f->end[peer->end].node_guid, f->end[peer->end].port,
				f->end[peer->end].port_guid, f->end[peer->end].desc,
				f->end[peer->end].lid);
	}
	fputc('\n', out);
}

void topo_write(FILE *out, const struct fabric *f)
{
	/* CAs first: ibsim's clients sit at the first node, unless they say where */
	for (uint32_t i = 0; i < f->ends;)
		i = f->end[i].sw != FABRIC_NONE && f->end[i].pf == FABRIC_NONE ? write_ca(out, f, i)
									       : i + 1;
	for (uint32_t i = 0; i < f->switches; i++)
		write_switch(out, f, &f->sw[i]);
}

static void write_entry(FILE *out, const struct fabric *f, unsigned lid, unsigned port)
{
	struct fabric_owner o = fabric_find_lid(f, lid);

	if (o.end != FABRIC_NONE)
		fprintf(out, "0x%04x %03u : (Channel Adapter portguid 0x%016" PRIx64 ": '%s')\n",
			lid, port, f->end[o.end].port_guid, f->end[o.end].desc);
	else if (o.sw != FABRIC_NONE)
		fprintf(out, "0x%04x %03u : (Switch portguid 0x%016" PRIx64 ": '%s')\n", lid, port,
			f->sw[o.sw].guid, f->sw[o.sw].desc);
	else
		fprintf(out, "0x%04x %03u : (unknown node and type)\n", lid, port);
}

void lfts_write(FILE *out, const struct fabric *f)
{
	unsigned top = fabric_top_lid(f);

	for (uint32_t i = 0; i < f->switches; i++) {
		unsigned last = f->sw[i].lft_blocks * IB_LFT_BLOCK, count = 0;

		fprintf(out,
			"Unicast lids [0x0-0x%x] of switch Lid %u guid 0x%016" PRIx64
			" (%s):\n  Lid  Out   Destination\n       Port     Info \n",
			last && top < last ? top
			: last             ? last - 1
					   : 0,
			f->sw[i].lid, f->sw[i].guid, f->sw[i].desc);
		for (unsigned lid = 0; lid < last; lid++) {
			int port = fabric_lft_entry(f, i, (uint16_t)lid);

			if (port < 0 || port == VSWITCH_NO_PATH || lid > top)
				continue;
			write_entry(out, f, lid, (unsigned)port);
			count++;
		}
		fprintf(out, "%u valid lids dumped \n", count);
	}
}

static char *format(const struct fabric *f, void (*write)(FILE *, const struct fabric *),
		    size_t *ret_bytes)
{
	char *text = NULL;
	FILE *out = open_memstream(&text, ret_bytes);
	bool bad;

	if (!out)
		return NULL;
	write(out, f);
	bad = ferror(out);
	if (fclose(out) || bad) {
		free(text);
		return NULL;
	}
	return text;
}

char *topo_format(const struct fabric *f, size_t *ret_bytes)
{
	return format(f, topo_write, ret_bytes);
}

char *lfts_format(const struct fabric *f, size_t *ret_bytes)
{
	return format(f, lfts_write, ret_bytes);
}
