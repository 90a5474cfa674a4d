/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/plugin/partitions/partitions.h"
#include "sm-helper/plugin/alias.h"
#include "sm-helper/plugin/master/master.h"
#include "common/util.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include <opensm/osm_db.h>
#include <opensm/osm_log.h>
#include <opensm/osm_node.h>
#include <opensm/osm_partition.h>

#define MEMBERS_FILE "ibvmig-members" /* lines: P_Key:GUID "full" or "limited" */
#define ALIASES_FILE "ibvmig-aliases" /* lines: GUID, port's GUID */
#define POLICY_FILE  "ibvmig-partitions.conf"
#define TEXT_MAX     (64 << 20)

/* OpenSM's functions: exported by the program, declared in no header. */
extern osm_prtn_t *osm_prtn_make_new(osm_log_t *log, osm_subn_t *subn, const char *name,
				     uint16_t pkey);

struct partitions {
	pthread_mutex_t lock; /* guards the policy; taken after OpenSM's */
	struct policy policy;
	char *text; /* owned, the sweeper's alone: OpenSM's own file; NULL: there is none */
	size_t bytes;
	char *file;                         /* borrowed: as OpenSM's configuration names it */
	char *merged;                       /* owned: path of ours */
	osm_db_domain_t *members, *aliases; /* owned by OpenSM; NULL: nothing is kept */
};

/* ---- the list ---- */

static void key_text(uint16_t pkey, uint64_t guid, char text[static 40])
{
	snprintf(text, 40, "0x%04x:0x%016" PRIx64, pkey & POLICY_DEFAULT, guid);
}

/* Calls take() for each line of a file of OpenSM's kind; stops where that returns an error. */
static int each_line(osm_db_domain_t *db, int (*take)(void *arg, const char *, const char *),
		     void *arg)
{
	cl_list_t keys;
	char *key;
	int rc = 0;

	cl_list_construct(&keys);
	if (!db || cl_list_init(&keys, 16) != CL_SUCCESS)
		return 0;
	osm_db_keys(db, &keys);
	while ((key = cl_list_remove_head(&keys)))
		rc = rc ? rc : take(arg, key, osm_db_lookup(db, key));
	cl_list_destroy(&keys);
	return rc;
}

/* OpenSM's port as a limited member of the default partition: it could not answer those that are
 * limited as well, and they could not be told anything. */
static bool cuts_off(const struct plugin *p, uint16_t pkey, uint64_t guid, enum sm_member_as as)
{
	return as == SM_MEMBER_LIMITED && (pkey & POLICY_DEFAULT) == POLICY_DEFAULT &&
	       cl_hton64(guid) == p->osm->subn.sm_port_guid;
}

static int add_member(void *arg, const char *key, const char *value)
{
	struct plugin *p = arg;
	enum sm_member_as as = !strcmp(value, "full") ? SM_MEMBER_FULL : SM_MEMBER_LIMITED;
	unsigned pkey;
	uint64_t guid;
	int rc;

	if (sscanf(key, "%x:%" SCNx64, &pkey, &guid) != 2 || !(pkey & POLICY_DEFAULT) ||
	    pkey > UINT16_MAX || !guid || cuts_off(p, (uint16_t)pkey, guid, as)) {
		osm_log(&p->osm->log, OSM_LOG_SYS,
			"ibvmig: file " MEMBERS_FILE ": the line of %s is left out\n", key);
		return 0;
	}
	rc = policy_append(&p->partitions->policy, (uint16_t)pkey, guid, as);
	return rc == -ENOENT ? 0 : rc; /* the partition may come again */
}

/* ---- OpenSM's file ---- */

static int read_text(const char *path, char **ret_text, size_t *ret_bytes)
{
	int fd AUTO_CLOSE = open(path, O_RDONLY | O_CLOEXEC);
	char *text AUTO_FREE = NULL;
	struct stat st;
	size_t bytes = 0;
	ssize_t n;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) || st.st_size > TEXT_MAX || !(text = malloc((size_t)st.st_size + 1)))
		return -EIO;
	while (bytes < (size_t)st.st_size &&
	       (n = read(fd, text + bytes, (size_t)st.st_size - bytes)) > 0)
		bytes += (size_t)n;
	*ret_text = TAKE(text);
	*ret_bytes = bytes;
	return 0;
}

