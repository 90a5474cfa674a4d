/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Fabrics and LFTs as text: what ibnetdiscover, ibsim and dump_lfts (dump_fts) read and write. */
#ifndef IBVMIG_VSWITCH_TEXT_TEXT_H
#define IBVMIG_VSWITCH_TEXT_TEXT_H

#include "vswitch/model/fabric.h"

#define TEXT_BYTES_MAX (1u << 30)
#define TEXT_LINE_MAX  1023

/* A topology file of ibnetdiscover or ibsim. Both ends must state a link, in the same way; routers
 * count as CAs. GUIDs that the file does not name are counted as ibsim does. 0, or -EINVAL with the
 * line and the field in *e, -ENOMEM; then *ret_fabric is empty. */
int topo_read(const char *text, size_t bytes, struct fabric *ret_fabric, struct fabric_error *e);

/* The tables of all switches, as dump_lfts prints them; each LID that is sent somewhere must be
 * somebody's. Replaces the LFTs of f. 0, or -EINVAL with the line and the field in *e, -ENOMEM;
 * then f has no LFTs. */
int lfts_read(const char *text, size_t bytes, struct fabric *f, struct fabric_error *e);

/* The same forms, owned by the caller; NULL without memory. VFs that share their PF's port have no
 * place in a topology file and are left out. */
char *topo_format(const struct fabric *f, size_t *ret_bytes);
char *lfts_format(const struct fabric *f, size_t *ret_bytes);

#endif
