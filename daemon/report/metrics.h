/* SPDX-License-Identifier: GPL-2.0-or-later */
/* GET /metrics: what a monitoring system watches, in Prometheus' text format. */
#ifndef IBVMIG_DAEMON_REPORT_METRICS_H
#define IBVMIG_DAEMON_REPORT_METRICS_H

struct http_request;
struct migration;

void metrics_get(struct http_request *req);

/* m: has just ended. Counts it, and its times go into the histograms. */
void metrics_count(const struct migration *m);

#endif
