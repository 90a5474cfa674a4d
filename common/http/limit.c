/* SPDX-License-Identifier: GPL-2.0-or-later */
/* How often one client may ask: a bucket of tokens for each, filled evenly. */
#include "common/http/private.h"

#include <errno.h>

#define BURST_S 2 /* as much may a client save up */

static unsigned hash(const struct http_who *who)
{
	unsigned h = 2166136261u;
	char key[HTTP_ADDRESS_MAX + 16];

	/* The port does not count: a client has many. */
	snprintf(key, sizeof key, "%s/%u", who->local ? "" : who->address,
		 who->local ? (unsigned)who->uid : 0);
	for (const char *p = key; *p; p++)
		h = (h ^ (unsigned char)*p) * 16777619u;
	return h % HTTP_BUCKETS;
}

int http_server_limit(struct http_server *s, unsigned per_s)
{
	if (per_s && !s->buckets && !(s->buckets = calloc(HTTP_BUCKETS, sizeof *s->buckets)))
		return -ENOMEM;
	s->rate_per_s = per_s;
	return 0;
}

bool http_rate_take(struct http_server *s, const struct http_who *who, uint64_t at_us)
{
	double most = (double)s->rate_per_s * BURST_S;
	struct http_bucket *b;

	if (!s->rate_per_s)
		return true;
	b = &s->buckets[hash(who)];
	if (!b->filled_us)
		b->tokens = most;
	else
		b->tokens += (double)(at_us - b->filled_us) / 1e6 * s->rate_per_s;
	if (b->tokens > most)
		b->tokens = most;
	b->filled_us = at_us;
	if (b->tokens < 1)
		return false;
	b->tokens--;
	return true;
}
