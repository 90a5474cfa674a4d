/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Asks for path records as fast as the answers come, like the flood of clients that reconnect at
 * once. Says in one line of JSON what was served and how long each question took.
 *
 *   sa_flood sa SM_LID  CLIENTS IN_FLIGHT SECONDS <PAIRS
 *   sa_flood service SOCKET[,BATCH] CLIENTS IN_FLIGHT SECONDS <PAIRS
 *
 * sa: PathRecord queries to the SA through libibumad. CLIENTS above 1 are a stand-in for clients
 * with ports of their own: they share this process's umad port. service: the same to ibvmig-sm's
 * path record service, each client on a connection of its own, BATCH records a question. IN_FLIGHT:
 * questions that each client has open; 1 is SIF (single in flight), more MIF. PAIRS: lines of two
 * port GUIDs; each client walks over them from a place of its own. */
#include <endian.h>
#include <errno.h>
#include <infiniband/umad.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "common/util.h"
#include "sm-helper/paths/wire.h"

#define PAIRS_MAX   4096
#define CLIENTS_MAX 256
#define FLIGHT_MAX  256
#define SAMPLES_MAX (1u << 22)
#define LOST_MS     3000 /* nothing has come for so long: what is open counts as lost */

#define MAD_BYTES     256
#define SA_CLASS      3
#define SA_DATA_AT    56
#define ATTR_PATH     0x35
#define METHOD_GET    1
#define QP1_QKEY      0x80010000u
#define MASK_DGID     (1ull << 2)
#define MASK_SGID     (1ull << 3)
#define MASK_NUM_PATH (1ull << 12)

struct flood {
	unsigned clients, in_flight, batch, pairs;
	uint64_t guid[PAIRS_MAX][2];
	unsigned next[CLIENTS_MAX]; /* pair that a client asks for next */
	uint64_t end_us;
	uint64_t asked_us[CLIENTS_MAX * FLIGHT_MAX]; /* 0: not open */
	uint32_t serial[CLIENTS_MAX * FLIGHT_MAX];
	uint64_t asked, served, none, failed, lost;
	uint32_t *sample; /* microseconds; owned */
	size_t samples;
};

static struct flood flood;

static const uint64_t *next_pair(unsigned client)
{
	return flood.guid[flood.next[client]++ % flood.pairs];
}

static void open_question(unsigned slot)
{
	flood.asked_us[slot] = now_us();
	flood.serial[slot]++;
	flood.asked += flood.batch;
}

/* False: not one of ours, or of before. */
static bool close_question(unsigned slot, uint32_t serial)
{
	if (slot >= flood.clients * flood.in_flight || flood.serial[slot] != serial ||
	    !flood.asked_us[slot])
		return false;
	if (flood.samples < SAMPLES_MAX)
		flood.sample[flood.samples++] = (uint32_t)(now_us() - flood.asked_us[slot]);
	flood.asked_us[slot] = 0;
	return true;
}

/* ---- the SA ---- */

struct sa {
	int port, agent, lid;
	void *out, *in; /* owned */
};

static void be64_at(uint8_t *to, uint64_t v)
{
	v = htobe64(v);
	memcpy(to, &v, sizeof v);
}

/* The TID's low half: the slot, and a serial number in its upper 16 bits. */
static int sa_ask(struct sa *sa, unsigned slot)
{
	const uint64_t *pair = next_pair(slot / flood.in_flight);
	uint8_t *mad = umad_get_mad(sa->out);

	memset(sa->out, 0, umad_size() + MAD_BYTES);
	umad_set_addr(sa->out, sa->lid, 1, 0, (int)QP1_QKEY);
	mad[0] = 1;
	mad[1] = SA_CLASS;
	mad[2] = 2;
	mad[3] = METHOD_GET;
	open_question(slot);
	be64_at(mad + 8, (uint64_t)(flood.serial[slot] & 0xffff) << 16 | slot);
	mad[17] = ATTR_PATH;
	be64_at(mad + 48, MASK_DGID | MASK_SGID | MASK_NUM_PATH);
	be64_at(mad + SA_DATA_AT + 8, IB_GID_PREFIX_LL);
	be64_at(mad + SA_DATA_AT + 16, pair[1]);
	be64_at(mad + SA_DATA_AT + 24, IB_GID_PREFIX_LL);
	be64_at(mad + SA_DATA_AT + 32, pair[0]);
	mad[SA_DATA_AT + 49] = 1; /* one path */
	return umad_send(sa->port, sa->agent, sa->out, MAD_BYTES, 2000, 0);
}

static void sa_take(struct sa *sa)
{
	const uint8_t *mad = umad_get_mad(sa->in);
	unsigned slot = (unsigned)mad[14] << 8 | mad[15];
	uint32_t serial = (uint32_t)mad[12] << 8 | mad[13];

	if (slot >= flood.clients * flood.in_flight || (flood.serial[slot] & 0xffff) != serial ||
	    !close_question(slot, flood.serial[slot]))
		return;
	if (umad_status(sa->in))
		flood.lost++;
	else if (mad[4] || mad[5])
		flood.none++;
	else
		flood.served++;
	if (now_us() < flood.end_us && sa_ask(sa, slot) < 0)
		flood.failed++;
}

