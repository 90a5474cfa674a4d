/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The pages that the HCA may have written are really written again, and nothing else. The memory is
 * a private mapping of a file: a page that is written becomes anonymous, which pagemap tells. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "guest-agent/shim/core/link.h"
#include "guest-agent/shim/core/real.h"
#include "guest-agent/shim/verbs/mr.h"
#include "guest-agent/shim/verbs/mw.h"
#include "tests/unit/guest-agent/shim_stub.h"

#undef ibv_reg_mr

#define PAGE         4096u
#define PAGES        64u
#define PAGEMAP_FILE (1ull << 61) /* Documentation/admin-guide/mm/pagemap.rst */
#define PAGEMAP_HERE (1ull << 63)

struct shim shim;

static char *memory;
static int prot[PAGES];   /* the test's protection of each page; -1: unmapped */
static bool old_kernel;   /* kernel that does not know MADV_POPULATE_WRITE */
static unsigned released; /* pages that were written when the device let go of its region */
static struct shim_context context;
static struct ibv_pd real_pd;
static struct shim_pd pd;

static bool is_written(unsigned page)
{
	int map = open("/proc/self/pagemap", O_RDONLY);
	uint64_t entry = 0;
	off_t at = (off_t)(((uintptr_t)memory / PAGE + page) * sizeof(entry));

	assert_true(map >= 0);
	assert_int_equal(pread(map, &entry, sizeof(entry), at), sizeof(entry));
	close(map);
	return entry & PAGEMAP_HERE && !(entry & PAGEMAP_FILE);
}

static unsigned count(unsigned from, unsigned to)
{
	unsigned n = 0;

	for (unsigned i = from; i < to; i++)
		n += is_written(i);
	return n;
}

/* In the place of libc's: populates nothing, so that what is written later is seen. */
int madvise(void *addr, size_t length, int advice)
{
	size_t first = (size_t)((char *)addr - memory) / PAGE;

	(void)advice;
	errno = EINVAL;
	if (old_kernel)
		return -1;
	if ((char *)addr < memory || first >= PAGES)
		return 0;
	for (size_t i = first; i < first + length / PAGE; i++) {
		errno = prot[i] < 0 ? ENOMEM : EINVAL;
		if (prot[i] != (PROT_READ | PROT_WRITE))
			return -1;
	}
	return 0;
}

/* Stubs of the other files that the files under test need. */
static struct ibv_mr *play_reg_mr(struct ibv_pd *p, void *addr, size_t length, uint64_t iova,
				  unsigned access)
{
	struct ibv_mr *mr = calloc(1, sizeof(*mr));

	(void)addr, (void)length, (void)iova, (void)access;
	mr->pd = p;
	mr->lkey = mr->rkey = 0x1234;
	return mr;
}
static int play_dereg_mr(struct ibv_mr *mr)
{
	released = count(0, PAGES);
	free(mr);
	return 0;
}
static int play_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *p, void *addr, size_t length,
			 int access)
{
	(void)mr, (void)flags, (void)p, (void)addr, (void)length, (void)access;
	released = count(0, PAGES);
	return 0;
}
const struct shim_real *shim_real(void)
{
	static const struct shim_real played = {
		.reg_mr_iova2 = play_reg_mr, .dereg_mr = play_dereg_mr, .rereg_mr = play_rereg_mr};

	return &played;
}
static int uncovered;
void shim_set_uncovered(const char *why)
{
	(void)why;
	uncovered++;
}
void shim_unset_uncovered(void)
{
	uncovered--;
}
void mw_forget_mr(struct shim_mr *m)
{
	(void)m;
}

static char content(size_t at)
{
	return (char)(at * 7 + at / PAGE);
}

static int setup(void **state)
{
	int fd = memfd_create("region", MFD_CLOEXEC);

	(void)state;
	assert_true(fd >= 0 && !ftruncate(fd, PAGES * PAGE));
	memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	for (size_t i = 0; i < PAGES * PAGE; i++)
		memory[i] = content(i);
	munmap(memory, PAGES * PAGE);
	memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	close(fd);
	assert_int_equal(count(0, PAGES), 0);
	for (size_t i = 0; i < PAGES; i++)
		prot[i] = PROT_READ | PROT_WRITE;
	old_kernel = false;
	memset(&shim, 0, sizeof(shim));
	list_init(&shim.mrs);
	context = (struct shim_context){.in_job = true};
	pd = (struct shim_pd){
		.ctx = &context, .real = &real_pd, .v.context = &context.verbs.context};
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	table_free(&shim.keys);
	return munmap(memory, PAGES * PAGE);
}

static void protect(unsigned from, unsigned pages, int how)
{
	char *at = memory + from * PAGE;

	assert_int_equal(how < 0 ? munmap(at, pages * PAGE) : mprotect(at, pages * PAGE, how), 0);
	for (unsigned i = from; i < from + pages; i++)
		prot[i] = how;
}

