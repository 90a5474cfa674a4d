/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The options of rdma_check.
 *
 *   rdma_check [options]          waits for its peer
 *   rdma_check [options] HOST     connects to it over TCP (for numbers and the final count only)
 *
 *   -d DEVICE                     the first
 *   -g GID-INDEX (0)
 *   -L                            connect by LID, without a GRH (InfiniBand)
 *   -P P_KEY[,P_KEY...]           of the QPs, one after the other, as 0x8001 (at most PKEYS_MAX). A
 *                                 QP more has the last one; without -P they have that at index 0
 *   -p TCP-PORT (18700)
 *   -q QPS (1)
 *   -t SECONDS (0)                0: until SIGTERM
 *   -V SL (0)                     of the QPs, as perftest's -S
 *   -T EXPONENT (21)              of the QPs' timeout, 4.096 us * 2^n
 *   -o FILE                       result and live status, JSON
 *   -i MS (100)                   between two writes of it, and two looks at what ends the program
 *
 *   -r MESSAGES/S (500)           of each QP
 *   -m MAX-BYTES (16384)          of a message
 *   -l                            sizes from 1 byte on, each power of 2 as likely as the others
 *   -s SEED (0)                   of all that is left to chance
 *   -w SLOTS (64)                 of each ring, a power of 2: 4 x SLOTS x MAX-BYTES for each QP
 *   -u                            over UC, without READs
 *   -x                            extended verbs: ibv_create_qp_ex and ibv_wr_*, ibv_start_poll
 *   -e                            sleep on a completion channel
 *   -S                            all QPs on one shared receive queue
 *   -A                            atomics as well
 *   -N                            no READs: rxe of Linux 6.1 mishandles READs and atomics that it
 *                                 sends again, as it does after RNR (docs/lab.md)
 *
 *   -R RECEIVES (SLOTS)           posted at a time
 *   -k PERCENT (0)                of the receives make those after it wait up to 30 ms (RNR)
 *   -n CODE (24)                  of the time after which the peer tries again (RNR), 41 ms
 *   -z FILE                       sleep as long as FILE exists: the peer's sends then wait (RNR)
 *   -D MIB,MIB/S                  dirty that much memory at that rate */
#ifndef IBVMIG_TESTS_RDMA_CHECK_OPTIONS_H
#define IBVMIG_TESTS_RDMA_CHECK_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#define SLOTS_MAX 64 /* slots of the ring, and receives posted */
#define QPS_MAX   256
#define PKEYS_MAX 8

extern struct check_options {
	const char *device, *host, *output, *stall;
	unsigned port, qps, rate, dirty_mib, dirty_rate, receives, slots, withhold;
	int gid_index, pkeys[PKEYS_MAX]; /* 0: none is asked for */
	uint64_t status_us;
	double seconds;
	bool events, uc, extended, srq, atomics, no_reads;
} check_options;

/* Fills check_options, message_rules and what rdma_conn.h has, or dies. */
void check_options_parse(int argc, char **argv);

#endif
