/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The guest's half of a test of memory that a device writes behind the hypervisor's dirty log.
 *
 *   rdma_hcawrite [options] SIZE PAGES-FILE RESULT-FILE [DEVICE]
 *
 *   -H       reserved huge pages            -s FILE  pages of FILE, which others may map as well
 *   -o       two regions that overlap       -g       half first, then mremap()ed and all of it
 *   -f       a child that shares the memory looks at it, in place of the process that registers
 *   -r       read-only for the program once it is registered
 *   -u       the first SIGUSR2 unmaps the memory, which stays registered: {"unmapped":1}
 *
 * Registers SIZE of memory (MiB, or KiB with a K behind it) for remote writes, writes the guest
 * physical addresses of its pages to PAGES-FILE ({"runs":[[address,pages],…]}), and waits. Outside,
 * a process that maps the guest's RAM plays the HCA: pass N fills each page with its index and N,
 * see hca_pages.py. On SIGUSR1 every byte is looked at; pages that are not wholly of the newest
 * pass go to RESULT-FILE as stale: {"pages","newest","oldest","stale","checks"}. On SIGUSR2 the
 * regions are deregistered, and RESULT-FILE says {"deregistered":N}. Ends on SIGTERM. */
#include "tests/guest/rdma_conn.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#define PAGE_BYTES  4096
#define PAGE_WORDS  (PAGE_BYTES / sizeof(uint64_t))
#define HUGE_BYTES  (2ul << 20)
#define BYTES_MAX   (1ul << 30)
#define PFN_PRESENT (1ull << 63) /* Documentation/admin-guide/mm/pagemap.rst */
#define PFN_MASK    ((1ull << 55) - 1)

static struct {
	bool huge, overlap, grow, child, read_only, unmap;
	const char *file, *pages, *result, *device;
	size_t bytes;
} opt;

static struct ibv_mr *mrs[2];
static uint8_t *memory;
static unsigned checks;

static uint64_t address_of(int map, size_t page)
{
	off_t at = (off_t)(((uintptr_t)memory / PAGE_BYTES + page) * sizeof(uint64_t));
	uint64_t entry;

	if (pread(map, &entry, sizeof entry, at) != sizeof entry || !(entry & PFN_PRESENT) ||
	    !(entry & PFN_MASK))
		die("no physical address of page %zu: root, and locked memory, are needed", page);
	return (entry & PFN_MASK) * PAGE_BYTES;
}

static void write_pages(void)
{
	int map = open("/proc/self/pagemap", O_RDONLY);
	FILE *f = fopen(opt.pages, "w");
	size_t pages = opt.bytes / PAGE_BYTES, n;

	if (map < 0 || !f)
		die("pagemap or %s: %s", opt.pages, strerror(errno));
	fputs("{\"runs\":[", f);
	for (size_t i = 0; i < pages; i += n) {
		uint64_t start = address_of(map, i);

		for (n = 1; i + n < pages && address_of(map, i + n) == start + n * PAGE_BYTES; n++)
			;
		fprintf(f, "%s[%" PRIu64 ",%zu]", i ? "," : "", start, n);
	}
	fputs("]}\n", f);
	if (fclose(f))
		die("%s: %s", opt.pages, strerror(errno));
	close(map);
}

/* Whole or not at all. */
static FILE *result_open(char temporary[256])
{
	FILE *f;

	snprintf(temporary, 256, "%s.new", opt.result);
	f = fopen(temporary, "w");
	if (!f)
		die("%s: %s", temporary, strerror(errno));
	return f;
}

static void result_close(FILE *f, const char *temporary)
{
	if (fclose(f) || rename(temporary, opt.result))
		die("%s: %s", opt.result, strerror(errno));
}

static bool page_is(size_t page, uint64_t number)
{
	const uint64_t *word = (const uint64_t *)(const void *)(memory + page * PAGE_BYTES);

	for (size_t i = 0; i < PAGE_WORDS; i++)
		if (word[i] != (number << 32 | page))
			return false;
	return true;
}

static void check(void)
{
	size_t pages = opt.bytes / PAGE_BYTES, stale = 0;
	uint64_t newest = 0, oldest = UINT64_MAX, v;
	char temporary[256];

	for (size_t i = 0; i < pages; i++) {
		memcpy(&v, memory + i * PAGE_BYTES, sizeof v);
		newest = v >> 32 > newest ? v >> 32 : newest;
		oldest = v >> 32 < oldest ? v >> 32 : oldest;
	}
	for (size_t i = 0; i < pages; i++)
		stale += !page_is(i, newest);
	FILE *f = result_open(temporary);
	fprintf(f,
		"{\"pages\":%zu,\"newest\":%" PRIu64 ",\"oldest\":%" PRIu64
		",\"stale\":%zu,\"checks\":%u}\n",
		pages, newest, oldest, stale, ++checks);
	result_close(f, temporary);
}

static void deregister(void)
{
	char temporary[256];
	unsigned n = 0;

	for (size_t i = 0; i < 2; i++) {
		if (mrs[i] && ibv_dereg_mr(mrs[i]))
			die("dereg_mr: %s", strerror(errno));
		n += mrs[i] != NULL;
		mrs[i] = NULL;
	}
	FILE *f = result_open(temporary);
	fprintf(f, "{\"deregistered\":%u}\n", n);
	result_close(f, temporary);
}