static uint64_t dirty(size_t from, size_t bytes, unsigned access)
{
	struct shim_mr m = {.access = access, .v = {.addr = memory + from, .length = bytes}};

	return dirty_region(&m);
}

static void assert_unchanged(unsigned from, unsigned to)
{
	for (size_t i = from * PAGE; i < to * PAGE; i++)
		assert_int_equal(memory[i], content(i));
}

static void each_page_is_written_and_none_is_changed(void **state)
{
	(void)state;
	assert_int_equal(dirty(0, PAGES * PAGE, IBV_ACCESS_LOCAL_WRITE), PAGES * PAGE);
	assert_int_equal(count(0, PAGES), PAGES);
	assert_unchanged(0, PAGES);
}

static void pages_that_are_touched_in_part_count(void **state)
{
	(void)state;
	assert_int_equal(dirty(3 * PAGE + 100, PAGE, IBV_ACCESS_REMOTE_WRITE), 2 * PAGE);
	assert_int_equal(count(0, PAGES), 2);
	assert_int_equal(count(3, 5), 2);
}

static void what_the_hca_only_reads_is_left_alone(void **state)
{
	(void)state;
	assert_int_equal(dirty(0, PAGES * PAGE, IBV_ACCESS_REMOTE_READ), 0);
	assert_int_equal(dirty(0, 0, IBV_ACCESS_LOCAL_WRITE), 0);
	assert_int_equal(dirty(0, SIZE_MAX, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND), 0);
	assert_int_equal(count(0, PAGES), 0);
}

/* The program has unmapped a part of what it still has registered: no crash, the rest is written.
 */
static void holes_are_left_out(void **state)
{
	(void)state;
	protect(5, 3, -1);
	protect(63, 1, -1);
	assert_int_equal(dirty(0, PAGES * PAGE, IBV_ACCESS_LOCAL_WRITE), (PAGES - 4) * PAGE);
	assert_int_equal(count(0, PAGES), PAGES - 4);
}

#define RACES  20000 /* passes beside threads that unmap and write */
#define PART   16u   /* pages that come and go, from page PART on */
#define WRITES 7u    /* the page that the program writes to */

/* Both threads have all that libraries map for them before there is a hole that it could be put
 * into, where the test would map over it. */
static pthread_barrier_t race_begins;
static bool race_over;
static uint32_t written;

