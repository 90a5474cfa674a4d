/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/report/timeline.h"
#include "common/json.h"
#include "common/util.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#define TEXT_MAX 96

/* A phase of a half: where it began on the common clock; 0 if it was never reached. */
struct half {
	struct json_object *record, *data; /* borrowed */
	int64_t shift_us;                  /* to be added to the half's own clock */
	struct json_object *lane;          /* borrowed from the result */
};

struct timeline {
	struct json_object *lanes; /* borrowed from the result */
	struct half src, dst;
	int64_t start_us, end_us,
		now_us; /* common clock, start_us being the zero of what is told */
};

static struct json_object *lane_add(struct timeline *t, const char *name, const char *kind)
{
	struct json_object *lane = json_object_new_object();

	json_set_str(lane, "name", name);
	json_set_str(lane, "kind", kind);
	json_set(lane, "spans", json_object_new_array());
	json_set(lane, "marks", json_object_new_array());
	json_object_array_add(t->lanes, lane);
	return lane;
}

/* Times on the common clock; an end before the start is none. */
static void span_add(struct timeline *t, struct json_object *lane, const char *name, int64_t start,
		     int64_t end, const char *fmt, ...) __attribute__((format(printf, 6, 7)));

static void span_add(struct timeline *t, struct json_object *lane, const char *name, int64_t start,
		     int64_t end, const char *fmt, ...)
{
	struct json_object *o;
	char detail[TEXT_MAX * 2] = "";
	va_list ap;

	if (!lane || !start || end < start)
		return;
	o = json_object_new_object();
	json_set_str(o, "name", name);
	json_set(o, "start_us", json_object_new_int64(start - t->start_us));
	json_set(o, "end_us", json_object_new_int64(end - t->start_us));
	va_start(ap, fmt);
	if (fmt)
		vsnprintf(detail, sizeof detail, fmt, ap);
	va_end(ap);
	if (*detail)
		json_set_str(o, "detail", detail);
	json_object_array_add(json_opt(lane, "spans"), o);
	if (end > t->end_us)
		t->end_us = end;
}

static void mark_add(const struct timeline *t, struct json_object *lane, const char *name,
		     int64_t at)
{
	struct json_object *o = json_object_new_object();

	json_set_str(o, "name", name);
	json_set(o, "at_us", json_object_new_int64(at - t->start_us));
	json_object_array_add(json_opt(lane, "marks"), o);
}

/* ---- the journal's halves ---- */

static struct json_object *step_at(const struct half *h, size_t i)
{
	struct json_object *list = json_opt(h->record, "transitions");

	return i < json_count(list) ? json_object_array_get_idx(list, i) : NULL;
}

static int64_t step_us(const struct half *h, struct json_object *step)
{
	return (int64_t)json_opt_u64(step, "mono_us", 0) + h->shift_us;
}

static bool same_phase(struct json_object *a, struct json_object *b)
{
	return str_eq(json_opt_str(a, "state", ""), json_opt_str(b, "state", "")) &&
	       str_eq(json_opt_str(a, "direction", ""), json_opt_str(b, "direction", ""));
}

/* When the half entered this state on the way forward; 0: never. */
static int64_t entered(const struct half *h, const char *state)
{
	struct json_object *s;

	for (size_t i = 0; (s = step_at(h, i)); i++)
		if (str_eq(json_opt_str(s, "state", ""), state) &&
		    str_eq(json_opt_str(s, "direction", ""), "forward"))
			return step_us(h, s);
	return 0;
}

static int64_t noted(const struct half *h, const char *note)
{
	struct json_object *s;

	for (size_t i = 0; (s = step_at(h, i)); i++)
		if (str_eq(json_opt_str(s, "note", NULL), note))
			return step_us(h, s);
	return 0;
}

static bool is_end(const char *state)
{
	return !strcmp(state, "DONE") || !strcmp(state, "ABORTED");
}

