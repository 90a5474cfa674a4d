/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A migration's timeline as a picture. */
#ifndef IBVMIG_DAEMON_CLI_SVG_H
#define IBVMIG_DAEMON_CLI_SVG_H

#include <json-c/json.h>
#include <stdio.h>

/* timeline: the daemon's answer. The whole on top, the time without RDMA below it on a scale of its
 * own. */
void cli_svg_timeline(FILE *out, struct json_object *timeline);

#endif