static void read_policy_file(struct partitions *x)
{
	char *text = NULL;
	size_t bytes = 0;
	int rc = read_text(x->file, &text, &bytes);

	if (rc && rc != -ENOENT && rc != -ENOTDIR)
		text = strdup(""); /* it is there, but OpenSM cannot read it either */
	free(x->text);
	x->text = text;
	x->bytes = bytes;
}

/* Numbers of OpenSM's partitions, for those that its file gives only a name. */
struct numbers {
	struct number {
		uint16_t pkey;
		char name[SM_PARTITION_NAME_MAX];
	} * number; /* owned */
	size_t count;
};

static void read_numbers(struct plugin *p, struct numbers *ret_numbers)
{
	cl_qmap_t *map = &p->osm->subn.prtn_pkey_tbl;
	struct numbers *n = ret_numbers;

	*n = (struct numbers){0};
	cl_plock_acquire(&p->osm->lock);
	n->number = calloc(cl_qmap_count(map) + 1, sizeof *n->number);
	for (cl_map_item_t *i = cl_qmap_head(map); n->number && i != cl_qmap_end(map);
	     i = cl_qmap_next(i)) {
		const osm_prtn_t *prtn = (const osm_prtn_t *)i;
		struct number *to = &n->number[n->count++];

		to->pkey = cl_ntoh16(prtn->pkey);
		snprintf(to->name, sizeof to->name, "%s", prtn->name);
	}
	cl_plock_release(&p->osm->lock);
}

static uint16_t known_number(void *context, const char *name)
{
	const struct numbers *n = context;

	for (size_t i = 0; *name && i < n->count; i++)
		if (!strcmp(n->number[i].name, name))
			return n->number[i].pkey;
	return 0;
}

static int parse_text(struct plugin *p, struct policy *ret_policy)
{
	struct partitions *x = p->partitions;
	struct numbers numbers;
	struct policy_options options = {
		.both = p->osm->subn.opt.allow_both_pkeys,
		.qos = p->osm->subn.opt.qos,
		.pkey_of = known_number,
		.context = &numbers,
	};
	int rc;

	read_numbers(p, &numbers);
	rc = numbers.number ? policy_parse(x->text, x->bytes, &options, ret_policy) : -ENOMEM;
	free(numbers.number);
	return rc;
}

/* Makes the policy of the text and the list. A file may be large, and OpenSM answers nobody while
 * its lock is held: so it is read and parsed without a lock. */
static void parse(struct plugin *p)
{
	struct partitions *x = p->partitions;
	pthread_mutex_t *l AUTO_UNLOCK = NULL;
	struct policy fresh;

	if (parse_text(p, &fresh)) {
		osm_log(&p->osm->log, OSM_LOG_ERROR,
			"ibvmig: no memory for the partitions: they are as they were\n");
		return;
	}
	l = mutex_lock(&x->lock);
	policy_free(&x->policy);
	x->policy = fresh;
	if (fresh.bad_line)
		osm_log(&p->osm->log, OSM_LOG_ERROR,
			"ibvmig: %s: OpenSM gives up at line %u, and makes all ports full members "
			"of 0x7fff and of nothing else\n",
			x->file, fresh.bad_line);
	else
		each_line(x->members, add_member, p);
}

/* ---- the file that OpenSM is given ---- */

static void write_rule(FILE *f, const struct policy *policy, uint16_t pkey, uint64_t guid,
		       bool full, bool indx0)
{
	const struct policy_partition *x = policy_find(policy, pkey);

	fprintf(f, "0x%04x, sl=%u%s : 0x%016" PRIx64 "=%s;\n", pkey & POLICY_DEFAULT, x ? x->sl : 0,
		indx0 ? ", indx0" : "", guid, full ? "full" : "limited");
}

static struct policy_port port_of(struct plugin *p, uint64_t guid)
{
	const osm_port_t *port = osm_get_port_by_guid(&p->osm->subn, cl_hton64(guid));

	return (struct policy_port){
		.guid = guid,
		.type = port ? osm_node_get_type(port->p_node) : SM_NODE_CA,
		.self = cl_hton64(guid) == p->osm->subn.sm_port_guid,
	};
}

static bool has(const struct policy_pkeys *keys, uint16_t pkey)
{
	for (unsigned i = 0; i < keys->count && i < SM_PKEYS_MAX; i++)
		if (keys->pkey[i] == pkey)
			return true;
	return false;
}

struct shown {
	uint64_t port, alias;
};

struct shown_list {
	struct shown *shown; /* owned */
	size_t count, room;
};