/* A state and what was noted in it; ends are marks. */
static void phases(struct timeline *t, struct half *h)
{
	struct json_object *s, *next;

	for (size_t i = 0; (s = step_at(h, i)); i = next ? i : i + 1) {
		const char *state = json_opt_str(s, "state", "?");
		bool back = str_eq(json_opt_str(s, "direction", ""), "back");
		char name[TEXT_MAX];
		int64_t start = step_us(h, s);

		for (next = s; next && same_phase(s, next); next = step_at(h, ++i))
			if (str_eq(json_opt_str(next, "note", NULL), "COMMIT") ||
			    str_eq(json_opt_str(next, "note", NULL), "armed"))
				mark_add(t, h->lane, json_opt_str(next, "note", ""),
					 step_us(h, next));
		snprintf(name, sizeof name, "%s%s", back ? "undo of " : "", state);
		if (is_end(state))
			mark_add(t, h->lane, state, start);
		else
			span_add(t, h->lane, name, start, next ? step_us(h, next) : t->now_us,
				 "%.150s", json_opt_str(s, "note", ""));
	}
}

/* ---- what others measured ---- */

static int64_t us(struct json_object *data, const char *key)
{
	return (int64_t)json_opt_u64(data, key, 0);
}

static unsigned long long number(struct json_object *o, const char *key)
{
	return json_opt_u64(o, key, 0);
}

/* The parts follow each other, from start on; parts that took no time are left out. */
struct part {
	const char *name, *key;
};

static void parts(struct timeline *t, struct json_object *lane, struct json_object *answer,
		  int64_t start, const struct part *list, size_t n, const char *detail)
{
	for (size_t i = 0; start && i < n; i++) {
		int64_t took = us(answer, list[i].key);

		if (took)
			span_add(t, lane, list[i].name, start, start + took, "%s", detail);
		start += took;
	}
}

static void suspend_parts(struct timeline *t, struct json_object *lane, struct json_object *answer)
{
	static const struct part list[] = {
		{"drain", "drain_us"}, {"dirty pages", "dirty_us"}, {"close device", "close_us"}};
	int64_t quiesce = entered(&t->src, "QUIESCE");
	char detail[TEXT_MAX];

	snprintf(detail, sizeof detail, "%llu QPs, %llu not acknowledged, %.1f MiB made dirty",
		 number(answer, "qps"), number(answer, "unacked"),
		 (double)json_opt_u64(answer, "dirtied_bytes", 0) / (1 << 20));
	if (quiesce)
		parts(t, lane, answer, quiesce + us(t->src.data, "suspend_asked_us"), list,
		      ARRAY_SIZE(list), detail);
}

static void resume_parts(struct timeline *t, struct json_object *lane, struct json_object *answer)
{
	static const struct part list[] = {{"port ACTIVE", "port_active_us"},
					   {"rebuild QPs", "rebuild_us"},
					   {"connect", "connect_us"}};
	char detail[TEXT_MAX];

	snprintf(detail, sizeof detail, "%llu QPs, %llu replayed", number(answer, "qps"),
		 number(answer, "replayed"));
	parts(t, lane, answer, entered(&t->dst, "RESUME"), list, ARRAY_SIZE(list), detail);
}

static void add_application(struct timeline *t, const char *vm)
{
	int64_t quiesce = entered(&t->src, "QUIESCE"), outage = us(t->src.data, "outage_us");
	int64_t start = quiesce + us(t->src.data, "suspend_asked_us");
	char name[TEXT_MAX];
	struct json_object *lane;

	if (!quiesce || !outage)
		return;
	snprintf(name, sizeof name, "%.60s's traffic", vm);
	lane = lane_add(t, name, "application");
	span_add(t, lane, "held", start, start + outage, "no RDMA: %.1f ms", (double)outage / 1000);
}

static void add_qemu(struct timeline *t)
{
	struct json_object *data = t->dst.data ? t->dst.data : json_opt(t->src.data, "destination");
	int64_t hold = entered(&t->src, "HOLD"), commit = noted(&t->dst, "COMMIT");
	int64_t down = us(data, "vm_downtime_ms") * 1000;
	struct json_object *lane;

	if (!commit)
		commit = noted(&t->src, "COMMIT");
	if (!hold || !commit)
		return;
	lane = lane_add(t, "QEMU", "qemu");
	span_add(t, lane, "pre-copy", hold, commit - down, "%.1f MiB were left when it was held",
		 (double)json_opt_u64(t->src.data, "hold_remaining_bytes", 0) / (1 << 20));
	span_add(t, lane, "VM stopped", commit - down, commit, "%.0f ms", (double)down / 1000);
}

