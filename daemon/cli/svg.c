/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/cli/svg.h"
#include "common/json.h"
#include "common/util.h"
#include "daemon/cli/main.h"

#include <math.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#define WIDTH      1240
#define LEFT       150 /* names of the lanes */
#define RIGHT      30
#define ROW        24
#define BAR        18
#define HEAD       64 /* title */
#define PANEL_HEAD 46 /* a panel's own title, and its axis */
#define PANEL_GAP  22
#define TICKS_MAX  10
#define CHAR_WIDTH 6.4 /* a character of 11px sans-serif, on the wide side */
#define BAR_MIN    1.5 /* a shorter span is still seen */

/* A stretch of time and where it lies on the sheet. */
struct panel {
	double from_us, to_us, top, bottom;
};

static const struct {
	const char *kind, *fill;
} fills[] = {
	{"application", "#c0392b"}, {"host", "#3b6ea5"},  {"qemu", "#7d6b5d"}, {"vf", "#3f8f4f"},
	{"fabric", "#8e5aa8"},      {"guest", "#c9721b"}, {"peer", "#a08a1e"},
};

static const char *fill_of(const char *kind, const char *span)
{
	if (!strncmp(span, "undo", 4) || !strcmp(span, "CANCEL") || !strcmp(span, "PARKED"))
		return "#d1495b";
	if (!strcmp(span, "VM stopped"))
		return "#3d332b";
	for (size_t i = 0; i < ARRAY_SIZE(fills); i++)
		if (!strcmp(fills[i].kind, kind))
			return fills[i].fill;
	return "#777777";
}

static double get_us(struct json_object *o, const char *key)
{
	return (double)json_object_get_int64(json_opt(o, key));
}

