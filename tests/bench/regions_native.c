/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The time that a suspend needs to find regions that could not be registered again, on this
 * machine's own CPU: regions_native. Prints microseconds, medians of 9, as JSON. */
#include "guest-agent/shim/core/link.h"
#include "guest-agent/shim/core/real.h"
#include "guest-agent/shim/job/job.h"
#include "guest-agent/shim/job/region.h"
#include "guest-agent/shim/verbs/context.h"
#include "guest-agent/shim/verbs/mr.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define RUNS    9
#define PAGE    4096ul
#define REGIONS 4096ul

struct shim shim;
struct shim_job job = {.role = SHIM_ROLE_MOVER};

static struct shim_context context = {.in_job = true};
static struct ibv_pd real_pd;
static struct shim_pd pd = {.ctx = &context, .real = &real_pd};
static struct ibv_mr real_mr;
static struct shim_mr regions[REGIONS];

static struct ibv_mr *play_reg_mr(struct ibv_pd *p, void *addr, size_t length, uint64_t iova,
				  unsigned access)
{
	(void)p, (void)addr, (void)length, (void)iova, (void)access;
	return &real_mr;
}
static int play_dereg_mr(struct ibv_mr *mr)
{
	(void)mr;
	return 0;
}

/* Stubs of the other files that the measured files need. */
const struct shim_real *shim_real(void)
{
	static const struct shim_real played = {.reg_mr_iova2 = play_reg_mr,
						.dereg_mr = play_dereg_mr};

	return &played;
}
void job_fail(int error, const char *fmt, ...)
{
	(void)error;
	fprintf(stderr, "a region is lost: %s\n", fmt);
	exit(1);
}
void shim_log(const char *fmt, ...)
{
	fprintf(stderr, "a region is lost: %s\n", fmt);
	exit(1);
}
bool context_has_guid(const struct shim_context *c, const struct shim_order *o, unsigned *ret_index)
{
	(void)o, (void)ret_index;
	return c->in_job;
}
int mr_register(struct shim_mr *m)
{
	(void)m;
	return 0;
}
void mr_give_up(struct shim_mr *m)
{
	(void)m;
}

static int by_value(const void *a, const void *b)
{
	return (*(const uint64_t *)a > *(const uint64_t *)b) -
	       (*(const uint64_t *)a < *(const uint64_t *)b);
}

/* n regions of bytes each, step bytes apart. */
static void measure(const char *name, char *memory, size_t n, size_t bytes, size_t step)
{
	uint64_t us[RUNS];

	list_init(&shim.mrs);
	for (size_t i = 0; i < n; i++) {
		regions[i] = (struct shim_mr){
			.pd = &pd,
			.real = &real_mr,
			.access = IBV_ACCESS_LOCAL_WRITE,
			.v = {.addr = memory + i * step, .length = bytes},
		};
		list_add(&shim.mrs, &regions[i].link);
	}
	for (int i = 0; i < RUNS; i++) {
		us[i] = now_us();
		regions_check();
		us[i] = now_us() - us[i];
	}
	qsort(us, RUNS, sizeof(*us), by_value);
	printf("\"%s\":%llu", name, (unsigned long long)us[RUNS / 2]);
}

static char *map(size_t bytes)
{
	char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	memset(p, 1, bytes);
	return p;
}

int main(void)
{
	size_t large = 1ul << 30;
	char *memory = map(large);

	printf("{");
	measure("one region of 1 GiB", memory, 1, large, 0);
	printf(",");
	measure("4096 regions in one mapping", memory, REGIONS, PAGE, PAGE);
	munmap(memory, large);
	memory = map(2 * REGIONS * PAGE);
	for (size_t i = 0; i < REGIONS; i++) /* no two mappings are neighbours */
		munmap(memory + (2 * i + 1) * PAGE, PAGE);
	printf(",");
	measure("4096 regions, each in a mapping of its own", memory, REGIONS, PAGE, 2 * PAGE);
	for (size_t i = 0; i < REGIONS; i++)
		mprotect(memory + 2 * i * PAGE, PAGE, PROT_READ);
	printf(",");
	measure("and read-only, without what the device takes", memory, REGIONS, PAGE, 2 * PAGE);
	puts("}");
	return 0;
}