static void add_vf(struct timeline *t, const char *name, struct json_object *vf)
{
	int64_t prepare = entered(&t->src, "PREPARE"), detach = entered(&t->src, "DETACH");
	int64_t commit = noted(&t->dst, "COMMIT"), attach = us(t->dst.data, "attach_us");
	int64_t done = entered(&t->dst, "DONE");
	struct json_object *lane = lane_add(t, name, "vf");

	span_add(t, lane, json_opt_str(json_opt(vf, "from"), "vf", "VF"), prepare,
		 detach + us(t->src.data, "detach_us"), "of the source");
	if (commit && attach)
		span_add(t, lane, json_opt_str(json_opt(vf, "to"), "vf", "VF"), commit + attach,
			 done ? done : t->now_us, "of the destination");
}

/* A lane for each; a record of an older version is about the only one itself. */
static void add_vfs(struct timeline *t)
{
	struct json_object *vfs = json_opt(t->src.record, "vfs");

	if (!entered(&t->src, "DETACH") || !us(t->src.data, "detach_us"))
		return;
	if (json_count(vfs) < 2)
		add_vf(t, "VF", vfs ? json_object_array_get_idx(vfs, 0) : t->src.record);
	for (size_t i = 0; json_count(vfs) > 1 && i < json_count(vfs); i++) {
		struct json_object *vf = json_object_array_get_idx(vfs, i);
		char name[32];

		snprintf(name, sizeof name, "VF %s", json_opt_str(vf, "dev_id", "?"));
		add_vf(t, name, vf);
	}
}

static void add_fabric(struct timeline *t)
{
	int64_t start = entered(&t->dst, "SWITCH"), set = us(t->dst.data, "set_guid_us");
	struct json_object *move = json_opt(t->dst.data, "move"), *moves = json_opt(move, "moves");
	struct json_object *first = moves ? json_object_array_get_idx(moves, 0) : move, *lane;

	if (!start || !move)
		return;
	lane = lane_add(t, "fabric", "fabric");
	span_add(t, lane, "vGUID on the new VF", start, start + set, NULL);
	start += set;
	span_add(t, lane, "move LID and vGUID", start, start + us(move, "elapsed_us"),
		 "LID %llu, %llu LFT SMPs to %llu of %llu switches, %.1f ms in OpenSM",
		 number(first, "lid_after"), number(move, "lft_smps"),
		 number(move, "switches_updated"), number(move, "switches_total"),
		 (double)us(move, "sm_us") / 1000);
}

static void add_mover(struct timeline *t, const char *vm)
{
	struct json_object *suspend = json_opt(t->src.data, "suspend");
	struct json_object *resume = json_opt(t->dst.data, "resume"), *lane;

	if (!suspend && !resume)
		return;
	lane = lane_add(t, vm, "guest");
	suspend_parts(t, lane, suspend);
	resume_parts(t, lane, resume);
}

static struct json_object *lane_of_peer(struct timeline *t, const char *vm)
{
	for (size_t i = 0; i < json_count(t->lanes); i++) {
		struct json_object *lane = json_object_array_get_idx(t->lanes, i);

		if (str_eq(json_opt_str(lane, "kind", ""), "peer") &&
		    str_eq(json_opt_str(lane, "name", ""), vm))
			return lane;
	}
	return lane_add(t, vm, "peer");
}

