/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Makes the lab's data path obey the simulated fabric.
 *
 * Guests' packets travel over Linux bridges, which would not notice a wrong LFT. So these bridges
 * forward a VF's MAC only by static entries, and each entry is the end of a walk. The walk leads
 * from the sender's vSwitch along the LFTs, as read by SMPs.
 *
 * A guest of InfiniBand sends to the MAC of a LID or MLID. Wherever the tables lead, the packet is
 * delivered. A guest of RoCE sends to the MAC of a vGUID. Here the walk takes the LID that senders
 * use for it (what path records say). The walk must end at a port that shows the vGUID; else there
 * is no entry, and the guests cannot talk. */
#include "common/log.h"
#include "common/util.h"
#include "tests/lab/datapath/enforce.h"
#include "tests/lab/datapath/fabric.h"
#include "tests/lab/datapath/fdb.h"
#include "tests/lab/datapath/registry.h"
#include "tests/lab/rxe/ib_wire.h"
#include "tests/lab/tap.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/timerfd.h>

#define HOSTS_MAX   16
#define VGUIDS_MAX  REGISTRY_MAX
#define LFT_MS      5    /* between two looks at the LFTs */
#define IDLE_MS     50   /* while no VM has a VF */
#define PORTS_MS    50   /* GUIDs and LIDs of the adapters; at once where an LFT changed */
#define DISCOVER_MS 3000 /* links and nodes, whatever switches say */
#define LINKS_MS                                                                                   \
	100 /* the same while a switch says that a port has changed; an SM that is                 \
	     * not there leaves it at that */
#define PARKED_PREFIX 0x00fab0fffe000000ull
#define PARKED_MASK   0xffffffffff000000ull

struct vguid {
	uint64_t guid;
	unsigned lid; /* LID that senders use; 0: not known yet */
	int node;     /* the adapter that shows it, or -1 */
	bool listed;  /* by the registry */
	bool reaches; /* in the last round, from everywhere */
};

struct datapath {
	bool infiniband; /* guests send to LIDs */
	bool shared;     /* the same, and VFs share their host's LID */
	struct fabric fabric;
	struct fdb hosts[HOSTS_MAX];
	struct enforce enforce[HOSTS_MAX];
	int host_count;
	struct vguid vguids[VGUIDS_MAX];
	int vguid_count;
	uint64_t registry_version;
	uint64_t ports_at, discovered_at;
};

static struct vguid *find_vguid(struct datapath *d, uint64_t guid)
{
	for (int i = 0; i < d->vguid_count; i++)
		if (d->vguids[i].guid == guid)
			return &d->vguids[i];
	if (d->vguid_count == VGUIDS_MAX)
		return NULL;
	d->vguids[d->vguid_count] = (struct vguid){.guid = guid, .node = -1};
	return &d->vguids[d->vguid_count++];
}

/* Adapters show a vGUID where a VM has their VF. The LID that was learnt first stays what senders
 * use: they do not notice what an SM that has not moved the LID did to the port. */
static void note_adapters(struct datapath *d)
{
	for (int i = 0; i < d->vguid_count; i++)
		d->vguids[i].node = -1;
	for (int i = 0; i < d->fabric.count; i++) {
		const struct fabric_node *n = &d->fabric.nodes[i];
		struct vguid *v;

		if (n->is_switch || !strstr(n->name, "vf") ||
		    (n->port_guid & PARKED_MASK) == PARKED_PREFIX)
			continue;
		v = find_vguid(d, n->port_guid);
		if (!v)
			continue;
		v->node = i;
		if (!v->lid)
			v->lid = n->lid;
	}
}

/* The registry's word counts more; what neither it nor a port shows any longer is forgotten. */
static void note_registry(struct datapath *d, bool *ret_changed)
{
	static struct registry_entry entries[REGISTRY_MAX];
	uint64_t version;
	int n = registry_read(entries, &version);

	if (version != d->registry_version)
		*ret_changed = true;
	d->registry_version = version;
	for (int i = 0; i < d->vguid_count; i++)
		d->vguids[i].listed = n < 0; /* nobody was asked: keep all */
	for (int i = 0; i < n; i++) {
		struct vguid *v = find_vguid(d, entries[i].vguid);

		if (!v)
			continue;
		v->listed = true;
		if (entries[i].lid)
			v->lid = entries[i].lid;
		if (v->lid > d->fabric.lid_top && v->lid < FABRIC_LIDS_MAX)
			d->fabric.lid_top = v->lid;
	}
	for (int i = 0; i < d->vguid_count; i++)
		if (d->vguids[i].node < 0 && !d->vguids[i].listed) {
			d->vguids[i--] = d->vguids[--d->vguid_count];
			*ret_changed = true;
		}
}

