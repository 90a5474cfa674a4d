/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The dirtying pass on this machine's own CPU, without a guest: pages_native MIB. Prints what a GiB
 * of each kind of memory takes, in ms, medians of 5, as JSON. */
#include "guest-agent/shim/verbs/mr.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define RUNS 5

struct shim shim;

static struct shim_context context = {.in_job = true};
static struct shim_pd pd = {.ctx = &context};

static int by_value(const void *a, const void *b)
{
	return (*(const double *)a > *(const double *)b) -
	       (*(const double *)a < *(const double *)b);
}

static double median_ms_per_gib(struct shim_mr *m)
{
	double ms[RUNS];

	list_init(&shim.mrs);
	list_add(&shim.mrs, &m->link);
	for (int i = 0; i < RUNS; i++) {
		uint64_t start = now_us();

		if (dirty_job() != m->v.length) {
			fprintf(stderr, "not all pages were written\n");
			exit(1);
		}
		ms[i] = (double)(now_us() - start) / 1000 * (double)(1ul << 30) /
			(double)m->v.length;
	}
	qsort(ms, RUNS, sizeof(*ms), by_value);
	return ms[RUNS / 2];
}

static void measure(const char *name, size_t bytes, int flags, int advice, int prot)
{
	struct shim_mr m = {.pd = &pd, .access = IBV_ACCESS_LOCAL_WRITE, .v.length = bytes};

	m.v.addr = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
	if (m.v.addr == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	madvise(m.v.addr, bytes, advice); /* works where the kernel can */
	memset(m.v.addr, 1, bytes);
	mprotect(m.v.addr, bytes, prot);
	printf("%s\"%s\":%.1f", strcmp(name, "small pages") ? "," : "{", name,
	       median_ms_per_gib(&m));
	munmap(m.v.addr, bytes);
}

int main(int argc, char **argv)
{
	size_t bytes = (argc > 1 ? strtoul(argv[1], NULL, 10) : 0) << 20;
	int rw = PROT_READ | PROT_WRITE;

	if (!bytes || bytes > 64ul << 30) {
		fprintf(stderr, "usage: pages_native MIB\n");
		return 1;
	}
	measure("small pages", bytes, MAP_PRIVATE, MADV_NOHUGEPAGE, rw);
	measure("transparent huge pages", bytes, MAP_PRIVATE, MADV_HUGEPAGE, rw);
	measure("shared", bytes, MAP_SHARED, MADV_NOHUGEPAGE, rw);
	measure("read-only for the program", bytes / 16, MAP_PRIVATE, MADV_NOHUGEPAGE, PROT_READ);
	puts("}");
	return 0;
}