static int sa_open(struct sa *sa, const char *lid)
{
	sa->lid = atoi(lid);
	if (umad_init() < 0 || (sa->port = umad_open_port(NULL, 0)) < 0)
		return -ENODEV;
	/* umad_size() is known from here on */
	sa->out = calloc(1, umad_size() + MAD_BYTES);
	sa->in = calloc(1, umad_size() + MAD_BYTES);
	if (!sa->out || !sa->in)
		return -ENOMEM;
	sa->agent = umad_register(sa->port, SA_CLASS, 2, 0, NULL);
	return sa->agent < 0 ? -ENODEV : 0;
}

static bool all_closed(void)
{
	for (unsigned i = 0; i < flood.clients * flood.in_flight; i++)
		if (flood.asked_us[i])
			return false;
	return true;
}

/* Counts open questions as lost, and asks them anew while there is time. */
static void sa_lost(struct sa *sa)
{
	for (unsigned i = 0; i < flood.clients * flood.in_flight; i++) {
		flood.lost += flood.asked_us[i] != 0;
		flood.asked_us[i] = 0;
		if (now_us() < flood.end_us && sa_ask(sa, i) < 0)
			flood.failed++;
	}
}

static int flood_sa(const char *lid)
{
	struct sa sa = {.port = -1};
	int rc = sa_open(&sa, lid);

	for (unsigned i = 0; !rc && i < flood.clients * flood.in_flight; i++)
		if (sa_ask(&sa, i) < 0)
			rc = -EIO;
	while (!rc && !all_closed()) {
		int length = MAD_BYTES;

		if (umad_recv(sa.port, sa.in, &length, LOST_MS) < 0)
			sa_lost(&sa);
		else
			sa_take(&sa);
	}
	if (sa.port >= 0)
		umad_close_port(sa.port);
	free(sa.out);
	free(sa.in);
	return rc;
}

/* ---- the path record service ---- */

struct link {
	int fd;
	size_t have;
	uint8_t in[PATH_WIRE_HEAD_BYTES + PATH_WIRE_MAX * PATH_WIRE_REPLY_BYTES];
};

static int service_ask(struct link *l, unsigned slot)
{
	static uint8_t out[PATH_WIRE_HEAD_BYTES + PATH_WIRE_MAX * PATH_WIRE_QUERY_BYTES];
	struct path_wire_head h = {.count = (uint16_t)flood.batch};
	size_t bytes = PATH_WIRE_HEAD_BYTES + (size_t)flood.batch * PATH_WIRE_QUERY_BYTES;

	open_question(slot);
	h.id = (flood.serial[slot] & 0xffff) << 16 | slot;
	path_wire_put_head(out, &h);
	for (unsigned i = 0; i < flood.batch; i++) {
		const uint64_t *pair = next_pair(slot / flood.in_flight);
		const struct path_query q = {
			{IB_GID_PREFIX_LL, pair[0]}, {IB_GID_PREFIX_LL, pair[1]}, 0};

		path_wire_put_query(out + PATH_WIRE_HEAD_BYTES + i * PATH_WIRE_QUERY_BYTES, &q);
	}
	return send(l->fd, out, bytes, MSG_NOSIGNAL) == (ssize_t)bytes ? 0 : -EIO;
}

static int service_take_one(struct link *l, const struct path_wire_head *h)
{
	unsigned slot = h->id & 0xffff;

	if (h->count != flood.batch || slot >= flood.clients * flood.in_flight ||
	    (flood.serial[slot] & 0xffff) != h->id >> 16 ||
	    !close_question(slot, flood.serial[slot]))
		return -EPROTO;
	for (unsigned i = 0; i < h->count; i++) {
		struct path_answer a;

		path_wire_get_answer(l->in + PATH_WIRE_HEAD_BYTES + i * PATH_WIRE_REPLY_BYTES, &a);
		flood.served += !a.error;
		flood.none += a.error == -ENOENT;
		flood.failed += a.error && a.error != -ENOENT;
	}
	return now_us() < flood.end_us ? service_ask(l, slot) : 0;
}

static int service_take(struct link *l)
{
	ssize_t n = recv(l->fd, l->in + l->have, sizeof l->in - l->have, 0);
	struct path_wire_head h;
	size_t bytes;
	int rc;

	if (n <= 0)
		return -EIO;
	l->have += (size_t)n;
	while (l->have >= PATH_WIRE_HEAD_BYTES) {
		if (path_wire_get_head(l->in, &h))
			return -EPROTO;
		bytes = PATH_WIRE_HEAD_BYTES + (size_t)h.count * PATH_WIRE_REPLY_BYTES;
		if (l->have < bytes)
			break;
		if ((rc = service_take_one(l, &h)))
			return rc;
		l->have -= bytes;
		memmove(l->in, l->in + bytes, l->have);
	}
	return 0;
}

