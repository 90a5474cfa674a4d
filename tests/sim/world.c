/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The world of world.h: three hosts with their daemons, started as daemon/main.c starts them. */
#include "tests/sim/virt.h"
#include "common/boot.h"
#include "common/log.h"
#include "common/util.h"
#include "daemon/store/journal.h"
#include "daemon/base/settings.h"
#include "daemon/start.h"
#include "daemon/vm/vm.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define START_S     60
#define JOURNAL_MAX (16u << 20)
#define SYNC_US     (5 * SIM_MS)

struct sim_host sim_hosts[SIM_HOSTS] = {
	{.name = "hosta", .url = "http://10.0.0.1:7611"},
	{.name = "hostb", .url = "http://10.0.0.2:7611"},
	{.name = "hostc", .url = "http://10.0.0.3:7611"},
	{.name = "hostd", .url = "http://10.0.0.4:7611"},
};
struct sim_size sim_size = {.hosts = 3, .vfs = 4, .guests = 2};

const char *sim_run_dir;
static char world_dir[80];

/* ---- disks ---- */

static ssize_t failing_pwrite(int fd, const void *data, size_t n, off_t at)
{
	if (sim_self && sim_self->disk_errno) {
		errno = sim_self->disk_errno;
		return -1;
	}
	return pwrite(fd, data, n, at);
}

static struct sim_host *host_of(const struct sim_proc *p)
{
	for (unsigned h = 0; h < sim_size.hosts; h++)
		if (p == &sim_hosts[h].proc)
			return &sim_hosts[h];
	return NULL;
}

/* A daemon waits for the disk, and others' events come in that time. The journal's WAL only grows
 * in a cell, so a loss of power leaves what was there when the write began. */
int __wrap_fdatasync(int fd);
int __wrap_fdatasync(int fd)
{
	struct sim_host *h = host_of(sim_self);
	struct stat before;

	fstat(fd, &before);
	sim_sleep(SYNC_US + (h ? h->sync_us : 0));
	if (sim_self && sim_self->disk_errno) {
		errno = sim_self->disk_errno;
		return -1;
	}
	if (h)
		h->wal_synced = (size_t)before.st_size;
	return 0;
}

bool sim_journal_synced(int host)
{
	char *path AUTO_FREE = strf("%s/%s/ibvmigd.db-wal", world_dir, sim_hosts[host].name);
	struct stat wal;

	return path && !stat(path, &wal) && sim_hosts[host].wal_synced >= (size_t)wal.st_size;
}

/* A file of its journal, up to that many bytes. */
struct disk_file {
	char *path, *data; /* owned */
	size_t bytes;
};

static struct disk_file read_disk(const struct sim_host *h, const char *suffix, size_t most)
{
	struct disk_file f = {.path = strf("%s/%s/ibvmigd.db%s", world_dir, h->name, suffix)};

	if (f.path && read_file(f.path, JOURNAL_MAX, &f.data, &f.bytes))
		f.bytes = 0;
	if (f.bytes > most)
		f.bytes = most;
	return f;
}

static void write_disk(struct disk_file *f)
{
	FILE *out = f->path ? fopen(f->path, "w") : NULL;

	if (!out || fwrite(f->data, 1, f->bytes, out) != f->bytes || fclose(out))
		abort();
	free(f->path);
	free(f->data);
}

static void play_disks(void)
{
	sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);

	vfs->xSetSystemCall(vfs, "pwrite", (sqlite3_syscall_ptr)failing_pwrite);
	vfs->xSetSystemCall(vfs, "pwrite64", (sqlite3_syscall_ptr)failing_pwrite);
}

/* ---- daemons ---- */

static int write_conf(struct sim_host *h, const char *path)
{
	FILE *f AUTO_FILE = fopen(path, "w");

	if (!f)
		return -errno;
	fprintf(f,
		"host-name = %s\nlisten = %s\ninsecure = yes\nsocket = /ibvmigd-%s.sock\n"
		"state-dir = %s/%s\nlease-dir = %s/%s-leases\nsm-url = "
		"http://10.0.0.9:7610\nprovider-exec = played\n"
		"hold-bytes = 8388608\n",
		h->name, h->url + strlen("http://"), h->name, world_dir, h->name,
		sim_run_dir ? sim_run_dir : world_dir, h->name);
	if (sim_size.kept)
		fprintf(f, "keep-migrations = %u\n", sim_size.kept);
	if (sim_mover.agent_optional)
		fputs("require-agent = no\n", f);
	if (sim_mover.pre_attach)
		fputs("pre-attach = x-late-detach\n", f);
	for (unsigned i = 0; i < sim_size.hosts; i++)
		if (&sim_hosts[i] != h)
			fprintf(f, "peer = %s %s\n", sim_hosts[i].name, sim_hosts[i].url);
	return 0;
}

