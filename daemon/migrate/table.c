/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The table of the migration's states: who acts, how long, what it runs, how it is undone. */
#include "common/util.h"
#include "daemon/migrate/step.h"
#include "daemon/migrate/src.h"

#define SRC ROLE_SOURCE
#define DST ROLE_DESTINATION

/* Order within a role is the way forward; walking back goes up. */
static const struct migrate_row table[] = {
	/* state, actor, deadline_ms, run, phases, undo, next */
	{M_PREPARE, SRC, 75000, src_prepare, NULL, src_prepare_undo, M_HOLD},
	{M_HOLD, SRC, 0, NULL, src_hold, src_hold_undo, M_QUIESCE},
	{M_QUIESCE, SRC, 20000, src_quiesce, NULL, src_quiesce_undo, M_DETACH},
	{M_DETACH, SRC, 15000, NULL, src_detach, src_detach_undo, M_SWITCH},
	{M_SAVED, SRC, 0, src_saved, NULL, NULL, M_SWITCH},
	{M_SWITCH, SRC, 45000, NULL, src_switch, src_switch_undo, M_ATTACH},
	{M_ATTACH, SRC, 0, src_attach, NULL, NULL, M_RESUME},
	{M_RESUME, SRC, 0, NULL, src_resume, NULL, M_DONE},
	{M_DONE, SRC, 0, NULL, NULL, NULL, M_DONE},
	{M_CANCEL, SRC, 60000, src_cancel, NULL, NULL, M_CANCEL},
	{M_ABORTED, SRC, 0, NULL, NULL, NULL, M_ABORTED},
	{M_PARKED, SRC, 0, NULL, NULL, NULL, M_PARKED},
	{M_PREPARE, DST, 60000, dst_prepare, NULL, dst_prepare_undo, M_SWITCH},
	{M_SWITCH, DST, 40000, dst_switch, NULL, dst_switch_undo, M_ATTACH},
	{M_ATTACH, DST, 0, dst_attach, NULL, NULL, M_RESUME},
	{M_RESUME, DST, 60000, dst_resume, NULL, NULL, M_DONE},
	{M_DONE, DST, 0, NULL, NULL, NULL, M_DONE},
	{M_ABORTED, DST, 0, NULL, NULL, NULL, M_ABORTED},
	{M_PARKED, DST, 0, NULL, NULL, NULL, M_PARKED},
};

static const struct migrate_watch watch = {
	.missing = src_name_missing,
	.look = migrate_look,
	.probe = recover_probe,
	.give_up = cold_give_up,
	.release = cold_release,
};

void migrate_use_table(void)
{
	migrate_set_table(table, ARRAY_SIZE(table), &watch);
}

void migrate_load_open(struct daemon *d)
{
	migrate_use_table();
	recover_load(d);
}

/* ---- ibvmigd --dump-states ---- */

static void dump_table(FILE *out)
{
	fprintf(out, "%-12s %-8s %8s %-8s %s\n", "actor", "state", "deadline", "next", "undo");
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		const struct migrate_row *r = &table[i];
		char deadline[16] = "-";

		if (r->deadline_ms)
			snprintf(deadline, sizeof deadline, "%u s", r->deadline_ms / 1000);
		fprintf(out, "%-12s %-8s %8s %-8s %s\n", migrate_role_name(r->actor),
			migrate_state_name(r->state), deadline,
			migrate_row_is_end(r) ? "-" : migrate_state_name(r->next),
			r->undo ? "yes" : "-");
	}
}

/* The way forward, and below it the way back. */
static void dump_ways(FILE *out, enum migrate_role role)
{
	const struct migrate_row *r = migrate_row(role, M_PREPARE);

	fprintf(out, "%-12s ", migrate_role_name(role));
	for (; !migrate_row_is_end(r); r = migrate_row(role, r->next))
		fprintf(out, "%s %s ", migrate_state_name(r->state),
			r->state == M_ATTACH ? "─COMMIT→" : "→");
	fprintf(out, "%s\n%-12s ABORTED", migrate_state_name(r->state), "");
	for (r = table; r < table + ARRAY_SIZE(table); r++)
		if (r->actor == role && r->undo)
			fprintf(out, " ← %s", migrate_state_name(r->state));
	fprintf(out, "%s\n", migrate_row(role, M_CANCEL) ? " ← CANCEL" : "");
}

void migrate_dump_states(FILE *out)
{
	migrate_use_table();
	dump_table(out);
	fputc('\n', out);
	dump_ways(out, SRC);
	dump_ways(out, DST);
}
