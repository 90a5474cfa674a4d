/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Connects RC or UC QPs of two programs as perftest does: numbers over TCP, then INIT, RTR, RTS. */
#ifndef IBVMIG_TESTS_RDMA_CONN_H
#define IBVMIG_TESTS_RDMA_CONN_H

#include <stddef.h>
#include <stdint.h>
#include <infiniband/verbs.h>

/* The two sides tell each other this of one QP. Both are little-endian. */
struct conn_qp {
	uint32_t qpn, psn;
	uint32_t ring_rkey, fixed_rkey;
	uint64_t ring_addr, ack_addr, fixed_addr; /* the other side may write there, and read */
	uint8_t gid[16];
	uint16_t lid; /* 0 on RoCE */
	uint8_t reserved[6];
};

/* In place of a GID index: connect by LID, without a GRH. */
#define CONN_BY_LID (-1)

/* Prints one line on stderr and exits with 1: for a workload nothing can be mended. */
void die(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Returns the number behind -option; dies with the allowed range. */
unsigned option_number(const char *text, unsigned min, unsigned max, char option);

/* host NULL: waits for one peer; else tries for 30 s. A connected socket. */
int conn_tcp(const char *host, unsigned port);
/* Whole buffers both ways. */
void conn_swap(int fd, const void *mine, void *theirs, size_t bytes);

extern uint8_t conn_timeout;   /* the QPs': 4.096 us * 2^n; after 8 times that a peer is dead */
extern uint8_t conn_sl;        /* service level, as the user gives it */
extern uint8_t conn_rnr_timer; /* the timer's code, IBA 1.4 table 45: 12 is 0.64 ms, 24 is 41 ms */

struct ibv_context *conn_open(const char *device); /* NULL: the first */
/* Index of the P_Key on port 1, or dies; 0 for P_Key 0, which asks for none. */
uint16_t conn_pkey_index(struct ibv_context *ctx, int pkey);
/* The address at which port 1 is reached. */
void conn_address(struct ibv_context *ctx, int gid_index, struct conn_qp *ret_me);
void conn_up(struct ibv_qp *qp, const struct conn_qp *me, const struct conn_qp *peer,
	     int gid_index);

#endif
