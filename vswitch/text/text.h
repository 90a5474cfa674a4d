/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Fabrics and LFTs as text: what ibnetdiscover, ibsim and dump_lfts (dump_fts) read and write. */
#ifndef IBVMIG_VSWITCH_TEXT_TEXT_H
#define IBVMIG_VSWITCH_TEXT_TEXT_H

#include "vswitch/model/fabric.h"
#include "vswitch/text/notes.h"

#include <stdio.h>

#define TEXT_BYTES_MAX (1u << 30)
#define TEXT_LINE_MAX  1023

/* A topology file of ibnetdiscover (-g too), ibdiagnet or ibsim. Both ends must state a link, in
 * the same way; routers count as CAs. GUIDs that the file does not name are counted as ibsim does.
 * What is odd and changes no plan is left out, with a note (notes may be NULL). 0, or -EINVAL with
 * the line and the field in *e, -ENOMEM; then *ret_fabric is empty. */
int topo_read(const char *text, size_t bytes, struct fabric *ret_fabric, struct text_notes *notes,
	      struct fabric_error *e);

/* The tables of all switches, as dump_lfts, dump_fts or OpenSM (opensm-lfts.dump, opensm.fdbs)
 * print them; entries of a LID that nobody has are left out, with a note. Replaces the LFTs of f.
 * 0, or -EINVAL with the line and the field in *e, -ENOMEM; then f has no LFTs. */
int lfts_read(const char *text, size_t bytes, struct fabric *f, struct text_notes *notes,
	      struct fabric_error *e);
/* The same from a file of any size, of which SCAN_WINDOW bytes are in memory at a time. */
int lfts_read_file(FILE *in, struct fabric *f, struct text_notes *notes, struct fabric_error *e);

/* Writes the same forms, dump_lfts' for LFTs; the caller looks at ferror(). VFs that share their
 * PF's port have no place in a topology file and are left out. */
void topo_write(FILE *out, const struct fabric *f);
void lfts_write(FILE *out, const struct fabric *f);
/* The same in memory, owned by the caller; NULL without memory. */
char *topo_format(const struct fabric *f, size_t *ret_bytes);
char *lfts_format(const struct fabric *f, size_t *ret_bytes);

#endif
