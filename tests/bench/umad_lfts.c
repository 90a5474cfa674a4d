/* SPDX-License-Identifier: GPL-2.0-or-later */
/* LFTs by SMPs over a bare libibumad, with a window: the measure for what moves cost, and a reader
 * of whole fabrics that shares no code with what is tested.
 *
 *   umad_lfts ROUTES read FILE          all blocks of all switches into FILE, 64 bytes each
 *   umad_lfts ROUTES set COUNT WINDOW RUNS   writes COUNT blocks as they are; microseconds of each
 * run
 *
 * ROUTES has a line for each switch: its number of blocks, and the ports of the directed route. */
#include "common/ib.h"
#include "common/util.h"

#include <errno.h>
#include <infiniband/umad.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLASS_DIRECT 0x81
#define GET          0x01
#define SET          0x02
#define ATTR_LFT     0x19
#define MAD_BYTES    256
#define HOPS_MAX     63
#define READ_WINDOW  32
#define TIMEOUT_MS   1000
#define RETRIES      3

struct route {
	unsigned blocks, hops;
	uint8_t path[HOPS_MAX + 1];
};

struct smp {
	const struct route *to;
	unsigned block;
	bool answered;
	uint8_t data[IB_LFT_BLOCK];
};

static struct route *routes;
static unsigned switches, port_fd, agent;
static uint32_t serial;

static void __attribute__((noreturn)) die(const char *what, const char *why)
{
	fprintf(stderr, "umad_lfts: %s: %s\n", what, why);
	exit(1);
}

static void read_routes(const char *name)
{
	char line[1024], *at, *end;
	FILE *f = fopen(name, "r");

	if (!f)
		die(name, strerror(errno));
	while (fgets(line, sizeof line, f)) {
		struct route r = {0};

		routes = realloc(routes, (switches + 1) * sizeof *routes);
		if (!routes)
			die(name, "no memory");
		r.blocks = (unsigned)strtoul(line, &at, 10);
		for (;; at = end) {
			unsigned long port = strtoul(at, &end, 10);

			if (end == at)
				break;
			if (port > 254 || r.hops == HOPS_MAX)
				die(name, "no directed route");
			r.path[++r.hops] = (uint8_t)port;
		}
		if (!r.blocks || r.blocks > IB_LID_UCAST_MAX / IB_LFT_BLOCK + 1)
			die(name, "a line begins with no number of blocks");
		routes[switches++] = r;
	}
	fclose(f);
	if (!switches)
		die(name, "empty");
}

static void open_port(void)
{
	int fd, id;

	if (umad_init() < 0 || (fd = umad_open_port(NULL, 0)) < 0)
		die("umad", "no port");
	if ((id = umad_register(fd, CLASS_DIRECT, 1, 0, NULL)) < 0)
		die("umad", "no agent");
	port_fd = (unsigned)fd;
	agent = (unsigned)id;
}

static void put16(uint8_t *p, unsigned v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

static void put32(uint8_t *p, uint32_t v)
{
	put16(p, v >> 16);
	put16(p + 2, v & 0xffff);
}

static uint32_t get32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* A directed SMP: IBA 1.4, 14.2.1.2. */
static void send_smp(uint8_t *umad, const struct smp *s, unsigned method, uint32_t tid)
{
	uint8_t *mad = umad_get_mad(umad);

	memset(umad, 0, umad_size() + MAD_BYTES);
	mad[0] = mad[2] = 1;
	mad[1] = CLASS_DIRECT;
	mad[3] = (uint8_t)method;
	mad[7] = (uint8_t)s->to->hops;
	put32(mad + 12, tid);
	put16(mad + 16, ATTR_LFT);
	put32(mad + 20, s->block);
	put32(mad + 32, 0xffffffff);
	memcpy(mad + 64, s->data, IB_LFT_BLOCK);
	memcpy(mad + 128, s->to->path, s->to->hops + 1);
	umad_set_addr(umad, 0xffff, 0, 0, 0);
	if (umad_send((int)port_fd, (int)agent, umad, MAD_BYTES, TIMEOUT_MS, RETRIES) < 0)
		die("umad_send", strerror(errno));
}

static void take_answer(uint8_t *umad, struct smp *s, unsigned count)
{
	uint8_t *mad = umad_get_mad(umad);
	int length = MAD_BYTES;
	uint32_t i;

	if (umad_recv((int)port_fd, umad, &length, TIMEOUT_MS * (RETRIES + 2)) < 0)
		die("umad_recv", strerror(errno));
	i = get32(mad + 12) - serial;
	if (i >= count || s[i].answered)
		die("umad_recv", "an answer to nothing");
	if (umad_status(umad) || (mad[4] & 0x7f) || mad[5])
		die("a switch", "no answer, or a refusal");
	s[i].answered = true;
	memcpy(s[i].data, mad + 64, IB_LFT_BLOCK);
}

/* Sends every SMP, with at most window of them without an answer. Returns microseconds. */
static uint64_t run(struct smp *s, unsigned count, unsigned method, unsigned window)
{
	uint8_t *umad = calloc(1, umad_size() + MAD_BYTES);
	unsigned sent = 0, answered = 0;
	uint64_t start = now_us();

	if (!umad)
		die("umad", "no memory");
	while (answered < count) {
		for (; sent < count && sent - answered < window; sent++) {
			s[sent].answered = false;
			send_smp(umad, &s[sent], method, serial + sent);
		}
		take_answer(umad, s, count);
		answered++;
	}
	free(umad);
	serial += count;
	return now_us() - start;
}

static void read_all(const char *name)
{
	FILE *f = fopen(name, "wb");

	if (!f)
		die(name, strerror(errno));
	for (unsigned i = 0; i < switches; i++) {
		struct smp *s = calloc(routes[i].blocks, sizeof *s);

		if (!s)
			die(name, "no memory");
		for (unsigned k = 0; k < routes[i].blocks; k++)
			s[k] = (struct smp){.to = &routes[i], .block = k};
		run(s, routes[i].blocks, GET, READ_WINDOW);
		for (unsigned k = 0; k < routes[i].blocks; k++)
			fwrite(s[k].data, sizeof s[k].data, 1, f);
		free(s);
	}
	if (fclose(f))
		die(name, strerror(errno));
}

/* Round and round the switches, a block of each, as a move does. */
static void set_some(unsigned count, unsigned window, unsigned runs)
{
	struct smp *s = calloc(count, sizeof *s);

	if (!s || !count || !window)
		die("set", "COUNT and WINDOW are numbers above 0");
	for (unsigned i = 0; i < count; i++) {
		const struct route *r = &routes[i % switches];

		s[i] = (struct smp){.to = r, .block = i / switches % r->blocks};
	}
	run(s, count, GET, READ_WINDOW);
	for (unsigned i = 0; i < runs; i++)
		printf("%llu\n", (unsigned long long)run(s, count, SET, window));
	free(s);
}

int main(int argc, char **argv)
{
	if (argc == 4 && str_eq(argv[2], "read")) {
		read_routes(argv[1]);
		open_port();
		read_all(argv[3]);
	} else if (argc == 6 && str_eq(argv[2], "set")) {
		read_routes(argv[1]);
		open_port();
		set_some((unsigned)atoi(argv[3]), (unsigned)atoi(argv[4]), (unsigned)atoi(argv[5]));
	} else {
		die("usage", "umad_lfts ROUTES read FILE | set COUNT WINDOW RUNS");
	}
	umad_close_port((int)port_fd);
	return 0;
}
