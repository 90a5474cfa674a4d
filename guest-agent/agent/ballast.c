/* SPDX-License-Identifier: GPL-2.0-or-later */
/* `ballast`: memory that stays dirty, so that pre-copy cannot end before the host wants it to. */
#include "guest-agent/agent/main.h"
#include "common/json.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/util.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE_BYTES   4096u
#define BYTES_MAX    (256u << 20)
#define INTERVAL_MIN 1
#define INTERVAL_MAX 10000
#define LIFE_MS      120000

/* At most this part of the available memory: 1/4. */
#define AVAILABLE_SHARE 4

static struct {
	struct loop_timer *timer;
	char *memory; /* owned, mapped */
	size_t bytes;
	uint64_t interval_ms, ends_ms, round;
} ballast;

static void ballast_end(void)
{
	loop_timer_disarm(ballast.timer);
	if (ballast.memory)
		munmap(TAKE(ballast.memory), ballast.bytes);
	ballast.bytes = 0;
}

/* Writes a word in each page, because dirty tracking has no finer grain. */
static void ballast_dirty(void *arg)
{
	(void)arg;
	if (now_ms() >= ballast.ends_ms) {
		log_warn("the ballast of %zu bytes was not ended in %u s, it ends now",
			 ballast.bytes, LIFE_MS / 1000);
		ballast_end();
		return;
	}
	ballast.round++;
	for (size_t at = 0; at < ballast.bytes; at += PAGE_BYTES)
		*(volatile uint64_t *)(void *)(ballast.memory + at) = ballast.round ^ at << 20;
	loop_timer_arm(ballast.timer, ballast.interval_ms);
}

/* Content that neither zero-page detection nor compression makes small. */
static void ballast_fill(void)
{
	uint64_t x = now_us() | 1;

	for (size_t at = 0; at < ballast.bytes; at += sizeof(x)) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		memcpy(ballast.memory + at, &x, sizeof(x));
	}
}

/* A small guest has no room for all that the host would like: what is left to others must not be
 * what the kernel then kills somebody for. */
static size_t ballast_fit(size_t bytes)
{
	char *text AUTO_FREE = NULL;
	const char *line;
	unsigned long long kib;

	if (read_file("/proc/meminfo", 64u << 10, &text, NULL) ||
	    !(line = strstr(text, "MemAvailable:")) ||
	    sscanf(line, "MemAvailable: %llu kB", &kib) != 1)
		return bytes;
	size_t share = (size_t)(kib << 10) / AVAILABLE_SHARE / PAGE_BYTES * PAGE_BYTES;
	if (bytes > share) {
		log_info("ballast of %zu bytes in place of %zu: %llu KiB are available", share,
			 bytes, kib);
		bytes = share;
	}
	return bytes;
}

static int ballast_start(struct agent *a, size_t bytes, uint64_t interval_ms)
{
	void *memory;
	int rc = 0;

	if (!ballast.timer && (rc = loop_timer_new(a->loop, ballast_dirty, NULL, &ballast.timer)))
		return rc;
	if (bytes != ballast.bytes) {
		memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			      0);
		if (memory == MAP_FAILED)
			return -errno;
		ballast_end();
		ballast.memory = memory;
		ballast.bytes = bytes;
		ballast_fill();
	}
	ballast.interval_ms = interval_ms;
	ballast.ends_ms = now_ms() + LIFE_MS;
	ballast_dirty(NULL);
	return 0;
}

void agent_ballast(struct agent *a, uint64_t id, struct json_object *msg)
{
	struct json_reader r;
	uint64_t bytes, interval;
	int rc = 0;

	json_reader_init(&r, msg);
	bytes = json_need_u64(&r, "bytes", 0, BYTES_MAX);
	interval = bytes ? json_need_u64(&r, "interval_ms", INTERVAL_MIN, INTERVAL_MAX) : 0;
	if (r.error) {
		agent_answer_error(a, id, "ballast: %s", r.message);
		return;
	}
	bytes = (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
	/* asked again, it goes on with the size that it has */
	if (bytes)
		bytes = ballast.bytes ? ballast.bytes : ballast_fit(bytes);
	if (bytes)
		rc = ballast_start(a, bytes, interval);
	else
		ballast_end();
	if (rc) {
		agent_answer_error(a, id, "ballast of %llu bytes: %s", (unsigned long long)bytes,
				   strerror(-rc));
		return;
	}
	struct json_object *answer = json_object_new_object();
	json_set_u64(answer, "bytes", bytes);
	agent_answer(a, id, answer);
}
