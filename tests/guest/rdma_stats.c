/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/guest/rdma_stats.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

static uint64_t clock_us(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

uint64_t stats_now_us(void)
{
	return clock_us(CLOCK_MONOTONIC);
}

void stats_arrival(struct stats *s)
{
	uint64_t now = stats_now_us(), gap = s->last_us ? now - s->last_us : 0;

	s->last_us = now;
	if (gap > s->max_gap_us)
		s->max_gap_us = gap;
	if (gap < STATS_GAP_MIN_US)
		return;
	s->gaps[s->gap_count++ % STATS_GAPS] = (struct stats_gap){clock_us(CLOCK_REALTIME) / 1000,
								  gap};
}

void stats_complain(struct stats *s, const char *fmt, ...)
{
	va_list ap;
	uint64_t ms;
	int n;

	if (s->first_error[0])
		return;
	ms = clock_us(CLOCK_REALTIME) / 1000;
	n = snprintf(s->first_error, sizeof s->first_error,
		     "at %02" PRIu64 ":%02" PRIu64 ":%02" PRIu64 ".%03" PRIu64 " ",
		     ms / 3600000 % 24, ms / 60000 % 60, ms / 1000 % 60, ms % 1000);
	va_start(ap, fmt);
	vsnprintf(s->first_error + n, sizeof s->first_error - (size_t)n, fmt, ap);
	va_end(ap);
}

static void write_gaps(const struct stats *s, FILE *f)
{
	uint64_t first = s->gap_count < STATS_GAPS ? 0 : s->gap_count - STATS_GAPS;

	fputs("[", f);
	for (uint64_t i = first; i < s->gap_count; i++)
		fprintf(f, "%s{\"ended_wall_ms\":%" PRIu64 ",\"ms\":%.1f}", i > first ? "," : "",
			s->gaps[i % STATS_GAPS].ended_wall_ms,
			(double)s->gaps[i % STATS_GAPS].us / 1e3);
	fputs("]", f);
}

static void write_qps(const struct stats *s, FILE *f)
{
	fputs("[", f);
	for (unsigned i = 0; i < s->qps; i++)
		fprintf(f, "%s%" PRIu64, i ? "," : "", s->by_qp[i]);
	fputs("]", f);
}

void stats_write(const struct stats *s, const char *path, bool ended)
{
	char temporary[256];
	uint64_t idle = s->last_us ? stats_now_us() - s->last_us : 0;

	if (!path)
		return;
	snprintf(temporary, sizeof temporary, "%s.new", path);
	FILE *f = fopen(temporary, "w");
	if (!f)
		return;
	fprintf(f,
		"{\"ended\":%s,\"sent\":%" PRIu64 ",\"received\":%" PRIu64 ",\"lost\":%" PRIu64
		",\"duplicated\":%" PRIu64 ",\"corrupt\":%" PRIu64 ",\"foreign\":%" PRIu64
		",\"writes\":%" PRIu64 ",\"reads\":%" PRIu64 ",\"bytes\":%" PRIu64
		",\"received_least\":%" PRIu64 ",\"idle_ms\":%" PRIu64
		",\"max_gap_ms\":%.1f,\"gap_count\":%" PRIu64 ",\"first_error\":\"%s\",\"gaps\":",
		ended ? "true" : "false", s->sent, s->received, s->lost, s->duplicated, s->corrupt,
		s->foreign, s->writes, s->reads, s->bytes, s->received_least, idle / 1000,
		(double)s->max_gap_us / 1e3, s->gap_count, s->first_error);
	write_gaps(s, f);
	fputs(",\"received_by_qp\":", f);
	write_qps(s, f);
	fputs("}\n", f);
	if (!fclose(f))
		rename(temporary, path);
}
