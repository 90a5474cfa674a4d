/* SPDX-License-Identifier: GPL-2.0-or-later */
/* ibvmig timeline: who did what when, on one clock. */
#include "common/json.h"
#include "common/util.h"
#include "daemon/cli/main.h"
#include "daemon/cli/svg.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#define CELLS 36

static double ms(struct json_object *o, const char *key)
{
	return (double)json_object_get_int64(json_opt(o, key)) / 1000;
}

static void print_head(struct json_object *t)
{
	struct json_object *clock = json_opt(t, "clock");
	time_t s = (time_t)(json_opt_u64(t, "start_wall_ms", 0) / 1000);
	const char *from = cli_text(t, "from", "?"), *to = cli_text(t, "to", "?");
	double offset = ms(clock, "offset_us");
	char when[32];
	struct tm tm;

	strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", localtime_r(&s, &tm));
	printf("%s  migration %s\n%s from %s to %s, %s: %s, %.1f ms\n", when,
	       cli_text(t, "id", "?"), cli_text(t, "vm", "?"), from, to,
	       cli_text(t, "strategy", "?"), cli_text(t, "state", "?"), ms(t, "length_us"));
	if (json_opt_str(t, "reason", NULL))
		printf("reason: %s\n", cli_text(t, "reason", ""));
	cli_print_choice(json_opt(t, "choice"), "");
	if (json_opt_str(t, "missing", NULL))
		printf("the other host's half is missing: %s\n", cli_text(t, "missing", ""));
	else if (json_opt(clock, "offset_us") && json_opt_bool(clock, "measured", false))
		printf("one clock: %s's is %.3f ms %s %s's, measured to %.3f ms\n", to,
		       offset < 0 ? -offset : offset, offset < 0 ? "behind" : "ahead of", from,
		       ms(clock, "error_us"));
	else if (json_opt(clock, "offset_us"))
		printf("not measured how far the clocks are apart: the hosts' wall clocks are "
		       "believed\n");
}

static size_t cell_of(double at, double length)
{
	double cell = at / length * CELLS;

	return cell < 0 ? 0 : cell < CELLS ? (size_t)cell : CELLS - 1;
}

/* Draws where in the migration a span lies. The other host, whose clock may have jumped, has a part
 * in the times: they may lie outside. */
static void bar(char cells[static CELLS + 1], double start, double end, double length)
{
	size_t a = cell_of(start, length), b = cell_of(end, length);

	memset(cells, '.', CELLS);
	cells[CELLS] = '\0';
	memset(cells + a, '#', b > a ? b - a + 1 : 1);
}

static void print_lane(struct json_object *lane, double length)
{
	struct json_object *spans = json_opt(lane, "spans"), *marks = json_opt(lane, "marks");
	char cells[CELLS + 1];

	printf("\n%s\n", cli_text(lane, "name", "?"));
	for (size_t i = 0; i < json_count(spans); i++) {
		struct json_object *s = json_object_array_get_idx(spans, i);
		double start = ms(s, "start_us"), end = ms(s, "end_us");

		bar(cells, start, end, length);
		printf("%10.1f %10.1f %10.1f  %s  %s%s%s\n", start, end, end - start, cells,
		       cli_text(s, "name", "?"), json_opt(s, "detail") ? ": " : "",
		       cli_text(s, "detail", ""));
	}
	for (size_t i = 0; i < json_count(marks); i++) {
		struct json_object *m = json_object_array_get_idx(marks, i);
		double at = ms(m, "at_us");

		bar(cells, at, at, length);
		printf("%10.1f %10s %10s  %s  %s\n", at, "", "", cells, cli_text(m, "name", "?"));
	}
}

static void print_text(struct json_object *t)
{
	struct json_object *lanes = json_opt(t, "lanes");

	print_head(t);
	printf("%10s %10s %10s\n", "from ms", "to ms", "ms");
	for (size_t i = 0; i < json_count(lanes); i++)
		print_lane(json_object_array_get_idx(lanes, i), ms(t, "length_us") + 0.001);
}

static int write_svg(const char *path, struct json_object *t)
{
	FILE *out = fopen(path, "w");
	int rc = out ? 0 : errno;

	if (out) {
		cli_svg_timeline(out, t);
		rc = ferror(out) ? EIO : 0;
		if (fclose(out) && !rc)
			rc = errno;
	}
	if (rc)
		fprintf(stderr, "ibvmig: cannot write %s: %s\n", path, strerror(rc));
	return rc ? CLI_FAILED : CLI_OK;
}

int cli_timeline(const struct command_line *c)
{
	char *path AUTO_FREE = cli_path("/v1/migrations/", c->args[0], "/timeline");
	struct json_object *t AUTO_JSON = NULL;
	int rc = cli_call(c, "GET", path, NULL, &t);

	if (rc)
		return rc;
	if (command_has(c, OPT_SVG))
		return write_svg(command_value(c, OPT_SVG), t);
	if (command_has(c, OPT_JSON))
		cli_print_json(t);
	else
		print_text(t);
	return CLI_OK;
}
