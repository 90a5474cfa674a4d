/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Counts of a checked workload, and the JSON files that show them while it runs and at the end. */
#ifndef IBVMIG_TESTS_RDMA_STATS_H
#define IBVMIG_TESTS_RDMA_STATS_H

#include <stdbool.h>
#include <stdint.h>

#define STATS_GAPS       256
#define STATS_QPS        16
#define STATS_GAP_MIN_US 100000

struct stats_gap {
	uint64_t ended_wall_ms, us;
};

struct stats {
	uint64_t sent, received, lost, duplicated, corrupt;
	uint64_t writes, reads, bytes;
	uint64_t foreign;          /* of another partition: never to be seen */
	uint64_t received_least;   /* by the QP that has received the fewest */
	uint64_t by_qp[STATS_QPS]; /* received by each */
	unsigned qps;              /* so many are told of */
	uint64_t last_us;          /* time of the latest arrival */
	uint64_t max_gap_us, gap_count;
	struct stats_gap gaps[STATS_GAPS]; /* gaps of at least STATS_GAP_MIN_US; the latest ones */
	char first_error[176]; /* error of the first message that was not as it should be, with the
				* time, UTC */
};

uint64_t stats_now_us(void);
/* A message has arrived now. */
void stats_arrival(struct stats *s);
void stats_complain(struct stats *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Replaces the file in one step. */
void stats_write(const struct stats *s, const char *path, bool ended);

#endif