void sim_daemon_start(int host)
{
	struct sim_host *h = &sim_hosts[host];
	char *conf AUTO_FREE = strf("%s/%s.conf", world_dir, h->name);
	char *error AUTO_FREE = NULL;

	memset(&h->d, 0, sizeof h->d);
	if (write_conf(h, conf) || settings_load(conf, &h->d.settings, &error) ||
	    sd_event_new(&h->d.loop) < 0)
		abort();
	h->proc.name = h->name;
	sim_proc_start(&h->proc, h->d.loop);
	sim_self = &h->proc;
	if (daemon_start(&h->d, &error)) {
		/* As systemd sees it: it ends, and is started again. */
		log_error("%s: ibvmigd does not start: %s", h->name, error);
		sim_proc_die(&h->proc);
	}
	sim_self = NULL;
}

void sim_daemon_kill(int host)
{
	struct sim_host *h = &sim_hosts[host];

	if (!h->proc.up)
		return;
	sim_proc_die(&h->proc);
	journal_close(h->d.journal);
	h->wal_synced = 0; /* a new one */
	h->d = (struct daemon){0};
}

/* The kernel of the host whose code runs. */
void boot_id(char text[static 33])
{
	const struct sim_host *h = host_of(sim_self);

	if (h)
		snprintf(text, 33, "%032x", h->boots);
}

void sim_power_off(int host)
{
	struct disk_file db = read_disk(&sim_hosts[host], "", SIZE_MAX);
	struct disk_file wal = read_disk(&sim_hosts[host], "-wal", sim_hosts[host].wal_synced);

	sim_hosts[host].boots++;
	sim_daemon_kill(host); /* a kill writes all of it, as a kernel that lives on does */
	write_disk(&db);
	write_disk(&wal);
	sim_save_libvirtd_died(host);
	for (unsigned i = 0; i < sim_size.guests; i++)
		sim_qemu_kill(&sim_guests[i], host);
	for (unsigned i = 0; i < sim_size.vfs; i++) {
		struct sim_vf *vf = &sim_hosts[host].vfs[i];

		vf->guid = vf->parked_guid;
		vf->prepared = false;
		vf->vanished = true;
	}
}

void sim_power_on(int host)
{
	for (unsigned i = 0; i < sim_size.vfs; i++)
		sim_hosts[host].vfs[i].vanished = false;
	sim_daemon_start(host);
}

/* ---- the start ---- */

static bool has_vf(const struct sim_guest *g)
{
	struct vm *vm = vm_find(&sim_hosts[g->first].d, g->uuid);

	return vm && vm->state == VM_ATTACHED && agent_state(vm->agent) == AGENT_UP;
}

static bool all_attached(void *arg)
{
	(void)arg;
	for (unsigned i = 0; i < sim_size.guests; i++)
		if (!has_vf(&sim_guests[i]))
			return false;
	return true;
}

static void build_host(int i)
{
	static char names[SIM_HOSTS][SIM_VFS][16];
	struct sim_host *h = &sim_hosts[i];

	h->libvirtd_up = true;
	for (unsigned k = 0; k < sim_size.vfs; k++) {
		snprintf(names[i][k], sizeof names[i][k], "%c-vf%u", "abcd"[i], k + 1);
		h->vfs[k].name = names[i][k];
		h->vfs[k].parked_guid = 0x00fab0fffe000000ull + (unsigned)(i + 1) * 0x100 + k + 1;
		h->vfs[k].guid = h->vfs[k].parked_guid;
	}
	for (unsigned k = 0; k < sim_size.guests; k++)
		snprintf(h->qemus[k].path, sizeof h->qemus[k].path, "%s/%s-%s.sock", world_dir,
			 h->name, sim_guests[k].name);
}

bool sim_world_start(const char *dir)
{
	snprintf(world_dir, sizeof world_dir, "%s", dir);
	play_disks();
	sim_proc_start(&sim_fabric.sm, NULL);
	for (int i = 0; i < (int)sim_size.hosts; i++)
		build_host(i);
	for (int i = 0; i < (int)sim_size.hosts; i++)
		sim_daemon_start(i);
	for (unsigned i = 0; i < sim_size.guests; i++)
		sim_qemu_start(sim_guests[i].first, &sim_guests[i]);
	return sim_run(all_attached, NULL, sim_us() + START_S * SIM_S, NULL);
}
