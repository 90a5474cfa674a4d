// SPDX-License-Identifier: GPL-2.0-or-later
/* GUID tables of ports for programs on ibsim, whose ports have none: a stand-in for such an HCA.
 *
 * ibsim answers a Get of GUIDInfo with the port's own GUID and refuses a Set. Preloaded before
 * libumad2sim.so, in every program on the fabric, this asks the port for its own GUID instead. So a
 * link that is down, or an SMP that fails, is as it is for any SMP. The answer becomes that of a
 * port with a table of GUID_CAP entries. PortInfo says so, too. The tables are in the file
 * $IBVMIG_GUID_TABLES, shared by all programs; without it nothing is changed. A GUID that enters a
 * table while another entry of any port shows it is allowed, as hardware would, and written down in
 * FILE.duplicates. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/mad.h>
#include <infiniband/umad.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define GUID_CAP  32
#define IN_BLOCK  8
#define BLOCKS    (GUID_CAP / IN_BLOCK)
#define PORTS_MAX 4096

struct table {
	uint64_t port; /* the port's own GUID, its entry 0; 0: free, as all behind it */
	uint64_t guid[GUID_CAP];
};

struct request {
	struct request *next;
	int fd;
	uint32_t tid, class, block;
	bool set;
	uint64_t guid[IN_BLOCK]; /* GUIDs of a Set */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct request *requests; /* owned; under the lock */
static const char *file;
static int (*real_send)(int, int, void *, int, int, int);
static int (*real_recv)(int, void *, int *, int);

__attribute__((constructor)) static void find_real(void)
{
	*(void **)&real_send = dlsym(RTLD_NEXT, "umad_send");
	*(void **)&real_recv = dlsym(RTLD_NEXT, "umad_recv");
	file = getenv("IBVMIG_GUID_TABLES");
}

static bool is_smp(void *mad, uint32_t attr)
{
	uint32_t class = mad_get_field(mad, 0, IB_MAD_MGMTCLASS_F);

	return (class == IB_SMI_CLASS || class == IB_SMI_DIRECT_CLASS) &&
	       mad_get_field(mad, 0, IB_MAD_ATTRID_F) == attr;
}

static uint8_t *payload(void *mad)
{
	return (uint8_t *)mad + IB_SMP_DATA_OFFS;
}

/* ---- the tables ---- */

static void note_duplicate(uint64_t guid, uint64_t at, uint64_t also)
{
	char path[4096];
	FILE *f;

	snprintf(path, sizeof path, "%s.duplicates", file);
	if (!(f = fopen(path, "a")))
		return;
	fprintf(f, "0x%016" PRIx64 " of 0x%016" PRIx64 " is shown by 0x%016" PRIx64 "\n", guid, at,
		also);
	fclose(f);
}

static void look_for(int fd, uint64_t guid, uint64_t port)
{
	struct table t;

	for (unsigned i = 0; i < PORTS_MAX; i++) {
		if (pread(fd, &t, sizeof t, (off_t)(i * sizeof t)) != sizeof t || !t.port)
			return;
		for (unsigned k = 0; k < GUID_CAP; k++)
			if (t.guid[k] == guid)
				note_duplicate(guid, port, t.port);
	}
}

/* Reads a port's table, or begins one. Its place in the file, -1: none. */
static off_t find_table(int fd, uint64_t port, struct table *t)
{
	for (unsigned i = 0; i < PORTS_MAX; i++) {
		off_t at = (off_t)(i * sizeof *t);

		if (pread(fd, t, sizeof *t, at) != sizeof *t || !t->port)
			*t = (struct table){port, {port}};
		if (t->port == port)
			return at;
	}
	return -1;
}

/* Gives the port's answer: the block as it is, after the Set. */
static void serve(const struct request *r, uint64_t port, uint64_t ret_guid[IN_BLOCK])
{
	int fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	unsigned first = r->block * IN_BLOCK;
	struct table t;
	off_t at;

	if (fd < 0 || flock(fd, LOCK_EX) || (at = find_table(fd, port, &t)) < 0)
		abort();
	for (unsigned i = 0; r->set && i < IN_BLOCK; i++) {
		uint64_t was = t.guid[first + i];

		if (first + i == 0 || r->guid[i] == was)
			continue; /* the port's own is read-only */
		if (r->guid[i])
			look_for(fd, r->guid[i], port);
		t.guid[first + i] = r->guid[i];
	}
	if (r->set && pwrite(fd, &t, sizeof t, at) != sizeof t)
		abort();
	memcpy(ret_guid, t.guid + first, IN_BLOCK * sizeof *ret_guid);
	close(fd);
}

/* ---- between the program and ibsim ---- */

static struct request *take(int fd, void *mad)
{
	uint32_t tid = (uint32_t)mad_get_field64(mad, 0, IB_MAD_TRID_F);
	uint32_t class = mad_get_field(mad, 0, IB_MAD_MGMTCLASS_F);
	struct request **p, *r;

