/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/plugin/distinguisher/differ.h"
#include "common/util.h"

#include <stdlib.h>

#define NOWHERE UINT32_MAX

static unsigned units(const struct look *l, enum look_unit unit)
{
	return unit == LOOK_SWITCH ? l->switches : unit == LOOK_PORT ? l->ports : 0;
}

unsigned look_rows(const struct look *l)
{
	return units(l, l->rows);
}

unsigned look_columns(const struct look *l)
{
	return units(l, l->columns);
}

size_t look_bytes(const struct look *l)
{
	return l->switches * sizeof *l->sw + l->ports * sizeof *l->port +
	       (l->cell ? (size_t)look_rows(l) * look_columns(l) * sizeof *l->cell : 0);
}

void look_clear(struct look *l)
{
	free(l->sw);
	free(l->port);
	free(l->cell);
	*l = (struct look){0};
}

void diff_clear(struct diff *d)
{
	free(d->list);
	*d = (struct diff){0};
}

bool diff_quiet(const struct diff *d)
{
	return !d->changed && !d->all && !d->ports_changed && !d->gone && !d->back;
}

void diff_list(struct diff *d, const struct sm_change *c)
{
	size_t room = d->room ? 2 * d->room : 1024;
	struct sm_change *grown;

	if (d->listed == d->room) {
		if (d->room >= DIFF_LIST_MAX || !(grown = realloc(d->list, room * sizeof *grown)))
			return;
		d->list = grown;
		d->room = room;
	}
	d->list[d->listed++] = *c;
}

static uint64_t guid_of(const struct look *l, enum look_unit unit, uint32_t i)
{
	return unit == LOOK_SWITCH ? l->sw[i] : l->port[i].guid;
}

/* For each unit of `is`, its index in `was`, or NOWHERE. Both are in the order of their GUIDs. */
static uint32_t *match(const struct look *was, const struct look *is, enum look_unit unit)
{
	uint32_t n = units(is, unit), m = units(was, unit), k = 0;
	uint32_t *at = malloc((n + 1) * sizeof *at);

	for (uint32_t i = 0; at && i < n; i++) {
		uint64_t guid = guid_of(is, unit, i);

		while (k < m && guid_of(was, unit, k) < guid)
			k++;
		at[i] = k < m && guid_of(was, unit, k) == guid ? k : NOWHERE;
	}
	return at;
}

static void note_port(struct diff *d, enum sm_change_kind kind, const struct look_port *p)
{
	diff_list(d, &(struct sm_change){
			     .kind = (uint8_t)kind, .to = p->guid, .mtu = p->mtu, .rate = p->rate});
}

static bool same_port(const struct look *was, const struct look_port *a, const struct look *is,
		      const struct look_port *b)
{
	return a->lid == b->lid && a->mtu == b->mtu && a->rate == b->rate && a->rules == b->rules &&
	       was->sw[a->sw] == is->sw[b->sw];
}

static void differ_ports(const struct look *was, const struct look *is, struct diff *d)
{
	unsigned i = 0, k = 0;

	while (i < was->ports || k < is->ports) {
		const struct look_port *a = i < was->ports ? &was->port[i] : NULL;
		const struct look_port *b = k < is->ports ? &is->port[k] : NULL;

		if (!b || (a && a->guid < b->guid)) {
			d->gone++;
			note_port(d, SM_CHANGE_GONE, a);
			i++;
		} else if (!a || b->guid < a->guid) {
			d->back++;
			note_port(d, SM_CHANGE_BACK, b);
			k++;
		} else {
			if (!same_port(was, a, is, b)) {
				d->ports_changed++;
				note_port(d, SM_CHANGE_PORT, b);
			}
			i++;
			k++;
		}
	}
}

static void note_pair(struct diff *d, const struct look *is, uint32_t row, uint32_t column,
		      uint16_t was, uint16_t now)
{
	bool none = now == LOOK_CELL_NONE;

	d->changed++;
	diff_list(d, &(struct sm_change){.from = guid_of(is, is->rows, row),
					 .to = guid_of(is, is->columns, column),
					 .kind = is->rows == LOOK_PORT      ? SM_CHANGE_PORTS
						 : is->columns == LOOK_PORT ? SM_CHANGE_SWITCH_PORT
									    : SM_CHANGE_SWITCHES,
					 .none = none,
					 .sl_was = LOOK_CELL_SL(was),
					 .sl = none ? 0 : LOOK_CELL_SL(now),
					 .mtu = none ? 0 : LOOK_CELL_MTU(now),
					 .rate = none ? 0 : LOOK_CELL_RATE(now)});
}

/* Rows and columns are matched; a unit has no path to itself. */
static void differ_cells(const struct look *was, const struct look *is, const uint32_t *row_at,
			 const uint32_t *column_at, struct diff *d)
{
	unsigned rows = look_rows(is), columns = look_columns(is), old_rows = look_rows(was);

	for (uint32_t c = 0; c < columns; c++) {
		const uint16_t *now = is->cell + (size_t)c * rows;
		const uint16_t *old = was->cell + (size_t)column_at[c] * old_rows;

		if (column_at[c] == NOWHERE)
			continue;
		for (uint32_t r = 0; r < rows; r++) {
			if (row_at[r] == NOWHERE || (is->rows == is->columns && r == c))
				continue;
			d->pairs++;
			if (now[r] != old[row_at[r]])
				note_pair(d, is, r, c, old[row_at[r]], now[r]);
		}
	}
}

void look_differ(const struct look *was, const struct look *is, struct diff *ret_diff)
{
	uint32_t *row_at AUTO_FREE = match(was, is, is->rows);
	uint32_t *column_at AUTO_FREE = match(was, is, is->columns);

	*ret_diff = (struct diff){0};
	differ_ports(was, is, ret_diff);
	ret_diff->all = !was->whole || !is->whole || was->rules != is->rules ||
			was->rows != is->rows || was->columns != is->columns || !row_at ||
			!column_at;
	if (!ret_diff->all && is->rows != LOOK_NONE)
		differ_cells(was, is, row_at, column_at, ret_diff);
}