static void unmap(void)
{
	char temporary[256];

	if (munmap(memory, opt.bytes))
		die("munmap: %s", strerror(errno));
	FILE *f = result_open(temporary);
	fprintf(f, "{\"unmapped\":1}\n");
	result_close(f, temporary);
	opt.unmap = false;
}

/* With -g nothing is in the second half yet, and nobody else takes its addresses. */
static void map_memory(void)
{
	int fd = opt.file ? open(opt.file, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
	int flags = opt.file    ? MAP_SHARED
		    : opt.child ? MAP_SHARED | MAP_ANONYMOUS
				: MAP_PRIVATE | MAP_ANONYMOUS;
	size_t bytes = opt.bytes;

	if (opt.file && (fd < 0 || ftruncate(fd, (off_t)bytes)))
		die("%s: %s", opt.file, strerror(errno));
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags | (opt.huge ? MAP_HUGETLB : 0), fd,
		      0);
	if (memory == MAP_FAILED || (!opt.huge && madvise(memory, bytes, MADV_NOHUGEPAGE)))
		die("%zu bytes of memory: %s", bytes, strerror(errno));
	if (opt.grow && mmap(memory + bytes / 2, bytes - bytes / 2, PROT_NONE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
		die("mmap: %s", strerror(errno));
	if (mlock(memory, opt.grow ? bytes / 2 : bytes)) /* mlock() also makes them present */
		die("mlock: %s", strerror(errno));
}

static struct ibv_mr *reg(struct ibv_pd *pd, size_t from, size_t bytes)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, memory + from, bytes,
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);

	if (!mr)
		die("reg_mr of %zu bytes: %s", bytes, strerror(errno));
	return mr;
}

static void register_memory(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(conn_open(opt.device));
	size_t quarter = opt.bytes / 4 / PAGE_BYTES * PAGE_BYTES;

	if (!pd)
		die("alloc_pd: %s", strerror(errno));
	if (opt.overlap) {
		mrs[0] = reg(pd, 0, opt.bytes - quarter);
		mrs[1] = reg(pd, quarter, opt.bytes - quarter);
	} else if (opt.grow) {
		mrs[0] = reg(pd, 0, opt.bytes / 2);
		munmap(memory + opt.bytes / 2, opt.bytes - opt.bytes / 2);
		if (mremap(memory, opt.bytes / 2, opt.bytes, 0) != memory ||
		    mlock(memory, opt.bytes))
			die("mremap: %s", strerror(errno));
		mrs[1] = reg(pd, 0, opt.bytes);
	} else {
		mrs[0] = reg(pd, 0, opt.bytes);
	}
	if (opt.read_only && mprotect(memory, opt.bytes, PROT_READ))
		die("mprotect: %s", strerror(errno));
}

static size_t size_of(const char *text)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);
	size_t bytes = *end == 'K' ? n << 10 : n << 20;

	if (end == text || (*end && strcmp(end, "K")) || bytes < PAGE_BYTES || bytes % PAGE_BYTES ||
	    bytes > BYTES_MAX)
		die("SIZE is %s: 1 to 1024 (MiB), or 4K to 1048576K in whole pages", text);
	if (opt.huge && bytes % HUGE_BYTES)
		die("SIZE is %s: whole huge pages of %lu KiB are needed", text, HUGE_BYTES >> 10);
	return bytes;
}

static void parse(int argc, char **argv)
{
	int c;

	while ((c = getopt(argc, argv, "Hs:ogfru")) != -1) {
		opt.huge |= c == 'H';
		opt.overlap |= c == 'o';
		opt.grow |= c == 'g';
		opt.child |= c == 'f';
		opt.read_only |= c == 'r';
		opt.unmap |= c == 'u';
		if (c == 's')
			opt.file = optarg;
		if (c == '?')
			die("usage: see the head of rdma_hcawrite.c");
	}
	if (argc - optind < 3)
		die("usage: see the head of rdma_hcawrite.c");
	opt.bytes = size_of(argv[optind]);
	opt.pages = argv[optind + 1];
	opt.result = argv[optind + 2];
	opt.device = argv[optind + 3]; /* or NULL */
}

/* The child gets SIGUSR1 from its parent, and ends with it. */
static void look(const sigset_t *set)
{
	int sig;

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	while (!sigwait(set, &sig) && sig == SIGUSR1)
		check();
	_exit(0);
}

int main(int argc, char **argv)
{
	pid_t child = 0;
	sigset_t set;
	int sig;

	parse(argc, argv);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGUSR2);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	map_memory();
	register_memory();
	if (opt.child && (child = fork()) == 0)
		look(&set);
	write_pages();
	while (!sigwait(&set, &sig) && sig != SIGTERM) {
		if (sig == SIGUSR2 && opt.unmap)
			unmap();
		else if (sig == SIGUSR2)
			deregister();
		else if (child)
			kill(child, SIGUSR1);
		else
			check();
	}
	return 0;
}