static int append_shown(struct shown_list *l, uint64_t port, uint64_t alias)
{
	if (l->count == l->room) {
		size_t room = l->room ? 2 * l->room : 64;
		struct shown *grown = realloc(l->shown, room * sizeof *grown);

		if (!grown)
			return -ENOMEM;
		l->shown = grown;
		l->room = room;
	}
	l->shown[l->count++] = (struct shown){port, alias};
	return 0;
}

static int add_shown(void *arg, const char *key, const char *value)
{
	uint64_t port, alias;

	if (sscanf(key, "%" SCNx64, &alias) != 1 || sscanf(value, "%" SCNx64, &port) != 1)
		return 0;
	return append_shown(arg, port, alias);
}

static int compare_shown(const void *a, const void *b)
{
	const struct shown *x = a, *y = b;

	return x->port < y->port ? -1 : x->port > y->port;
}

/* A port is a member of all that the n GUIDs are which it shows. Returns the number of lines. */
static int write_shown(struct plugin *p, FILE *f, const struct shown *shown, size_t n)
{
	const struct policy *policy = &p->partitions->policy;
	struct policy_port port = port_of(p, shown->port);
	struct policy_pkeys own = {0}, all;
	int lines = 0;

	policy_port_pkeys(policy, &port, &own);
	all = own;
	for (size_t i = 0; i < n; i++) {
		struct policy_port alias = {.guid = shown[i].alias, .type = SM_NODE_CA};

		policy_port_pkeys(policy, &alias, &all);
	}
	for (unsigned i = 0; i < all.count && i < SM_PKEYS_MAX; i++)
		if (!has(&own, all.pkey[i])) {
			write_rule(f, policy, all.pkey[i], shown->port, all.pkey[i] & POLICY_FULL,
				   false);
			lines++;
		}
	return lines;
}

static int write_all_shown(struct plugin *p, FILE *f)
{
	struct shown_list l = {0};
	int lines = 0;

	if (!each_line(p->partitions->aliases, add_shown, &l) && l.count)
		qsort(l.shown, l.count, sizeof *l.shown, compare_shown);
	for (size_t i = 0, n; i < l.count; i += n) {
		for (n = 1; i + n < l.count && l.shown[i + n].port == l.shown[i].port;)
			n++;
		lines += write_shown(p, f, &l.shown[i], n);
	}
	free(l.shown);
	return lines;
}

static int write_ours(const struct policy *policy, FILE *f)
{
	int lines = 0;

	for (size_t i = 0; i < policy->rules; i++) {
		const struct policy_rule *r = &policy->rule[i];

		if (!r->ours)
			continue;
		write_rule(f, policy, r->pkey, r->guid, r->as == SM_MEMBER_FULL, r->indx0);
		lines++;
	}
	return lines;
}

/* What comes behind OpenSM's file. Negative: an error; else how many lines of ours there are. */
static int our_lines(struct plugin *p, char **ret_text, size_t *ret_bytes)
{
	struct partitions *x = p->partitions;
	FILE *f = open_memstream(ret_text, ret_bytes);
	int lines;
	bool bad;

	if (!f)
		return -ENOMEM;
	cl_plock_acquire(&p->osm->lock);
	pthread_mutex_lock(&x->lock);
	fprintf(f, "\n%s# by ibvmig-sm\n", x->policy.open_end ? "NONE;\n" : "");
	lines = write_ours(&x->policy, f) + write_all_shown(p, f);
	pthread_mutex_unlock(&x->lock);
	cl_plock_release(&p->osm->lock);
	bad = ferror(f);
	return fclose(f) || bad ? -ENOMEM : lines;
}

/* As our_lines(). */
static int write_merged(struct plugin *p)
{
	struct partitions *x = p->partitions;
	char *path AUTO_FREE = strf("%s.tmp", x->merged), *ours AUTO_FREE = NULL;
	size_t bytes = 0;
	int lines = our_lines(p, &ours, &bytes);
	FILE *f = lines > 0 && path ? fopen(path, "we") : NULL;
	bool bad;

	if (!f)
		return lines > 0 ? -EIO : lines;
	if (x->text)
		fwrite(x->text, 1, x->bytes, f);
	else
		fprintf(f, "Default=0x7fff, ipoib : ALL=full;\n");
	fwrite(ours, 1, bytes, f);
	bad = ferror(f);
	return fclose(f) || bad || rename(path, x->merged) ? -EIO : lines;
}

