/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The guest's half of a test of memory that a device writes behind the hypervisor's dirty log.
 *
 *   rdma_hcawrite MIB PAGES-FILE RESULT-FILE [DEVICE]
 *
 * Registers MIB of memory for remote writes, writes the guest physical addresses of its pages to
 * PAGES-FILE ({"pages":[…]}), and waits. Outside, a process that maps the guest's RAM plays the
 * HCA: it writes a growing number into the first 8 bytes of each page. On SIGUSR1 the newest number
 * seen in any page is taken, and pages that hold another are counted into RESULT-FILE:
 * {"pages","newest","oldest","stale","checks"}. Ends on SIGTERM. */
#include "tests/guest/rdma_conn.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE_BYTES  4096
#define PFN_PRESENT (1ull << 63) /* Documentation/admin-guide/mm/pagemap.rst */
#define PFN_MASK    ((1ull << 55) - 1)

static void write_pages(const uint8_t *region, size_t pages, const char *path)
{
	int map = open("/proc/self/pagemap", O_RDONLY);
	FILE *f = fopen(path, "w");

	if (map < 0 || !f)
		die("pagemap or %s: %s", path, strerror(errno));
	fputs("{\"pages\":[", f);
	for (size_t i = 0; i < pages; i++) {
		uint64_t entry;
		off_t at = (off_t)(((uintptr_t)region / PAGE_BYTES + i) * sizeof entry);

		if (pread(map, &entry, sizeof entry, at) != sizeof entry ||
		    !(entry & PFN_PRESENT) || !(entry & PFN_MASK))
			die("no physical address of page %zu: root, and locked memory, are needed",
			    i);
		fprintf(f, "%s%" PRIu64, i ? "," : "", (uint64_t)((entry & PFN_MASK) * PAGE_BYTES));
	}
	fputs("]}\n", f);
	if (fclose(f))
		die("%s: %s", path, strerror(errno));
	close(map);
}

static void check(const uint8_t *region, size_t pages, const char *path, unsigned checks)
{
	uint64_t newest = 0, oldest = UINT64_MAX, v;
	size_t stale = 0;
	char temporary[256];

	for (size_t i = 0; i < pages; i++) {
		memcpy(&v, region + i * PAGE_BYTES, sizeof v);
		newest = v > newest ? v : newest;
		oldest = v < oldest ? v : oldest;
	}
	for (size_t i = 0; i < pages; i++) {
		memcpy(&v, region + i * PAGE_BYTES, sizeof v);
		stale += v != newest;
	}
	snprintf(temporary, sizeof temporary, "%s.new", path);
	FILE *f = fopen(temporary, "w");
	if (!f)
		die("%s: %s", temporary, strerror(errno));
	fprintf(f,
		"{\"pages\":%zu,\"newest\":%" PRIu64 ",\"oldest\":%" PRIu64
		",\"stale\":%zu,\"checks\":%u}\n",
		pages, newest, oldest, stale, checks);
	if (fclose(f) || rename(temporary, path))
		die("%s: %s", path, strerror(errno));
}

int main(int argc, char **argv)
{
	unsigned long mib = argc >= 4 ? strtoul(argv[1], NULL, 10) : 0;
	size_t pages = mib << 8;
	sigset_t set;
	int sig;

	if (mib < 1 || mib > 1024)
		die("usage: rdma_hcawrite MIB(1 to 1024) PAGES-FILE RESULT-FILE [DEVICE]");
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	uint8_t *region = mmap(NULL, pages * PAGE_BYTES, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (region == MAP_FAILED || madvise(region, pages * PAGE_BYTES, MADV_NOHUGEPAGE) ||
	    mlock(region, pages * PAGE_BYTES))
		die("%lu MiB of locked memory: %s", mib, strerror(errno));
	struct ibv_pd *pd = ibv_alloc_pd(conn_open(argc > 4 ? argv[4] : NULL));
	if (!pd || !ibv_reg_mr(pd, region, pages * PAGE_BYTES,
			       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE))
		die("reg_mr: %s", strerror(errno));
	write_pages(region, pages, argv[2]);
	for (unsigned checks = 1; !sigwait(&set, &sig) && sig == SIGUSR1; checks++)
		check(region, pages, argv[3], checks);
	return 0;
}
