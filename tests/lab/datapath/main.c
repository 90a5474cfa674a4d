/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Makes the lab's data path obey the simulated fabric.
 *
 * rxe's packets travel over Linux bridges, which would not notice a wrong LFT. So these bridges
 * forward a VF's MAC only by static entries, and each entry is the end of a walk. The walk leads
 * from the sender's vSwitch along the LFTs, as read by SMPs, with the LID that senders use for this
 * vGUID (what path records say). The walk must end at a port that shows the vGUID; else there is no
 * entry, and the guests cannot talk. */
#include "common/log.h"
#include "common/util.h"
#include "tests/lab/datapath/fabric.h"
#include "tests/lab/datapath/fdb.h"
#include "tests/lab/datapath/registry.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/timerfd.h>

#define HOSTS_MAX     16
#define VGUIDS_MAX    REGISTRY_MAX
#define LFT_MS        5    /* between two looks at the LFTs */
#define IDLE_MS       50   /* while no VM has a VF */
#define PORTS_MS      50   /* GUIDs and LIDs of the adapters; at once where an LFT changed */
#define DISCOVER_MS   1000 /* links */
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
	struct fabric fabric;
	struct fdb hosts[HOSTS_MAX];
	int host_count;
	struct vguid vguids[VGUIDS_MAX];
	int vguid_count;
	uint64_t registry_version;
	uint64_t ports_at, discover_at;
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

/* The bridge port of this host that leads to where the walk ends, into text; NULL without one. */
static const char *port_towards(struct datapath *d, const struct fdb *host, const struct vguid *v,
				char text[static IF_NAMESIZE])
{
	char *vsw AUTO_FREE = strf("%s-vsw", host->host);
	int from = fabric_find(&d->fabric, vsw);
	int end = from < 0 ? -1 : fabric_walk(&d->fabric, from, v->lid);
	const char *name, *dash;

	if (end < 0 || d->fabric.nodes[end].port_guid != v->guid)
		return NULL;
	name = d->fabric.nodes[end].name; /* HOST-pf0vfN */
	dash = strchr(name, '-');
	if (!dash)
		return NULL;
	if (strlen(host->host) == (size_t)(dash - name) &&
	    !strncmp(name, host->host, (size_t)(dash - name)))
		snprintf(text, IF_NAMESIZE, "tap-%.11s", dash + 1);
	else
		snprintf(text, IF_NAMESIZE, "to-%.*s", (int)(dash - name), name);
	return text;
}

static void forward(struct datapath *d)
{
	for (int v = 0; v < d->vguid_count; v++)
		d->vguids[v].reaches = true;
	for (int h = 0; h < d->host_count; h++) {
		fdb_begin(&d->hosts[h]);
		for (int v = 0; v < d->vguid_count; v++) {
			char text[IF_NAMESIZE];
			const char *port = port_towards(d, &d->hosts[h], &d->vguids[v], text);

			fdb_set(&d->hosts[h], d->vguids[v].guid, port);
			d->vguids[v].reaches &= port != NULL;
		}
		fdb_end(&d->hosts[h]);
	}
	for (int v = 0; v < d->vguid_count; v++)
		if (!d->vguids[v].reaches)
			registry_hurry();
}

/* Looks once at what is due. */
static int look(struct datapath *d)
{
	bool changed = false;
	uint64_t now = now_ms();
	int r;

	for (int h = 0; h < d->host_count; h++)
		changed |= fdb_links_changed(&d->hosts[h]);
	if (now >= d->discover_at) {
		r = fabric_discover(&d->fabric);
		if (r)
			return r;
		d->discover_at = now + DISCOVER_MS;
		d->ports_at = now;
		changed = true;
	}
	r = fabric_read_lfts(&d->fabric, &changed);
	if (!r && (changed || now >= d->ports_at)) {
		r = fabric_read_ports(&d->fabric, &changed);
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
	return 0;
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
	if (argc < 4 || argc > 3 + HOSTS_MAX || strcmp(argv[1], "--registry")) {
		log_error("usage: lab_datapath --registry URL HOST... (1 to %d hosts)", HOSTS_MAX);
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