/* Gives OpenSM the file that it shall read next. */
static void choose_file(struct plugin *p)
{
	struct partitions *x = p->partitions;
	int lines = x->policy.bad_line ? 0 : write_merged(p);

	if (lines < 0)
		osm_log(&p->osm->log, OSM_LOG_ERROR,
			"ibvmig: %s cannot be written: OpenSM sweeps without the members that "
			"were added\n",
			x->merged);
	p->osm->subn.opt.partition_config_file = lines > 0 ? x->merged : x->file;
}

int partitions_open(struct plugin *p)
{
	struct partitions *x = calloc(1, sizeof *x);

	if (!x || !(x->merged = master_cache_path(POLICY_FILE))) {
		free(x);
		return -ENOMEM;
	}
	pthread_mutex_init(&x->lock, NULL);
	if (!p->osm->subn.opt.partition_config_file)
		p->osm->subn.opt.partition_config_file = strdup(OSM_DEFAULT_PARTITION_CONFIG_FILE);
	x->file = p->osm->subn.opt.partition_config_file;
	p->partitions = x;
	if ((x->members = osm_db_domain_init(&p->osm->db, MEMBERS_FILE)))
		osm_db_restore(x->members);
	if ((x->aliases = osm_db_domain_init(&p->osm->db, ALIASES_FILE)))
		osm_db_restore(x->aliases);
	read_policy_file(x);
	parse(p);
	return x->file ? 0 : -ENOMEM;
}

void partitions_close(struct plugin *p)
{
	p->osm->subn.opt.partition_config_file = p->partitions->file;
}

static int forget_alias(void *arg, const char *key, const char *value)
{
	char *own AUTO_FREE = strdup(key);

	(void)value;
	if (own)
		osm_db_delete(arg, own);
	return 0;
}

void partitions_swept(struct plugin *p)
{
	struct partitions *x = p->partitions;
	bool other_led = p->osm->subn.coming_out_of_standby;

	if (other_led) { /* and has brought GUIDs to other ports since */
		cl_plock_acquire(&p->osm->lock);
		pthread_mutex_lock(&x->lock);
		each_line(x->aliases, forget_alias, x->aliases);
		pthread_mutex_unlock(&x->lock);
		cl_plock_release(&p->osm->lock);
	}
	read_policy_file(x);
	parse(p);
	choose_file(p);
	if (other_led && partitions_store(p))
		osm_log(&p->osm->log, OSM_LOG_ERROR,
			"ibvmig: file " ALIASES_FILE " cannot be written\n");
}

void partitions_up(struct plugin *p)
{
	parse(p);
}

/* ---- ports ---- */

/* The alias GUIDs of the port, as OpenSM knows them, or else as the file says. */
static void add_aliases(struct plugin *p, const osm_port_t *port, struct policy_pkeys *keys)
{
	struct shown_list l = {0};

	if (!alias_is_known(port))
		each_line(p->partitions->aliases, add_shown, &l);
	else
		for (unsigned i = 1; i < alias_blocks(port) * GUID_TABLE_MAX_ENTRIES; i++)
			if (alias_entry(port, (uint8_t)i))
				append_shown(&l, cl_ntoh64(port->guid),
					     cl_ntoh64(alias_entry(port, (uint8_t)i)));
	for (size_t i = 0; i < l.count; i++) {
		struct policy_port alias = {.guid = l.shown[i].alias, .type = SM_NODE_CA};

		if (l.shown[i].port == cl_ntoh64(port->guid))
			policy_port_pkeys(&p->partitions->policy, &alias, keys);
	}
	free(l.shown);
}

void partitions_pkeys(struct plugin *p, ib_net64_t guid, const osm_port_t *port,
		      struct policy_pkeys *ret_keys)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&p->partitions->lock);
	struct policy_port own = port_of(p, cl_ntoh64(guid));

	*ret_keys = (struct policy_pkeys){0};
	policy_port_pkeys(&p->partitions->policy, &own, ret_keys);
	if (port)
		add_aliases(p, port, ret_keys);
}

osm_port_t *partitions_find_port(struct plugin *p, ib_net64_t guid)
{
	osm_port_t *port = osm_get_port_by_alias_guid(&p->osm->subn, guid);
	osm_db_domain_t *db = p->partitions->aliases;
	const char *value;
	uint64_t shows;
	char key[40];

	snprintf(key, sizeof key, "0x%016" PRIx64, cl_ntoh64(guid));
	if (port || !db || !(value = osm_db_lookup(db, key)) ||
	    sscanf(value, "%" SCNx64, &shows) != 1)
		return port;
	return osm_get_port_by_guid(&p->osm->subn, cl_hton64(shows));
}

