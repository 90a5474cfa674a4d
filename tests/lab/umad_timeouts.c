// SPDX-License-Identifier: GPL-2.0-or-later
/* umad's time-outs for programs on ibsim: a stand-in for the kernel's ib_umad.
 *
 * umad2sim stands for /dev/infiniband/umadN, but forgets timeout_ms and retries. A request to a
 * program that has died never ends, and OpenSM, which counts its SMPs under way, waits for ever.
 * Preloaded before libumad2sim.so, this ends it as the kernel does: umad_recv() gives its header
 * back with status ETIMEDOUT, timeout_ms * (retries + 1) after umad_send(). Otherwise than the
 * kernel it sends nothing again, and passes on an answer that comes later. ibsim loses nothing that
 * a live program would have got, or says so at once. umad_poll() sees no time-out: nobody here
 * calls it. */
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/mad.h>
#include <infiniband/umad.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TICK_MS      20 /* umad_recv() looks for requests that are due: so late is a time-out */
#define HEADER_BYTES 24 /* size of a MAD's header, which the kernel gives back */

struct request {
	struct request *next;
	uint64_t due_ms;
	int fd;
	uint32_t tid, class; /* the lower half of the TID: the other one is umad's */
	struct ib_user_mad umad;
	uint8_t header[HEADER_BYTES];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct request *requests; /* owned; under the lock */
static int (*real_send)(int, int, void *, int, int, int);
static int (*real_recv)(int, void *, int *, int);
static int (*real_close)(int);

__attribute__((constructor)) static void find_real(void)
{
	*(void **)&real_send = dlsym(RTLD_NEXT, "umad_send");
	*(void **)&real_recv = dlsym(RTLD_NEXT, "umad_recv");
	*(void **)&real_close = dlsym(RTLD_NEXT, "umad_close_port");
}

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static uint32_t tid_of(void *umad)
{
	return (uint32_t)mad_get_field64(umad_get_mad(umad), 0, IB_MAD_TRID_F);
}

static uint32_t class_of(void *umad)
{
	return mad_get_field(umad_get_mad(umad), 0, IB_MAD_MGMTCLASS_F);
}

/* Takes one out of the list: the one with this TID and class, or without a MAD the first that is
 * due. The caller frees it; NULL: there is none. */
static struct request *take(int fd, void *umad)
{
	uint32_t tid = umad ? tid_of(umad) : 0, class = umad ? class_of(umad) : 0;
	uint64_t now = now_ms();
	struct request **p, *r;

	pthread_mutex_lock(&lock);
	for (p = &requests; (r = *p); p = &r->next)
		if (r->fd == fd && (umad ? r->tid == tid && r->class == class : r->due_ms <= now))
			break;
	if (r)
		*p = r->next;
	pthread_mutex_unlock(&lock);
	return r;
}

int umad_send(int fd, int agent, void *umad, int length, int timeout_ms, int retries)
{
	struct request *r;
	int rc;

	if (timeout_ms <= 0)
		return real_send(fd, agent, umad, length, timeout_ms, retries);
	r = malloc(sizeof *r);
	if (!r)
		return -ENOMEM;
	r->fd = fd;
	r->tid = tid_of(umad);
	r->class = class_of(umad);
	r->due_ms = now_ms() + (uint64_t)timeout_ms * ((uint64_t)retries + 1);
	memcpy(&r->umad, umad, sizeof r->umad);
	r->umad.agent_id = (uint32_t)agent;
	r->umad.status = ETIMEDOUT;
	memcpy(r->header, umad_get_mad(umad), sizeof r->header);
	/* before it is sent: the answer may be faster than this thread */
	pthread_mutex_lock(&lock);
	r->next = requests;
	requests = r;
	pthread_mutex_unlock(&lock);
	rc = real_send(fd, agent, umad, length, timeout_ms, retries);
	if (rc < 0)
		free(take(fd, umad));
	return rc;
}

/* Gives back a request that is due, if there is one. */
static bool timed_out(int fd, void *umad, int *length)
{
	struct request *r = take(fd, NULL);

	if (!r)
		return false;
	memcpy(umad, &r->umad, umad_size());
	memcpy(umad_get_mad(umad), r->header, sizeof r->header);
	*length = sizeof r->header;
	free(r);
	return true;
}

/* A request of somebody else may use the same TID, and is no answer. */
static bool ends_request(void *umad)
{
	return umad_status(umad) || mad_get_field(umad_get_mad(umad), 0, IB_MAD_RESPONSE_F);
}

int umad_recv(int fd, void *umad, int *length, int timeout_ms)
{
	const uint64_t end = timeout_ms < 0 ? UINT64_MAX : now_ms() + (unsigned)timeout_ms;
	const int room = umad && length ? *length : 0;
	int rc;

	if (room < HEADER_BYTES)
		return real_recv(fd, umad, length, timeout_ms);
	for (;;) {
		uint64_t now = now_ms(), left = now < end ? end - now : 0;

		*length = room;
		rc = real_recv(fd, umad, length, left < TICK_MS ? (int)left : TICK_MS);
		if (rc >= 0 && ends_request(umad))
			free(take(fd, umad));
		if (rc != -ETIMEDOUT && rc != -EWOULDBLOCK)
			return rc;
		if (timed_out(fd, umad, length))
			return (int)((struct ib_user_mad *)umad)->agent_id;
		if (!left) {
			errno = timeout_ms ? ETIMEDOUT : EWOULDBLOCK;
			return -errno;
		}
	}
}

/* The number of the port is given to the next one that is opened. */
int umad_close_port(int fd)
{
	struct request **p = &requests, *r;

	pthread_mutex_lock(&lock);
	while ((r = *p)) {
		if (r->fd != fd) {
			p = &r->next;
			continue;
		}
		*p = r->next;
		free(r);
	}
	pthread_mutex_unlock(&lock);
	return real_close(fd);
}