static void add_peers(struct timeline *t)
{
	struct json_object *suspend = json_opt(t->src.data, "peers_suspend");
	struct json_object *resume = json_opt(t->dst.data, "peers_resume");

	for (size_t i = 0; i < json_count(suspend); i++) {
		struct json_object *a = json_object_array_get_idx(suspend, i);

		suspend_parts(t, lane_of_peer(t, json_opt_str(a, "vm", "peer")), a);
	}
	for (size_t i = 0; i < json_count(resume); i++) {
		struct json_object *a = json_object_array_get_idx(resume, i);

		resume_parts(t, lane_of_peer(t, json_opt_str(a, "vm", "peer")), a);
	}
}

/* ---- one clock ---- */

static int64_t wall_minus_mono(const struct half *h)
{
	struct json_object *s = step_at(h, 0);

	return (int64_t)json_opt_u64(s, "wall_ms", 0) * 1000 -
	       (int64_t)json_opt_u64(s, "mono_us", 0);
}

/* The destination's clock becomes the source's: as measured, or else by both hosts' wall clocks. */
static struct json_object *align(struct timeline *t)
{
	struct json_object *clock = json_opt(t->src.data, "clock"), *o = json_object_new_object();
	struct json_object *offset = json_opt(clock, "offset_us");

	json_set_bool(o, "measured", offset || !t->src.record || !t->dst.record);
	if (!t->src.record || !t->dst.record)
		return o;
	if (offset)
		t->dst.shift_us = -json_object_get_int64(offset);
	else
		t->dst.shift_us = wall_minus_mono(&t->dst) - wall_minus_mono(&t->src);
	json_set(o, "offset_us", json_object_new_int64(-t->dst.shift_us));
	if (offset)
		json_set_u64(o, "error_us", json_opt_u64(clock, "error_us", 0));
	return o;
}

static void begin(struct timeline *t)
{
	const struct half *halves[] = {&t->src, &t->dst};

	for (size_t i = 0; i < ARRAY_SIZE(halves); i++) {
		struct json_object *s = step_at(halves[i], 0);

		if (s && (!t->start_us || step_us(halves[i], s) < t->start_us))
			t->start_us = step_us(halves[i], s);
	}
	t->end_us = t->start_us;
}

static void add_host(struct timeline *t, struct half *h, const char *end)
{
	struct json_object *any = t->src.record ? t->src.record : t->dst.record;

	if (!h->record)
		return;
	h->lane = lane_add(t, json_opt_str(json_opt(any, end), "host", end), "host");
	phases(t, h);
}

struct json_object *timeline_make(struct json_object *source, struct json_object *destination,
				  struct json_object *ours, uint64_t now)
{
	struct timeline t = {0};
	struct json_object *top = json_object_new_object(), *m = source ? source : destination;
	const char *vm = json_opt_str(m, "name", "?");

	t.src = (struct half){.record = source, .data = json_opt(source, "data")};
	t.dst = (struct half){.record = destination, .data = json_opt(destination, "data")};
	t.lanes = json_object_new_array();
	json_set_str(top, "id", json_opt_str(m, "id", "?"));
	json_set_str(top, "vm", vm);
	json_set_str(top, "from", json_opt_str(json_opt(m, "from"), "host", "?"));
	json_set_str(top, "to", json_opt_str(json_opt(m, "to"), "host", "?"));
	json_set_str(top, "strategy", json_opt_str(m, "strategy", "?"));
	json_set(top, "choice", json_object_get(json_opt(json_opt(m, "data"), "choice")));
	json_set_str(top, "state", json_opt_str(m, "state", "?"));
	json_set_str(top, "reason", json_opt_str(m, "reason", NULL));
	json_set_u64(top, "start_wall_ms",
		     json_opt_u64(step_at(source ? &t.src : &t.dst, 0), "wall_ms", 0));
	json_set(top, "clock", align(&t));
	t.now_us = (int64_t)now + (ours == destination ? t.dst.shift_us : 0);
	json_set(top, "lanes", t.lanes);
	begin(&t);
	add_application(&t, vm);
	add_host(&t, &t.src, "from");
	add_host(&t, &t.dst, "to");
	add_qemu(&t);
	add_vfs(&t);
	add_fabric(&t);
	add_mover(&t, vm);
	add_peers(&t);
	json_set(top, "length_us", json_object_new_int64(t.end_us - t.start_us));
	return top;
}
