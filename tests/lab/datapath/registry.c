/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/lab/datapath/registry.h"
#include "common/http/client.h"
#include "common/ib.h"
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#define IDLE_MS  1000
#define HURRY_MS 20
#define CALL_MS  2000

static struct {
	pthread_mutex_t lock;
	pthread_cond_t wake;
	const char *url;
	bool hurry;
	int count; /* -1: no answer */
	uint64_t version;
	struct registry_entry entries[REGISTRY_MAX];
} reg = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER, .count = -1};

static int parse(struct json_object *answer, struct registry_entry *entries)
{
	struct json_object *list = json_opt(answer, "vguids");
	int n = 0;

	if (!json_object_is_type(list, json_type_array))
		return -1;
	for (size_t i = 0; i < json_object_array_length(list) && n < REGISTRY_MAX; i++) {
		struct json_object *o = json_object_array_get_idx(list, i);

		if (ib_guid_parse(json_opt_str(o, "vguid", ""), &entries[n].vguid))
			continue;
		entries[n].lid = (unsigned)json_opt_u64(o, "lid", 0);
		n++;
	}
	return n;
}

static void publish(const struct registry_entry *entries, int count)
{
	pthread_mutex_t *m AUTO_UNLOCK = mutex_lock(&reg.lock);
	size_t bytes = count > 0 ? (size_t)count * sizeof(*entries) : 0;

	if (count == reg.count && !memcmp(entries, reg.entries, bytes))
		return;
	memcpy(reg.entries, entries, bytes);
	reg.count = count;
	reg.version++;
}

/* Waits for a second, or HURRY_MS when somebody waits for news. */
static void pause_a_while(void)
{
	pthread_mutex_t *m AUTO_UNLOCK = mutex_lock(&reg.lock);
	uint64_t until = now_ms() + IDLE_MS;

	while (now_ms() < until) {
		struct timespec t;
		uint64_t at = until;

		if (reg.hurry) {
			reg.hurry = false;
			until = now_ms() + HURRY_MS;
			at = until;
		}
		clock_gettime(CLOCK_REALTIME, &t);
		at = at > now_ms() ? at - now_ms() : 0;
		t.tv_nsec += (long)(at % 1000) * 1000000;
		t.tv_sec += (time_t)(at / 1000) + t.tv_nsec / 1000000000;
		t.tv_nsec %= 1000000000;
		pthread_cond_timedwait(&reg.wake, m, &t);
	}
}

static void *run(void *arg)
{
	static struct registry_entry entries[REGISTRY_MAX];

	for (;;) {
		struct json_object *answer = NULL;
		char error[HTTP_ERROR_MAX];

		memset(entries, 0, sizeof(entries));
		if (http_call(reg.url, "GET", "/v1/vguids", NULL, CALL_MS, &answer, error))
			publish(entries, -1);
		else
			publish(entries, parse(answer, entries));
		json_object_put(answer);
		pause_a_while();
	}
	return arg;
}

int registry_start(const char *url)
{
	pthread_t t;

	reg.url = url;
	http_client_init();
	return -pthread_create(&t, NULL, run, NULL);
}

void registry_hurry(void)
{
	pthread_mutex_t *m AUTO_UNLOCK = mutex_lock(&reg.lock);

	if (reg.hurry)
		return;
	reg.hurry = true;
	pthread_cond_signal(&reg.wake);
}

int registry_read(struct registry_entry entries[static REGISTRY_MAX], uint64_t *ret_version)
{
	pthread_mutex_t *m AUTO_UNLOCK = mutex_lock(&reg.lock);

	if (reg.count > 0)
		memcpy(entries, reg.entries, (size_t)reg.count * sizeof(*entries));
	*ret_version = reg.version;
	return reg.count;
}