static void leave_all(struct plugin *p, ib_net64_t guid)
{
	cl_qmap_t *map = &p->osm->subn.prtn_pkey_tbl;

	for (cl_map_item_t *i = cl_qmap_head(map); i != cl_qmap_end(map); i = cl_qmap_next(i)) {
		cl_map_remove(&((osm_prtn_t *)i)->full_guid_tbl, guid);
		cl_map_remove(&((osm_prtn_t *)i)->part_guid_tbl, guid);
	}
}

/* OpenSM's partition. It forgets those of which no port was a member in its last heavy sweep. */
static osm_prtn_t *prtn_of(struct plugin *p, uint16_t pkey, bool *ret_groups)
{
	osm_subn_t *subn = &p->osm->subn;
	ib_net16_t number = cl_hton16(pkey & POLICY_DEFAULT);
	cl_map_item_t *i = cl_qmap_get(&subn->prtn_pkey_tbl, number);
	const struct policy_partition *known;
	osm_prtn_t *prtn;

	if (i != cl_qmap_end(&subn->prtn_pkey_tbl))
		return (osm_prtn_t *)i;
	known = policy_find(&p->partitions->policy, pkey);
	prtn = osm_prtn_make_new(&p->osm->log, subn, known ? known->name : "", number);
	if (prtn && known) {
		prtn->sl = known->sl;
		*ret_groups = *ret_groups || known->groups;
	}
	return prtn;
}

bool partitions_hand_over(struct plugin *p, ib_net64_t guid, osm_physp_t *physp,
			  const struct policy_pkeys *keys)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&p->partitions->lock);
	bool groups = false;

	leave_all(p, guid);
	for (unsigned i = 0; keys && i < keys->count && i < SM_PKEYS_MAX; i++) {
		osm_prtn_t *prtn = prtn_of(p, keys->pkey[i], &groups);

		if (prtn)
			cl_map_insert(keys->pkey[i] & POLICY_FULL ? &prtn->full_guid_tbl
								  : &prtn->part_guid_tbl,
				      guid, physp);
	}
	return groups;
}

static void note_alias(struct plugin *p, ib_net64_t guid)
{
	osm_db_domain_t *db = p->partitions->aliases;
	const osm_port_t *port = osm_get_port_by_alias_guid(&p->osm->subn, guid);
	char key[40], value[40];

	snprintf(key, sizeof key, "0x%016" PRIx64, cl_ntoh64(guid));
	snprintf(value, sizeof value, "0x%016" PRIx64, port ? cl_ntoh64(port->guid) : 0);
	if (port && port->guid != guid)
		osm_db_update(db, key, value);
	else
		osm_db_delete(db, key);
}

void partitions_note_aliases(struct plugin *p, const osm_port_t *port)
{
	osm_db_domain_t *db = p->partitions->aliases;
	struct shown_list l = {0};

	if (!db || !alias_is_known(port))
		return;
	each_line(db, add_shown, &l);
	for (size_t i = 0; i < l.count; i++)
		if (l.shown[i].port == cl_ntoh64(port->guid))
			note_alias(p, cl_hton64(l.shown[i].alias));
	free(l.shown);
	for (unsigned i = 1; i < alias_blocks(port) * GUID_TABLE_MAX_ENTRIES; i++)
		if (alias_entry(port, (uint8_t)i))
			note_alias(p, alias_entry(port, (uint8_t)i));
}

/* ---- changes of the list ---- */

enum sm_member_as partitions_listed(struct plugin *p, uint16_t pkey, uint64_t guid)
{
	osm_db_domain_t *db = p->partitions->members;
	const char *value;
	char key[40];

	key_text(pkey, guid, key);
	value = db ? osm_db_lookup(db, key) : NULL;
	return !value                   ? SM_MEMBER_NONE
	       : !strcmp(value, "full") ? SM_MEMBER_FULL
					: SM_MEMBER_LIMITED;
}