/* The tap of the only VF in use: its guest's packets have the LID of the host's port. */
static const char *only_tap(const struct fdb *host, char text[static IF_NAMESIZE])
{
	for (int i = 0; i < host->port_count; i++)
		if (!strncmp(host->ports[i].name, "tap-", 4)) {
			snprintf(text, IF_NAMESIZE, "%s", host->ports[i].name);
			return text;
		}
	return NULL;
}

/* The bridge port of this host that leads to the VF, into text; NULL where the node has none. With
 * LIDs that are shared it leads to the VF of the host whose port it is. */
static const char *port_towards(const struct datapath *d, const struct fdb *host, int node,
				char text[static IF_NAMESIZE])
{
	const char *name = node < 0 ? "" : d->fabric.nodes[node].name; /* HOST-pf0vfN */
	const char *dash = strchr(name, '-');

	if (!dash || d->fabric.nodes[node].is_switch || !strstr(dash, d->shared ? "pf" : "vf"))
		return NULL;
	if (strlen(host->host) != (size_t)(dash - name) ||
	    strncmp(name, host->host, (size_t)(dash - name)))
		snprintf(text, IF_NAMESIZE, "to-%.*s", (int)(dash - name), name);
	else if (d->shared)
		return only_tap(host, text);
	else
		snprintf(text, IF_NAMESIZE, "tap-%.11s", dash + 1);
	return text;
}

static int vswitch_of(const struct datapath *d, const struct fdb *host)
{
	char *vsw AUTO_FREE = strf("%s-vsw", host->host);

	return fabric_find(&d->fabric, vsw);
}

static void guid_to_mac(uint64_t guid, uint8_t mac[6])
{
	for (int i = 0; i < 3; i++) {
		mac[i] = (uint8_t)(guid >> (56 - 8 * i));
		mac[3 + i] = (uint8_t)(guid >> (16 - 8 * i));
	}
	mac[0] ^= 2;
}

static void forward_vguid(struct datapath *d, struct fdb *host, int from, struct vguid *v)
{
	int end = from < 0 ? -1 : fabric_walk(&d->fabric, from, v->lid);
	const char *port = NULL;
	char text[IF_NAMESIZE];
	uint8_t mac[6];

	if (end >= 0 && d->fabric.nodes[end].port_guid == v->guid)
		port = port_towards(d, host, end, text);
	guid_to_mac(v->guid, mac);
	fdb_set(host, mac, port);
	v->reaches &= port != NULL;
}

static void forward_lids(struct datapath *d, struct fdb *host, int from)
{
	char text[IF_NAMESIZE];

	for (unsigned lid = 1; from >= 0 && lid <= d->fabric.lid_top; lid++) {
		const uint8_t mac[6] = {IBX_MAC_UNICAST,     IBX_MAC_1,   IBX_MAC_2, 0,
					(uint8_t)(lid >> 8), (uint8_t)lid};
		int end = fabric_walk(&d->fabric, from, lid);
		const char *port = port_towards(d, host, end, text);

		if (port)
			fdb_set(host, mac, port);
	}
}

static void forward_groups(struct datapath *d, struct fdb *host, int from)
{
	bool ends[FABRIC_NODES_MAX];
	char text[IF_NAMESIZE];

	for (unsigned mlid = FABRIC_MLID_BASE; mlid < FABRIC_MLID_BASE + FABRIC_MLIDS_MAX; mlid++) {
		const uint8_t mac[6] = {IBX_MAC_MULTICAST,    IBX_MAC_1,    IBX_MAC_2, 0,
					(uint8_t)(mlid >> 8), (uint8_t)mlid};

		/* A bridge floods a group that it does not know, and a switch drops it. */
		fdb_join(host, mac, DATA_BRIDGE);
		fabric_spread(&d->fabric, from, mlid, ends);
		for (int i = 0; i < d->fabric.count; i++) {
			const char *port = ends[i] ? port_towards(d, host, i, text) : NULL;

			if (port)
				fdb_join(host, mac, port);
		}
	}
}

static void forward(struct datapath *d)
{
	for (int v = 0; v < d->vguid_count; v++)
		d->vguids[v].reaches = true;
	for (int h = 0; h < d->host_count; h++) {
		struct fdb *host = &d->hosts[h];
		int from = vswitch_of(d, host);

		fdb_begin(host);
		for (int v = 0; v < d->vguid_count; v++)
			forward_vguid(d, host, from, &d->vguids[v]);
		if (d->infiniband) {
			forward_lids(d, host, from);
			forward_groups(d, host, from);
		}
		fdb_end(host);
	}
	for (int v = 0; v < d->vguid_count; v++)
		if (!d->vguids[v].reaches)
			registry_hurry();
}

