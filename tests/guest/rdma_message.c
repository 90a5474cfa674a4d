/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/guest/rdma_message.h"

#include <string.h>

struct message_rules message_rules = {.max_bytes = 16384};

uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ull;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

uint64_t chance(enum chance what, uint64_t n)
{
	return mix(mix(message_rules.seed * 8 + what) + n);
}

enum kind kind_of(uint64_t n)
{
	return (enum kind)(chance(CHANCE_KIND, n) % 3);
}

uint32_t log_size(uint64_t random, uint32_t max)
{
	unsigned bits = 0;
	uint64_t bytes;

	while (max >> bits)
		bits++;
	bytes = 1ull << (random % bits);
	bytes += (random >> 8) % bytes;
	return bytes < max ? (uint32_t)bytes : max;
}

uint32_t bytes_of(uint64_t n)
{
	uint64_t room = message_rules.max_bytes - sizeof(struct message),
		 r = chance(CHANCE_BYTES, n);

	return message_rules.log_sizes ? log_size(r, message_rules.max_bytes)
				       : (uint32_t)(sizeof(struct message) + 1 + r % room);
}

/* FNV-1a over 32-bit words; the tail is covered byte by byte. */
static uint32_t sum(const uint8_t *p, size_t n)
{
	uint32_t h = 2166136261u, w;

	for (; n >= 4; p += 4, n -= 4) {
		memcpy(&w, p, 4);
		h = (h ^ w) * 16777619u;
	}
	while (n--)
		h = (h ^ *p++) * 16777619u;
	return h;
}

/* A message without room for the header: its number, then what follows from it. */
static void fill_short(uint8_t *p, uint64_t n, uint32_t bytes)
{
	uint64_t more = mix(n);

	for (uint32_t i = 0; i < bytes; i++)
		p[i] = (uint8_t)(i < 8 ? n >> (8 * i) : more >> (8 * (i - 8)));
}

uint64_t message_number(const void *message, uint32_t bytes, uint64_t near)
{
	uint64_t low = 0, mask = bytes < 8 ? (1ull << (8 * bytes)) - 1 : ~0ull, ahead;

	memcpy(&low, message, bytes < 8 ? bytes : 8);
	if (bytes >= 8)
		return low;
	ahead = (low - near) & mask;
	return ahead <= mask / 2 ? near + ahead : near - (mask - ahead + 1);
}

void message_fill(struct message *m, uint64_t n)
{
	uint32_t word = (uint32_t)mix(n), bytes = bytes_of(n);

	if (bytes < sizeof *m) {
		fill_short((uint8_t *)m, n, bytes);
		return;
	}
	m->n = n;
	m->bytes = bytes;
	m->checksum = 0;
	for (uint32_t i = 0; i < bytes - sizeof *m; i++)
		m->payload[i] = (uint8_t)(word >> (i % 4 * 8)) + (uint8_t)i;
	m->checksum = sum((uint8_t *)m, bytes);
}

bool message_intact(struct message *m, uint64_t n)
{
	uint32_t want = m->checksum, bytes = bytes_of(n);
	uint8_t expected[sizeof *m];

	if (bytes < sizeof *m) {
		fill_short(expected, n, bytes);
		return !memcmp(m, expected, bytes);
	}
	if (m->n != n || m->bytes != bytes)
		return false;
	m->checksum = 0;
	return sum((uint8_t *)m, m->bytes) == want;
}