bool partitions_set_member(struct plugin *p, uint16_t pkey, uint64_t guid, enum sm_member_as as)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&p->partitions->lock);
	struct partitions *x = p->partitions;
	char key[40], value[] = "limited";

	if (!x->members || partitions_listed(p, pkey, guid) == as)
		return false;
	key_text(pkey, guid, key);
	if (as == SM_MEMBER_FULL)
		strcpy(value, "full");
	if (as == SM_MEMBER_NONE) {
		policy_drop(&x->policy, pkey, guid);
		osm_db_delete(x->members, key);
		return true;
	}
	if (policy_add(&x->policy, pkey, guid, as) == -ENOMEM)
		return false;
	osm_db_update(x->members, key, value);
	return true;
}

int partitions_check(struct plugin *p, uint16_t pkey, const struct sm_member *m,
		     struct sm_reply_head *h)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&p->partitions->lock);
	struct partitions *x = p->partitions;
	struct policy_port port = {.guid = m->guid, .type = SM_NODE_CA};

	if (x->policy.bad_line)
		return plugin_refuse(h, -EINVAL, "%s: OpenSM gives up at line %u", x->file,
				     x->policy.bad_line);
	if (!policy_find(&x->policy, pkey))
		return plugin_refuse(h, -ENOENT, "%s has no partition 0x%04x", x->file,
				     pkey & POLICY_DEFAULT);
	if (cuts_off(p, pkey, m->guid, m->as))
		return plugin_refuse(h, -EACCES,
				     "GUID 0x%016" PRIx64
				     " is OpenSM's own port, which stays a full member of 0x7fff",
				     m->guid);
	if (m->as == SM_MEMBER_NONE && partitions_listed(p, pkey, m->guid) == SM_MEMBER_NONE &&
	    policy_member(&x->policy, pkey, &port) != SM_MEMBER_NONE)
		return plugin_refuse(h, -EEXIST,
				     "GUID 0x%016" PRIx64 " is a member of 0x%04x by %s itself",
				     m->guid, pkey & POLICY_DEFAULT, x->file);
	return 0;
}

int partitions_store(struct plugin *p)
{
	struct partitions *x = p->partitions;
	bool sync = p->osm->subn.opt.fsync_high_avail_files;

	return (x->members && osm_db_store(x->members, sync)) ||
			       (x->aliases && osm_db_store(x->aliases, sync))
		       ? -EIO
		       : 0;
}

/* ---- answers ---- */

int plugin_memberships(struct plugin *p, const struct sm_memberships_request *req,
		       struct sm_memberships_reply *r)
{
	cl_plock_acquire(&p->osm->lock);
	r->instance = p->instance;
	r->generation = atomic_load(&p->count.generation);
	r->count = req->count;
	for (uint32_t i = 0; i < req->count; i++) {
		struct policy_pkeys keys;

		partitions_pkeys(p, cl_hton64(req->guid[i]), NULL, &keys);
		r->of[i].count = (uint16_t)keys.count;
		memcpy(r->of[i].pkey, keys.pkey, sizeof r->of[i].pkey);
	}
	cl_plock_release(&p->osm->lock);
	return (int)(offsetof(struct sm_memberships_reply, of) + r->count * sizeof r->of[0]);
}

static void fill_partition(const struct policy_partition *x, struct sm_partition_entry *e)
{
	*e = (struct sm_partition_entry){.who = SM_WHO_NOBODY, .pkey = x->pkey};
	memcpy(e->name, x->name, sizeof e->name);
}

static void fill_rule(const struct policy *policy, const struct policy_rule *r,
		      struct sm_partition_entry *e)
{
	fill_partition(policy_find(policy, r->pkey), e);
	e->guid = r->guid;
	e->who = r->who;
	e->as = r->as;
	e->ours = r->ours;
}

static void fill_entry(const struct policy *policy, size_t i, struct sm_partition_entry *e)
{
	if (i < policy->partitions)
		fill_partition(&policy->partition[i], e);
	else
		fill_rule(policy, &policy->rule[i - policy->partitions], e);
}

/* First all partitions, then all rules. */
int plugin_partitions(struct plugin *p, const struct sm_page_request *req,
		      struct sm_partitions_reply *r)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&p->partitions->lock);
	const struct policy *policy = &p->partitions->policy;

	r->instance = p->instance;
	r->generation = atomic_load(&p->count.generation);
	r->total = (uint32_t)(policy->partitions + policy->rules);
	r->bad_line = policy->bad_line;
	for (uint32_t i = req->first; i < r->total && r->count < SM_PARTITIONS_MAX; i++)
		fill_entry(policy, i, &r->entry[r->count++]);
	return (int)(offsetof(struct sm_partitions_reply, entry) + r->count * sizeof r->entry[0]);
}