/* The port of a host's vSwitch where a VF is enforces its P_Key table at the VF's tap. */
static int enforce_pkeys(struct datapath *d)
{
	uint16_t pkeys[FABRIC_PKEYS_MAX];
	char text[IF_NAMESIZE];
	int r = 0;

	for (int h = 0; h < d->host_count; h++) {
		const struct fdb *host = &d->hosts[h];
		int vsw = vswitch_of(d, host);
		const struct fabric_node *n = vsw < 0 ? NULL : &d->fabric.nodes[vsw];

		for (int p = 1; n && p <= n->ports; p++) {
			const char *name = port_towards(d, host, n->links[p].node, text);
			const struct fdb_port *tap = fdb_port(host, name);

			if (!tap)
				continue;
			r = fabric_read_pkeys(&d->fabric, vsw, p, pkeys);
			if (r)
				return r;
			enforce_set(&d->enforce[h], host, tap, pkeys);
		}
	}
	return r;
}

/* Links and nodes are discovered when it is time, and when a switch says that a port has changed.
 * A switch that does not answer may be behind a link that was cut. */
static bool discover_due(struct datapath *d, uint64_t now)
{
	uint64_t age = now - d->discovered_at;
	bool links = false;

	if (!d->fabric.count || age >= DISCOVER_MS)
		return true;
	return age >= LINKS_MS && (fabric_read_links(&d->fabric, &links) || links);
}

/* Looks once at what is due. */
static int look(struct datapath *d)
{
	bool changed = false;
	uint64_t now = now_ms();
	int r;

	for (int h = 0; h < d->host_count; h++)
		changed |= fdb_links_changed(&d->hosts[h]);
	if (discover_due(d, now)) {
		r = fabric_discover(&d->fabric);
		if (r)
			return r;
		d->discovered_at = now;
		d->ports_at = now;
		changed = true;
	}
	r = fabric_read_lfts(&d->fabric, &changed);
	if (!r && (changed || now >= d->ports_at)) {
		r = fabric_read_ports(&d->fabric, &changed);
		if (!r && d->infiniband)
			r = fabric_read_mfts(&d->fabric, &changed);
		d->ports_at = now + PORTS_MS;
		/* a port that comes may still lack what makes it one: look again */
		changed = true;
	}
	if (r)
		return r;
	note_adapters(d);
	note_registry(d, &changed);
	if (changed)
		forward(d);
	return d->infiniband ? enforce_pkeys(d) : 0;
}

static void sleep_until_next(struct datapath *d, int timer)
{
	struct pollfd p[HOSTS_MAX + 1];
	long ms = d->vguid_count ? LFT_MS : IDLE_MS;
	struct itimerspec t = {.it_value = {0, ms * 1000000}};
	uint64_t ticks;

	timerfd_settime(timer, 0, &t, NULL);
	p[0] = (struct pollfd){timer, POLLIN, 0};
	for (int h = 0; h < d->host_count; h++)
		p[1 + h] = (struct pollfd){d->hosts[h].events, POLLIN, 0};
	if (poll(p, (nfds_t)d->host_count + 1, -1) > 0 && p[0].revents &&
	    read(timer, &ticks, sizeof(ticks)) < 0)
		log_warn("timer: %s", strerror(errno));
}

static int start(struct datapath *d, char **hosts, int count)
{
	int r = fabric_open(&d->fabric);

	if (r) {
		log_error("no umad port: %s", strerror(-r));
		return r;
	}
	for (int i = 0; i < count; i++) {
		r = fdb_open(&d->hosts[i], hosts[i]);
		if (r) {
			log_error("network namespace of %s: %s", hosts[i], strerror(-r));
			return r;
		}
		d->host_count++;
	}
	return 0;
}

int main(int argc, char **argv)
{
	static struct datapath d;
	int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	int failed = 0;

	log_init("datapath");
	d.shared = argc > 1 && str_eq(argv[1], "--shared-port");
	d.infiniband = d.shared || (argc > 1 && str_eq(argv[1], "--infiniband"));
	argv += d.infiniband;
	argc -= d.infiniband;
	if (argc < 4 || argc > 3 + HOSTS_MAX || strcmp(argv[1], "--registry")) {
		log_error("usage: lab_datapath [--infiniband | --shared-port] --registry URL "
			  "HOST... (1 to %d "
			  "hosts)",
			  HOSTS_MAX);
		return 2;
	}
	if (start(&d, argv + 3, argc - 3) || registry_start(argv[2]))
		return 1;
	for (bool known = false;;) {
		int r = look(&d);

		if (r && !failed)
			log_error("the fabric does not answer: %s; trying on", strerror(-r));
		if (!r && (!known || failed))
			log_info("the fabric is known: %d nodes", d.fabric.count);
		known |= !r;
		failed = r;
		sleep_until_next(&d, timer);
	}
}