/* Gone and back; the pages are new ones, and stay writable as far as madvise() here knows. */
static void *unmap_again_and_again(void *arg)
{
	char *at = memory + PART * PAGE;

	(void)arg;
	pthread_barrier_wait(&race_begins);
	while (!__atomic_load_n(&race_over, __ATOMIC_RELAXED)) {
		munmap(at, PART * PAGE);
		sched_yield();
		if (mmap(at, PART * PAGE, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != at)
			return NULL;
		sched_yield();
	}
	return at;
}

static void *count_up(void *arg)
{
	uint32_t *word = (uint32_t *)(memory + WRITES * PAGE);

	(void)arg;
	pthread_barrier_wait(&race_begins);
	*word = 0;
	do
		__atomic_add_fetch(word, 1, __ATOMIC_RELAXED);
	while (++written && !__atomic_load_n(&race_over, __ATOMIC_RELAXED));
	return word;
}

/* The program runs while it is done: what it unmaps meanwhile must not end it, and what it writes
 * must not be undone. */
static void a_program_may_unmap_meanwhile(void **state)
{
	pthread_t unmaps, writes;
	void *done[2] = {NULL};

	(void)state;
	race_over = false;
	written = 0;
	pthread_barrier_init(&race_begins, NULL, 3);
	assert_int_equal(pthread_create(&unmaps, NULL, unmap_again_and_again, NULL), 0);
	assert_int_equal(pthread_create(&writes, NULL, count_up, NULL), 0);
	pthread_barrier_wait(&race_begins);
	for (int i = 0; i < RACES; i++)
		assert_true(dirty(0, PAGES * PAGE, IBV_ACCESS_LOCAL_WRITE) >=
			    (PAGES - PART) * PAGE);
	__atomic_store_n(&race_over, true, __ATOMIC_RELAXED);
	pthread_join(unmaps, &done[0]);
	pthread_join(writes, &done[1]);
	pthread_barrier_destroy(&race_begins);
	assert_true(done[0] && done[1]);
	assert_int_equal(*(uint32_t *)(memory + WRITES * PAGE), written);
	assert_unchanged(0, WRITES);
	assert_unchanged(WRITES + 1, PART);
	assert_unchanged(2 * PART, PAGES);
	assert_int_equal(dirty(0, PAGES * PAGE, IBV_ACCESS_LOCAL_WRITE), PAGES * PAGE);
	assert_int_equal(count(0, PAGES), PAGES);
}

/* The program has protected a part: the HCA may have written there before, and writes there
 * still. */
static void protected_pages_are_written(void **state)
{
	(void)state;
	protect(9, 4, PROT_READ);
	protect(40, 1, PROT_NONE);
	assert_int_equal(dirty(0, PAGES * PAGE, IBV_ACCESS_LOCAL_WRITE), PAGES * PAGE);
	assert_int_equal(count(0, PAGES), PAGES);
	protect(40, 1, PROT_READ);
	assert_unchanged(0, PAGES);
}

static void a_kernel_without_the_advice_does_as_well(void **state)
{
	(void)state;
	old_kernel = true;
	protect(5, 3, -1);
	protect(9, 4, PROT_READ);
	assert_int_equal(dirty(0, PAGES * PAGE, IBV_ACCESS_LOCAL_WRITE), (PAGES - 3) * PAGE);
	assert_int_equal(count(0, PAGES), PAGES - 3);
	assert_unchanged(0, 5);
	assert_unchanged(8, PAGES);
}

static void pages_of_several_regions_are_written_once(void **state)
{
	struct shim_context other = {0};
	struct shim_pd other_pd = {.ctx = &other};
	struct shim_mr m[] = {
		{.pd = &pd, .v = {.addr = memory + 20 * PAGE, .length = 10 * PAGE}},
		{.pd = &pd, .v = {.addr = memory + 4 * PAGE + 5, .length = 2 * PAGE}},
		{.pd = &pd, .v = {.addr = memory + 25 * PAGE, .length = 10 * PAGE}},
		{.pd = &pd, .v = {.addr = memory + 21 * PAGE, .length = PAGE}},
		{.pd = &pd, .v = {.addr = memory + 35 * PAGE, .length = 1}},
		{.pd = &other_pd, .v = {.addr = memory + 50 * PAGE, .length = PAGE}},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(m); i++) {
		m[i].access = IBV_ACCESS_LOCAL_WRITE;
		list_add(&shim.mrs, &m[i].link);
	}
	shim.fault = SHIM_FAULT_NO_DIRTYING;
	assert_int_equal(dirty_job(), 0);
	assert_int_equal(count(0, PAGES), 0);
	shim.fault = 0;
	assert_int_equal(dirty_job(), (3 + 16) * PAGE);
	assert_int_equal(count(4, 7), 3);
	assert_int_equal(count(20, 36), 16);
	assert_int_equal(count(0, PAGES), 19);
}

static void without_regions_there_is_nothing_to_do(void **state)
{
	(void)state;
	assert_int_equal(dirty_job(), 0);
}

/* A migration may be under way, and the suspend will not know of this region any more. */
static void a_region_that_is_given_back_is_written(void **state)
{
	struct ibv_mr *mr = ibv_reg_mr(&pd.v, memory, 8 * PAGE, IBV_ACCESS_LOCAL_WRITE);

	(void)state;
	assert_non_null(mr);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(released, 0); /* the HCA lets go of it first */
	assert_int_equal(count(0, 8), 8);
	assert_int_equal(count(0, PAGES), 8);
}

static void so_is_one_that_is_registered_elsewhere(void **state)
{
	struct ibv_mr *mr = ibv_reg_mr(&pd.v, memory, 8 * PAGE, IBV_ACCESS_LOCAL_WRITE);

	(void)state;
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, memory + 30 * PAGE,
				      2 * PAGE, 0),
			 0);
	assert_int_equal(released, 0);
	assert_int_equal(count(0, 8), 8);
	assert_int_equal(count(0, PAGES), 8);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0), 0);
	assert_int_equal(count(30, 32), 2);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(count(0, PAGES), 10);
}

/* Memory on demand keeps the program from moving while some region has it. */
static void on_demand_is_counted(void **state)
{
	const int on_demand = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND;
	struct ibv_mr *mr = ibv_reg_mr(&pd.v, memory, 8 * PAGE, on_demand);
	struct ibv_mr *other = ibv_reg_mr(&pd.v, memory, 8 * PAGE, IBV_ACCESS_LOCAL_WRITE);

	(void)state;
	assert_int_equal(uncovered, 1);
	for (int i = 0; i < 2; i++) { /* said twice, it is one */
		assert_int_equal(
			ibv_rereg_mr(other, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, on_demand),
			0);
		assert_int_equal(uncovered, 2);
	}
	assert_int_equal(ibv_dereg_mr(other), 0);
	assert_int_equal(uncovered, 1);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0), 0);
	assert_int_equal(uncovered, 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(uncovered, 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(each_page_is_written_and_none_is_changed),
		T(pages_that_are_touched_in_part_count),
		T(what_the_hca_only_reads_is_left_alone),
		T(holes_are_left_out),
		T(protected_pages_are_written),
		T(a_program_may_unmap_meanwhile),
		T(a_kernel_without_the_advice_does_as_well),
		T(pages_of_several_regions_are_written_once),
		T(without_regions_there_is_nothing_to_do),
		T(a_region_that_is_given_back_is_written),
		T(so_is_one_that_is_registered_elsewhere),
		T(on_demand_is_counted),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
