/* SPDX-License-Identifier: GPL-2.0-or-later */
/* GET /metrics: what a monitoring system watches, in Prometheus' text format. */
#ifndef IBVMIG_DAEMON_REPORT_METRICS_H
#define IBVMIG_DAEMON_REPORT_METRICS_H

#include <stdint.h>

struct daemon;
struct http_request;
struct json_object;

void metrics_get(struct http_request *req);

/* The listener of the daemon's events: the times of a migration that has ended go into the
 * histograms. */
void metrics_heard(void *d, struct json_object *event);

#endif