/* Bytes of the character at text, if it is UTF-8 that may stand in XML; else 0. */
static size_t character(const char *text)
{
	static const uint32_t least[] = {[1] = 0, [2] = 0x80, [3] = 0x800, [4] = 0x10000};
	const unsigned char *t = (const unsigned char *)text;
	size_t n = *t < 0x80 ? 1 : *t < 0xe0 ? 2 : *t < 0xf0 ? 3 : 4;
	uint32_t c = n == 1 ? *t : *t & (0x7fu >> n);

	if ((*t & 0xc0) == 0x80 || *t > 0xf4)
		return 0;
	for (size_t i = 1; i < n; i++) {
		if ((t[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (t[i] & 0x3f);
	}
	return c < least[n] || c > 0x10ffff || c >> 11 == 0xd800 >> 11 || (c & 0xfffe) == 0xfffe
		       ? 0
		       : n;
}

/* Bytes that are no character, as where a name was cut, are shown as such: no viewer takes a file
 * that is not XML. */
static void put_text(FILE *out, const char *text)
{
	for (size_t n; *text; text += n ? n : 1) {
		n = character(text);
		switch (*text) {
		case '<':
			fputs("&lt;", out);
			break;
		case '>':
			fputs("&gt;", out);
			break;
		case '&':
			fputs("&amp;", out);
			break;
		case '"':
			fputs("&quot;", out);
			break;
		default:
			if (!n)
				fputs("\xef\xbf\xbd", out);
			else if ((unsigned char)*text < ' ')
				fputc(' ', out);
			else
				fwrite(text, 1, n, out);
		}
	}
}

static void label(FILE *out, double x, double y, const char *attributes, const char *text)
{
	fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, attributes);
	put_text(out, text);
	fputs("</text>\n", out);
}

static double x_of(const struct panel *p, double at_us)
{
	double part = (at_us - p->from_us) / (p->to_us - p->from_us);

	return LEFT + (part < 0 ? 0 : part > 1 ? 1 : part) * (WIDTH - LEFT - RIGHT);
}

/* 1, 2 or 5 times a power of ten: at most TICKS_MAX of it fit into the panel. */
static double tick_us(const struct panel *p)
{
	static const double steps[] = {1, 2, 5};
	double length = p->to_us - p->from_us;

	for (double power = 1;; power *= 10)
		for (size_t i = 0; i < ARRAY_SIZE(steps); i++)
			if (length / (steps[i] * power) <= TICKS_MAX)
				return steps[i] * power;
}

static void axis(FILE *out, const struct panel *p)
{
	double step = tick_us(p);

	for (double at = ceil(p->from_us / step) * step; at <= p->to_us; at += step) {
		double x = x_of(p, at);
		char text[32];

		snprintf(text, sizeof text, step >= 1000 ? "%.0f ms" : "%.1f ms", at / 1000);
		fprintf(out,
			"<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" "
			"stroke=\"#dddddd\"/>\n",
			x, p->top, x, p->bottom);
		label(out, x, p->top - 5, "fill=\"#555555\" text-anchor=\"middle\"", text);
	}
}

/* ---- lanes ---- */

static bool seen(const struct panel *p, struct json_object *span)
{
	return get_us(span, "end_us") >= p->from_us && get_us(span, "start_us") <= p->to_us;
}

/* Returns where the next span of the lane that can be seen begins, or the panel's edge. */
static double next_x(const struct panel *p, struct json_object *spans, size_t i)
{
	double end = get_us(json_object_array_get_idx(spans, i), "end_us");

	for (size_t k = 0; k < json_count(spans); k++) {
		struct json_object *o = json_object_array_get_idx(spans, k);

		if (k != i && get_us(o, "start_us") >= end)
			return x_of(p, get_us(o, "start_us"));
	}
	return WIDTH;
}

static void draw_span(FILE *out, const struct panel *p, const char *kind, struct json_object *spans,
		      size_t i, double lane_y)
{
	struct json_object *s = json_object_array_get_idx(spans, i);
	double y = lane_y + (double)json_opt_u64(s, "row", 0) * ROW;
	const char *name = cli_text(s, "name", "?");
	double start = get_us(s, "start_us"), end = get_us(s, "end_us");
	double x = x_of(p, start), width = x_of(p, end) - x,
	       need = (double)strlen(name) * CHAR_WIDTH;
	char title[400];

	width = width < BAR_MIN ? BAR_MIN : width;
	snprintf(title, sizeof title, "%s: %.1f to %.1f ms, %.1f ms. %s", name, start / 1000,
		 end / 1000, (end - start) / 1000, cli_text(s, "detail", ""));
	fprintf(out,
		"<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" rx=\"2\" fill=\"%s\""
		" stroke=\"#ffffff\" stroke-width=\"0.6\"><title>",
		x, y, width, BAR, fill_of(kind, name));
	put_text(out, title);
	fputs("</title></rect>\n", out);
	if (need + 8 <= width)
		label(out, x + width / 2, y + 13, "fill=\"#ffffff\" text-anchor=\"middle\"", name);
	else if (x + width + 4 + need <= next_x(p, spans, i))
		label(out, x + width + 4, y + 13, "fill=\"#222222\"", name);
}

static bool row_is_taken(struct json_object *spans, size_t i, unsigned row)
{
	double start = get_us(json_object_array_get_idx(spans, i), "start_us");

	for (size_t k = 0; k < i; k++) {
		struct json_object *s = json_object_array_get_idx(spans, k);

		if (json_opt_u64(s, "row", 0) == row && get_us(s, "end_us") > start)
			return true;
	}
	return false;
}

/* Tells every span its row: a row's spans do not overlap. Returns the number of rows. */
static unsigned arrange(struct json_object *spans)
{
	unsigned rows = 1;

	for (size_t i = 0; i < json_count(spans); i++) {
		unsigned r = 0;

		while (row_is_taken(spans, i, r))
			r++;
		json_set_u64(json_object_array_get_idx(spans, i), "row", r);
		rows = r == rows ? rows + 1 : rows;
	}
	return rows;
}

/* Marks stand as small triangles; COMMIT is drawn through all lanes by commit_line(). */
static void draw_marks(FILE *out, const struct panel *p, struct json_object *marks, double y)
{
	for (size_t i = 0; i < json_count(marks); i++) {
		struct json_object *m = json_object_array_get_idx(marks, i);
		double at = get_us(m, "at_us"), x = x_of(p, at);

		if (at < p->from_us || at > p->to_us || str_eq(cli_text(m, "name", ""), "COMMIT"))
			continue;
		fprintf(out, "<path d=\"M%.1f %.1f l4 6 l-8 0 z\" fill=\"#222222\"><title>", x,
			y + BAR - 2);
		put_text(out, cli_text(m, "name", ""));
		fprintf(out, ": %.1f ms</title></path>\n", at / 1000);
	}
}

static double draw_lane(FILE *out, const struct panel *p, struct json_object *lane, double y)
{
	struct json_object *spans = json_opt(lane, "spans");
	const char *kind = cli_text(lane, "kind", "");
	unsigned rows = arrange(spans);
	char name[64];

	snprintf(name, sizeof name, "%.40s%s", cli_text(lane, "name", "?"),
		 !strcmp(kind, "guest") || !strcmp(kind, "peer")
			 ? kind[0] == 'g' ? " (guest)" : " (peer)"
			 : "");
	if (out) {
		label(out, LEFT - 10, y + 14, "fill=\"#222222\" text-anchor=\"end\"", name);
		for (size_t i = 0; i < json_count(spans); i++)
			if (seen(p, json_object_array_get_idx(spans, i)))
				draw_span(out, p, kind, spans, i, y);
		draw_marks(out, p, json_opt(lane, "marks"), y);
	}
	return y + rows * ROW;
}

/* out NULL: only how far down the lanes reach. */
static double draw_lanes(FILE *out, const struct panel *p, struct json_object *lanes)
{
	double y = p->top + 4;

	for (size_t i = 0; i < json_count(lanes); i++)
		y = draw_lane(out, p, json_object_array_get_idx(lanes, i), y);
	return y;
}

/* ---- panels ---- */

static double mark_us(struct json_object *lanes, const char *name)
{
	double at = -1;

	for (size_t i = 0; i < json_count(lanes); i++) {
		struct json_object *marks = json_opt(json_object_array_get_idx(lanes, i), "marks");

		for (size_t k = 0; k < json_count(marks); k++) {
			struct json_object *m = json_object_array_get_idx(marks, k);

			/* The last one that tells it: the destination, who has seen it. */
			if (str_eq(cli_text(m, "name", ""), name))
				at = get_us(m, "at_us");
		}
	}
	return at;
}

static void commit_line(FILE *out, const struct panel *p, struct json_object *lanes)
{
	double at = mark_us(lanes, "COMMIT"), x = x_of(p, at);

	if (at < p->from_us || at > p->to_us)
		return;
	fprintf(out,
		"<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#222222\" "
		"stroke-dasharray=\"4 3\"/>\n",
		x, p->top, x, p->bottom);
	label(out, x, p->bottom + 12, "fill=\"#222222\" text-anchor=\"middle\"", "COMMIT");
}

static void draw_panel(FILE *out, const struct panel *p, struct json_object *lanes,
		       const char *title)
{
	label(out, LEFT, p->top - 22, "fill=\"#222222\" font-weight=\"bold\"", title);
	fprintf(out, "<rect x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%.1f\" fill=\"#f7f7f5\"/>\n",
		LEFT, p->top, WIDTH - LEFT - RIGHT, p->bottom - p->top);
	axis(out, p);
	commit_line(out, p, lanes);
	draw_lanes(out, p, lanes);
}

/* The span of the time without RDMA, or NULL. */
static struct json_object *outage(struct json_object *lanes)
{
	struct json_object *first = json_count(lanes) ? json_object_array_get_idx(lanes, 0) : NULL;

	if (!str_eq(cli_text(first, "kind", ""), "application"))
		return NULL;
	first = json_opt(first, "spans");
	return json_count(first) ? json_object_array_get_idx(first, 0) : NULL;
}

static void title(FILE *out, struct json_object *t)
{
	time_t s = (time_t)(json_opt_u64(t, "start_wall_ms", 0) / 1000);
	char line[300], when[32];
	struct tm tm;

	strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", localtime_r(&s, &tm));
	snprintf(line, sizeof line, "%.60s from %.60s to %.60s, %s: %s", cli_text(t, "vm", "?"),
		 cli_text(t, "from", "?"), cli_text(t, "to", "?"), cli_text(t, "strategy", "?"),
		 cli_text(t, "state", "?"));
	label(out, 20, 26, "fill=\"#111111\" font-size=\"16\" font-weight=\"bold\"", line);
	snprintf(line, sizeof line, "%s   migration %.40s", when, cli_text(t, "id", "?"));
	label(out, 20, 44, "fill=\"#555555\"", line);
}

void cli_svg_timeline(FILE *out, struct json_object *t)
{
	struct json_object *lanes = json_opt(t, "lanes"), *gap = outage(lanes);
	struct panel whole = {.to_us = get_us(t, "length_us") + 1, .top = HEAD + PANEL_HEAD};
	struct panel close = {0};
	double height;

	whole.bottom = draw_lanes(NULL, &whole, lanes);
	height = whole.bottom + PANEL_GAP;
	if (gap) {
		double length = get_us(gap, "end_us") - get_us(gap, "start_us");

		close.from_us = get_us(gap, "start_us") - length * 0.03;
		close.to_us = get_us(gap, "end_us") + length * 0.03 + 1;
		close.top = height + PANEL_HEAD;
		close.bottom = draw_lanes(NULL, &close, lanes);
		height = close.bottom + PANEL_GAP;
	}
	fprintf(out,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" "
		"viewBox=\"0 0 %d %.0f\" font-family=\"sans-serif\" font-size=\"11\">\n"
		"<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n",
		WIDTH, height, WIDTH, height);
	title(out, t);
	draw_panel(out, &whole, lanes, "The whole migration");
	if (gap)
		draw_panel(out, &close, lanes, "The time without RDMA");
	fputs("</svg>\n", out);
}
