/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Path records, from the agent's cache. */
#ifndef IBVMIG_GUEST_AGENT_SHIM_PEER_ROUTE_H
#define IBVMIG_GUEST_AGENT_SHIM_PEER_ROUTE_H

#include "guest-agent/shim/core/objects.h"

#pragma GCC visibility push(hidden)
/* The route, made if it is not there yet. NULL without memory, or above ROUTES_MAX. */
#define ROUTES_MAX 65536u
struct shim_route *route_get(const uint8_t sgid[16], const uint8_t dgid[16], uint16_t pkey);
/* route_answered() will be called. reconnect: at a resume; the agent's counters keep that apart. */
void route_ask(struct shim_route *r, bool reconnect);
/* The answer came with that to another question. */
void route_told(const uint8_t sgid[16], uint16_t pkey, const struct shim_end *end);
/* Asks anew and waits for the answer, as route_wait(). A path that is known may be of before a move
 * of the other end, of which a process without a QP to it has not heard. The agent has. A
 * question that has failed is asked again after 10 s. */
void route_renew(struct shim_route *r);
/* Waits for the answer to a question that is open, inside a control verb, which is left meanwhile.
 */
void route_wait(const struct shim_route *r);
/* The agent has gone with the questions that are open: the new one is asked. */
void routes_ask_again(void);
/* In a child: nobody answers the questions of its parent. */
void routes_forget_all(void);
/* true: the record is another one than it was; it is .untaken now. */
bool route_answered(const struct shim_path *p);
/* The agent does not know the record of that way any more; without p->dgid, none. true: there is
 * such a way. */
bool route_stale(const struct shim_path *p);
/* Something is built on that way: a record that is stale is asked for. true: it has been. */
bool route_refresh(const uint8_t sgid[16], const uint8_t dgid[16], uint16_t pkey);
/* The agent tells that the record of a way has changed. true: there is such a way, and its record
 * was another one; it is .untaken now. */
bool route_changed(const struct shim_path *p);
/* Looks at a way, which it does not make, for who is built on it: true if it is .untaken. */
bool route_untaken(const uint8_t sgid[16], const uint8_t dgid[16], uint16_t pkey);
/* Somebody has looked once at everything that is built on ways. */
void routes_taken(void);
/* True if a path is known, or was before the last question. */
static inline bool route_leads(const struct shim_route *r)
{
	return r->state == ROUTE_KNOWN || r->path.dlid;
}
/* The largest MTU that a path of so many bytes can carry. */
enum ibv_mtu route_mtu(unsigned bytes);
/* Puts the path record into the attributes for RTR. On RoCE nothing changes, because there is no
 * path beyond the GIDs; nor where r is NULL or not known. */
void route_apply(const struct shim_route *r, struct ibv_qp_attr *a);
#pragma GCC visibility pop

#endif