	pthread_mutex_lock(&lock);
	for (p = &requests; (r = *p); p = &r->next)
		if (r->fd == fd && r->tid == tid && r->class == class)
			break;
	if (r)
		*p = r->next;
	pthread_mutex_unlock(&lock);
	return r;
}

static void remember(int fd, void *mad)
{
	struct request *r = calloc(1, sizeof *r);

	if (!r)
		abort();
	free(take(fd, mad)); /* sent again */
	r->fd = fd;
	r->tid = (uint32_t)mad_get_field64(mad, 0, IB_MAD_TRID_F);
	r->class = mad_get_field(mad, 0, IB_MAD_MGMTCLASS_F);
	r->block = mad_get_field(mad, 0, IB_MAD_ATTRMOD_F);
	r->set = mad_get_field(mad, 0, IB_MAD_METHOD_F) == IB_MAD_METHOD_SET;
	for (unsigned i = 0; i < IN_BLOCK; i++)
		r->guid[i] = mad_get_field64(payload(mad), 0, IB_GI_GUID0_F + (int)i);
	pthread_mutex_lock(&lock);
	r->next = requests;
	requests = r;
	pthread_mutex_unlock(&lock);
}

int umad_send(int fd, int agent, void *umad, int length, int timeout_ms, int retries)
{
	void *mad = umad_get_mad(umad), *copy;
	int rc;

	if (!file || mad_get_field(mad, 0, IB_MAD_RESPONSE_F) || !is_smp(mad, IB_ATTR_GUID_INFO) ||
	    mad_get_field(mad, 0, IB_MAD_ATTRMOD_F) >= BLOCKS)
		return real_send(fd, agent, umad, length, timeout_ms, retries);
	remember(fd, mad);
	if (!(copy = malloc(umad_size() + (size_t)length)))
		return -ENOMEM;
	memcpy(copy, umad, umad_size() + (size_t)length);
	mad_set_field(umad_get_mad(copy), 0, IB_MAD_METHOD_F, IB_MAD_METHOD_GET);
	mad_set_field(umad_get_mad(copy), 0, IB_MAD_ATTRMOD_F, 0);
	rc = real_send(fd, agent, copy, length, timeout_ms, retries);
	free(copy);
	return rc;
}

static void answer(int fd, void *umad)
{
	void *mad = umad_get_mad(umad);
	struct request *r = take(fd, mad);
	uint64_t guid[IN_BLOCK];

	if (!r)
		return;
	mad_set_field(mad, 0, IB_MAD_ATTRMOD_F, r->block);
	if (!umad_status(umad) && !(mad_get_field(mad, 0, IB_MAD_STATUS_F) & 0x7fff)) {
		serve(r, mad_get_field64(payload(mad), 0, IB_GI_GUID0_F), guid);
		for (unsigned i = 0; i < IN_BLOCK; i++)
			mad_set_field64(payload(mad), 0, IB_GI_GUID0_F + (int)i, guid[i]);
	}
	free(r);
}

int umad_recv(int fd, void *umad, int *length, int timeout_ms)
{
	int rc = real_recv(fd, umad, length, timeout_ms);
	void *mad;

	if (rc < 0 || !file || !umad || !length)
		return rc;
	mad = umad_get_mad(umad);
	if (is_smp(mad, IB_ATTR_GUID_INFO))
		answer(fd, umad);
	else if (is_smp(mad, IB_ATTR_PORT_INFO) && mad_get_field(mad, 0, IB_MAD_RESPONSE_F))
		mad_set_field(payload(mad), 0, IB_PORT_GUID_CAP_F, GUID_CAP);
	return rc;
}
