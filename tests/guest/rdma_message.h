/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Numbered, checksummed messages. Kind and size of message n of a QP, and all else that is left to
 * chance, follow from n and a seed, so both ends know them. */
#ifndef IBVMIG_TESTS_RDMA_MESSAGE_H
#define IBVMIG_TESTS_RDMA_MESSAGE_H

#include <stdbool.h>
#include <stdint.h>

enum chance { CHANCE_KIND, CHANCE_BYTES, CHANCE_SIGNAL, CHANCE_READ, CHANCE_WITHHOLD };

enum kind { KIND_SEND, KIND_WRITE_IMM, KIND_WRITE_AND_SEND };

/* A message that is too short for this is a few bytes of its number. */
struct message {
	uint64_t n;        /* 1, 2, 3 … for each QP and direction */
	uint32_t bytes;    /* size of the whole message */
	uint32_t checksum; /* checksum of the whole message, with this field 0 */
	uint8_t payload[];
};

/* The same at both ends, set before the first message. */
extern struct message_rules {
	uint64_t seed;
	uint32_t max_bytes; /* at least 256 */
	bool log_sizes;     /* from 1 byte on, each power of 2 as likely as the others */
} message_rules;

uint64_t mix(uint64_t x); /* splitmix64 */
uint64_t chance(enum chance what, uint64_t n);
enum kind kind_of(uint64_t n);
uint32_t bytes_of(uint64_t n);
/* 1 to max. */
uint32_t log_size(uint64_t random, uint32_t max);
/* Writes message n, bytes_of(n) bytes. */
void message_fill(struct message *m, uint64_t n);
/* Returns whether it is message n; changes its checksum field. */
bool message_intact(struct message *m, uint64_t n);
/* The number that a message of that size bears: short ones bear its low bits, and it is near. */
uint64_t message_number(const void *message, uint32_t bytes, uint64_t near);

#endif