static int service_connect(const char *path)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd AUTO_CLOSE = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || strlen(path) >= sizeof a.sun_path)
		return -EINVAL;
	strcpy(a.sun_path, path);
	if (connect(fd, (struct sockaddr *)&a, sizeof a))
		return -errno;
	return TAKE_FD(fd);
}

static int flood_service(const char *path)
{
	static struct link link[CLIENTS_MAX];
	struct pollfd p[CLIENTS_MAX];
	int rc = 0;

	for (unsigned i = 0; !rc && i < flood.clients; i++) {
		link[i].fd = service_connect(path);
		p[i] = (struct pollfd){.fd = link[i].fd, .events = POLLIN};
		rc = link[i].fd < 0 ? link[i].fd : 0;
		for (unsigned k = 0; !rc && k < flood.in_flight; k++)
			rc = service_ask(&link[i], i * flood.in_flight + k);
	}
	while (!rc && !all_closed()) {
		if (poll(p, flood.clients, LOST_MS) <= 0)
			return -ETIMEDOUT;
		for (unsigned i = 0; !rc && i < flood.clients; i++)
			if (p[i].revents)
				rc = service_take(&link[i]);
	}
	return rc;
}

/* ---- ---- */

static int compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

static void report(const char *via, uint64_t start_us)
{
	double seconds = (double)(now_us() - start_us) / 1e6, sum = 0, squares = 0, mean;
	size_t n = flood.samples;

	qsort(flood.sample, n, sizeof flood.sample[0], compare);
	for (size_t i = 0; i < n; i++)
		sum += flood.sample[i];
	mean = n ? sum / (double)n : 0;
	for (size_t i = 0; i < n; i++)
		squares += (flood.sample[i] - mean) * (flood.sample[i] - mean);
	printf("{\"via\": \"%s\", \"clients\": %u, \"in_flight\": %u, \"batch\": %u, \"asked\": "
	       "%" PRIu64 ", \"served\": %" PRIu64 ", \"none\": %" PRIu64 ", \"failed\": %" PRIu64
	       ", \"lost\": %" PRIu64
	       ", \"seconds\": %.3f, \"served_per_s\": %.0f, \"mean_us\": %.1f, "
	       "\"median_us\": %u, \"p99_us\": %u, \"deviation_us\": %.1f}\n",
	       via, flood.clients, flood.in_flight, flood.batch, flood.asked, flood.served,
	       flood.none, flood.failed, flood.lost, seconds, (double)flood.served / seconds, mean,
	       n ? flood.sample[n / 2] : 0, n ? flood.sample[n * 99 / 100] : 0,
	       n ? sqrt(squares / (double)n) : 0);
}

static int usage(void)
{
	fputs("usage: sa_flood sa SM_LID CLIENTS IN_FLIGHT SECONDS <PAIRS\n"
	      "       sa_flood service SOCKET[,BATCH] CLIENTS IN_FLIGHT SECONDS <PAIRS\n",
	      stderr);
	return 2;
}

static int read_arguments(char **argv)
{
	uint64_t clients, in_flight, seconds, batch = 1;
	char *comma = strchr(argv[2], ',');

	if (parse_u64(argv[3], 1, CLIENTS_MAX, &clients) ||
	    parse_u64(argv[4], 1, FLIGHT_MAX, &in_flight) || parse_u64(argv[5], 1, 3600, &seconds))
		return -EINVAL;
	if (comma) {
		*comma = '\0';
		if (parse_u64(comma + 1, 1, PATH_WIRE_MAX, &batch))
			return -EINVAL;
	}
	flood.clients = (unsigned)clients;
	flood.in_flight = (unsigned)in_flight;
	flood.batch = (unsigned)batch;
	while (flood.pairs < PAIRS_MAX && scanf("%" SCNx64 " %" SCNx64, &flood.guid[flood.pairs][0],
						&flood.guid[flood.pairs][1]) == 2)
		flood.pairs++;
	for (unsigned i = 0; flood.pairs && i < flood.clients; i++)
		flood.next[i] = i * flood.pairs / flood.clients;
	flood.end_us = now_us() + seconds * 1000000;
	flood.sample = malloc(SAMPLES_MAX * sizeof flood.sample[0]);
	return flood.pairs && flood.sample ? 0 : -EINVAL;
}

int main(int argc, char **argv)
{
	uint64_t start;
	bool sa;
	int rc;

	if (argc != 6 || read_arguments(argv))
		return usage();
	sa = !strcmp(argv[1], "sa");
	if (!sa && strcmp(argv[1], "service"))
		return usage();
	start = now_us();
	rc = sa ? flood_sa(argv[2]) : flood_service(argv[2]);
	if (rc) {
		fprintf(stderr, "sa_flood: %s\n", strerror(-rc));
		return 1;
	}
	report(argv[1], start);
	return 0;
}
