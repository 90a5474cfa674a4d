/* SPDX-License-Identifier: GPL-2.0-or-later */
/* PREPARE asks the peers of a VM by these, and the dry run as well. */
#ifndef IBVMIG_DAEMON_MIGRATE_ASK_H
#define IBVMIG_DAEMON_MIGRATE_ASK_H

struct json_object;
struct settings;

/* In a worker. peer: {"guid"}, to which "host", "vm" and "url" are added; one with a URL is left as
 * it is. 0, or -errno with a line in why. */
int ask_find_peer(const struct settings *s, struct json_object *peer, char *why);
/* In a worker. Peers' agents are asked through their host, whether they could be suspended. body:
 * {"migration","vguids","guids"}, to which agent_ms is added: how long an agent has for its answer.
 * 0, or -errno with a line in why. */
int ask_peers_at(const char *url, struct json_object *body, unsigned agent_ms, char *why);

#endif
