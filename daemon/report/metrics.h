/* SPDX-License-Identifier: GPL-2.0-or-later */
/* GET /metrics: what a monitoring system watches, in Prometheus' text format. */
#ifndef IBVMIG_DAEMON_REPORT_METRICS_H
#define IBVMIG_DAEMON_REPORT_METRICS_H

#include <stdint.h>

struct daemon;
struct http_request;
struct migration;

void metrics_get(struct http_request *req);

/* A migration has ended: its times go into the histograms. */
void metrics_ended(const struct migration *m);

#endif
