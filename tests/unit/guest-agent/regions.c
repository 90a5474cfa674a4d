/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Regions whose memory the program has unmapped or protected: a suspend refuses them, a resume does
 * without them. The memory and its maps are real, the device is played: it takes what the kernel
 * would. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "guest-agent/shim/core/link.h"
#include "guest-agent/shim/core/maps.h"
#include "guest-agent/shim/core/real.h"
#include "guest-agent/shim/job/job.h"
#include "guest-agent/shim/job/region.h"
#include "guest-agent/shim/verbs/context.h"
#include "guest-agent/shim/verbs/mw.h"

#undef ibv_reg_mr

#define PAGE  4096u
#define PAGES 64u
#define RW    (PROT_READ | PROT_WRITE)

#define REGIONS_MET 3
#define MEET_S      30

struct shim shim;
struct shim_job job;

static char *memory;
static int prot[PAGES];    /* the test's protection of each page; -1: unmapped */
static int other_error;    /* the device's error for all that could be registered */
static unsigned only;      /* the number of such errors; 0: always */
static unsigned asked;     /* registrations that were tried */
static unsigned there;     /* regions of the device */
static unsigned forgotten; /* regions that windows were told of */
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;
static unsigned meeting, under_way; /* calls that must be side by side, and are; 0: as they come */
static bool alone;                  /* the calls were never side by side */
static size_t first_length;
static char why[SHIM_TEXT_MAX], logged[256];
static struct shim_context context;
static struct ibv_pd real_pd;
static struct shim_pd pd;

/* As Linux from 6.2 on: pages must be readable, or writable for one that is written to. */
static bool can_be(uintptr_t from, size_t length, unsigned access)
{
	bool writes = access & (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	size_t first = (from - (uintptr_t)memory) / PAGE;
	size_t last = (from + length - 1 - (uintptr_t)memory) / PAGE;

	for (size_t i = first; i <= last; i++)
		if (i >= PAGES || prot[i] < 0 || !(prot[i] & (writes ? PROT_WRITE : PROT_READ)))
			return false;
	return true;
}

/* Until as many calls are under way as the test asks for. */
static void meet(size_t length)
{
	const struct timespec until = {.tv_sec = time(NULL) + MEET_S};

	if (!under_way++)
		first_length = length;
	pthread_cond_broadcast(&more);
	while (under_way < meeting && !alone)
		alone = pthread_cond_timedwait(&more, &gate, &until);
}

static struct ibv_mr *play_reg_mr(struct ibv_pd *p, void *addr, size_t length, uint64_t iova,
				  unsigned access)
{
	pthread_mutex_t *locked AUTO_UNLOCK = mutex_lock(&gate);
	struct ibv_mr *mr;

	(void)iova;
	if (meeting)
		meet(length);
	asked++;
	errno = other_error;
	if (only && !--only)
		other_error = 0;
	if (!meeting && !can_be((uintptr_t)addr, length, access))
		errno = EFAULT;
	if (errno)
		return NULL;
	mr = calloc(1, sizeof(*mr));
	mr->pd = p;
	mr->lkey = mr->rkey = 0x1200 + (asked << 8);
	there++;
	return mr;
}
static int play_dereg_mr(struct ibv_mr *mr)
{
	there--;
	free(mr);
	return 0;
}
static int play_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *p, void *addr, size_t length,
			 int access)
{
	(void)addr, (void)length, (void)access;
	assert_non_null(mr); /* a region that is gone has nothing to change */
	assert_ptr_equal(p, flags & IBV_REREG_MR_CHANGE_PD ? &real_pd : NULL);
	return 0;
}

/* Stubs of the other files that the files under test need. */
const struct shim_real *shim_real(void)
{
	static const struct shim_real played = {
		.reg_mr_iova2 = play_reg_mr, .dereg_mr = play_dereg_mr, .rereg_mr = play_rereg_mr};

	return &played;
}
bool shim_ours(const struct ibv_context *c)
{
	return c != NULL;
}
bool context_has_guid(const struct shim_context *c, const struct shim_order *o, unsigned *ret_index)
{
	(void)o, (void)ret_index;
	return c->in_job;
}
void ctl_enter(void)
{
}
void ctl_exit(void)
{
}
void shim_set_uncovered(const char *text)
{
	(void)text;
}
void shim_unset_uncovered(void)
{
}
void mw_forget_mr(struct shim_mr *m)
{
	(void)m;
	forgotten++;
}
void shim_log(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(logged, sizeof(logged), fmt, ap);
	va_end(ap);
}
void job_fail(int error, const char *fmt, ...)
{
	va_list ap;

	job.error = error;
	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
}

static int setup(void **state)
{
	(void)state;
	memory = mmap(NULL, PAGES * PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(memory, MAP_FAILED);
	for (size_t i = 0; i < PAGES; i++)
		prot[i] = RW;
	other_error = 0;
	only = 0;
	asked = there = forgotten = 0;
	why[0] = logged[0] = '\0';
	memset(&shim, 0, sizeof(shim));
	memset(&job, 0, sizeof(job));
	job.role = SHIM_ROLE_MOVER;
	list_init(&shim.mrs);
	context = (struct shim_context){.in_job = true};
	pd = (struct shim_pd){
		.ctx = &context, .real = &real_pd, .v.context = &context.verbs.context};
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	while (shim.mrs.next != &shim.mrs)
		assert_int_equal(ibv_dereg_mr(&list_entry(shim.mrs.next, struct shim_mr, link)->v),
				 0);
	assert_int_equal(there, 0);
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

static struct ibv_mr *reg(size_t from, size_t bytes, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(&pd.v, memory + from, bytes, access);

	assert_non_null(mr);
	return mr;
}

/* Does what release_device() does. */
static void release(void)
{
	struct shim_mr *m;

	list_for_each (m, &shim.mrs, link)
		if (m->pd->ctx->in_job && m->real)
			play_dereg_mr(TAKE(m->real));
}

static uint32_t key_of(const struct ibv_mr *mr)
{
	uint32_t key = 1;

	assert_true(key_get(&shim.keys, mr->lkey, &key));
	return key;
}

/* The suspend names the region and the first page that is missing. */
static void assert_refused(const struct ibv_mr *mr, size_t page, const char *what)
{
	char region[64], place[64];

	snprintf(region, sizeof(region), "region of %zu bytes at %p ", mr->length, mr->addr);
	snprintf(place, sizeof(place), "%p is not %s any more", (void *)(memory + page * PAGE),
		 what);
	assert_int_equal(regions_check(), -EFAULT);
	assert_int_equal(job.error, -EFAULT);
	if (!strstr(why, region) || !strstr(why, place))
		fail_msg("\"%s\" does not say \"%s\" and \"%s\"", why, region, place);
	assert_true(strlen(why) + 1 < sizeof(why)); /* the text is not cut off */
}

static void what_is_there_is_accepted_and_nobody_is_asked(void **state)
{
	(void)state;
	assert_int_equal(regions_check(), 0);
	for (unsigned i = 0; i < PAGES; i += 2)
		reg(i * PAGE + i, PAGE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	reg(0, PAGES * PAGE, IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_LOCAL_WRITE);
	asked = 0;
	assert_int_equal(regions_check(), 0);
	assert_int_equal(asked, 0);
	assert_int_equal(job.error, 0);
}

static void unmapped_memory_is_refused(void **state)
{
	struct ibv_mr *mr = reg(8 * PAGE, 4 * PAGE, IBV_ACCESS_LOCAL_WRITE);

	(void)state;
	protect(8, 4, -1);
	assert_refused(mr, 8, "mapped");
}

static void so_is_memory_that_has_a_hole(void **state)
{
	struct ibv_mr *mr = reg(PAGE + 7, 20 * PAGE, 0);

	(void)state;
	protect(13, 1, -1);
	assert_refused(mr, 13, "mapped");
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(regions_check(), 0);
	mr = reg(16 * PAGE, PAGE + 1, 0); /* a byte in the last page */
	protect(17, 1, -1);
	assert_refused(mr, 17, "mapped");
}

/* A region that ends at the hole, or begins after it, is whole. */
static void a_hole_beside_a_region_is_none_of_its(void **state)
{
	(void)state;
	reg(0, 10 * PAGE, IBV_ACCESS_LOCAL_WRITE);
	reg(11 * PAGE, 10 * PAGE, IBV_ACCESS_LOCAL_WRITE);
	protect(10, 1, -1);
	assert_int_equal(regions_check(), 0);
}

static void memory_that_is_read_only_is_refused_for_writing(void **state)
{
	struct ibv_mr *mr;

	(void)state;
	reg(0, 40 * PAGE, IBV_ACCESS_REMOTE_READ);
	protect(20, 2, PROT_READ);
	asked = 0;
	assert_int_equal(regions_check(), 0); /* the HCA does not write there */
	assert_int_equal(asked, 1);
	assert_int_equal(there, 1); /* and it is given back */
	prot[20] = prot[21] = RW;
	mr = reg(0, 30 * PAGE, IBV_ACCESS_LOCAL_WRITE);
	prot[20] = prot[21] = PROT_READ;
	assert_refused(mr, 20, "writable");
}

/* The device's word counts, not what the maps look like; each piece of memory is asked for once. */
static void what_the_kernel_would_take_is_accepted(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 10; i++)
		reg(i * PAGE, 50 * PAGE, IBV_ACCESS_LOCAL_WRITE);
	protect(20, 4, PROT_NONE);
	protect(30, 1, PROT_READ);
	for (unsigned i = 0; i < PAGES; i++)
		prot[i] = RW; /* whatever we have done to it */
	asked = 0;
	assert_int_equal(regions_check(), 0);
	assert_int_equal(asked, 2);
	other_error = ENOMEM; /* says nothing about the memory */
	assert_int_equal(regions_check(), 0);
	other_error = 0;
}

static void regions_that_stay_are_not_looked_at(void **state)
{
	(void)state;
	reg(0, PAGE, IBV_ACCESS_LOCAL_WRITE);
	reg(PAGE, PAGE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
	protect(0, 2, -1);
	context.in_job = false;
	assert_int_equal(regions_check(), 0);
	context.in_job = true;
	assert_int_equal(ibv_dereg_mr(&list_entry(shim.mrs.next, struct shim_mr, link)->v), 0);
	assert_int_equal(regions_check(), 0); /* on demand: nothing needs to be there */
}

/* A program that unmaps may be about to deregister. */
static void a_lost_region_is_waited_for(void **state)
{
	struct ibv_mr *mr = reg(8 * PAGE, 4 * PAGE, IBV_ACCESS_LOCAL_WRITE);

	(void)state;
	job.lost_until_us = UINT64_MAX;
	protect(8, 4, -1);
	assert_int_equal(regions_check(), -EAGAIN);
	assert_non_null(strstr(logged, "the suspend waits for it"));
	logged[0] = '\0';
	assert_int_equal(regions_check(), -EAGAIN);
	assert_int_equal(logged[0], '\0'); /* the reason is told once */
	assert_int_equal(job.error, 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(regions_check(), 0);
}

/* A peer keeps its device and its regions. */
static void regions_of_a_peer_are_not_looked_at(void **state)
{
	(void)state;
	reg(8 * PAGE, 4 * PAGE, IBV_ACCESS_LOCAL_WRITE);
	protect(8, 4, -1);
	job.role = SHIM_ROLE_PEER;
	assert_int_equal(regions_check(), 0);
}

static void a_region_that_is_lost_while_suspended_is_gone(void **state)
{
	struct ibv_mr *lost = reg(0, 4 * PAGE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct ibv_mr *kept = reg(8 * PAGE, PAGE, IBV_ACCESS_LOCAL_WRITE);

	(void)state;
	release();
	protect(2, 1, -1);
	assert_int_equal(regions_rebuild(), 0);
	assert_int_equal(there, 1);
	assert_int_equal(key_of(lost), KEY_NONE);
	assert_int_not_equal(key_of(kept), KEY_NONE);
	assert_int_equal(forgotten, 1);
	assert_non_null(strstr(logged, "1 regions (first: 16384 bytes"));
	/* The lost region does not come back by itself, and refuses no migration any more. */
	protect(0, 2, RW);
	mmap(memory + 2 * PAGE, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	prot[2] = RW;
	assert_int_equal(regions_rebuild(), 0);
	assert_int_equal(there, 1);
	protect(2, 1, -1);
	assert_int_equal(regions_check(), 0);
	assert_int_equal(ibv_dereg_mr(lost), 0);
	assert_int_equal(there, 1);
}

static void a_region_that_is_gone_may_be_given_other_memory(void **state)
{
	struct ibv_mr *mr = reg(0, 4 * PAGE, IBV_ACCESS_LOCAL_WRITE);

	(void)state;
	release();
	protect(0, 4, -1);
	assert_int_equal(regions_rebuild(), 0);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0),
			 IBV_REREG_MR_ERR_CMD);
	assert_int_equal(key_of(mr), KEY_NONE);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, NULL, PAGE, 0),
			 IBV_REREG_MR_ERR_INPUT);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, memory, PAGE, 0),
			 IBV_REREG_MR_ERR_CMD); /* the new place is not there either */
	assert_int_equal(
		ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, memory + 5 * PAGE, PAGE, 0),
		0);
	assert_int_equal(there, 1);
	assert_int_not_equal(key_of(mr), KEY_NONE);
}

static void a_pd_that_is_not_changed_may_be_anything(void **state)
{
	struct ibv_mr *mr = reg(0, PAGE, IBV_ACCESS_LOCAL_WRITE);

	(void)state;
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, (void *)8, NULL, 0, 0), 0);
	assert_ptr_equal(mr->pd, &pd.v);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, &pd.v, NULL, 0, 0), 0);
}

/* Only what has lost its memory is given up. */
static void another_error_fails_the_resume_and_names_the_region(void **state)
{
	struct ibv_mr *mr = reg(0, 4 * PAGE, IBV_ACCESS_LOCAL_WRITE);

	(void)state;
	reg(8 * PAGE, PAGE, IBV_ACCESS_LOCAL_WRITE);
	release();
	other_error = ENOMEM;
	assert_int_equal(regions_rebuild(), -ENOMEM);
	assert_int_equal(job.error, -ENOMEM);
	assert_non_null(strstr(why, "bytes at"));
	assert_int_equal(forgotten, 0);
	other_error = 0; /* the host tries again */
	assert_int_equal(regions_rebuild(), 0);
	assert_int_equal(there, 2);
	assert_int_not_equal(key_of(mr), KEY_NONE);
}

/* The program had it unmapped, and something else is there now. */
static void a_region_that_is_there_again_is_registered(void **state)
{
	struct ibv_mr *mr = reg(0, 4 * PAGE, IBV_ACCESS_LOCAL_WRITE);

	(void)state;
	release();
	other_error = ENOMEM;
	only = 1;
	assert_int_equal(regions_rebuild(), 0);
	assert_int_equal(job.error, 0);
	assert_int_equal(there, 1);
	assert_int_not_equal(key_of(mr), KEY_NONE);
}

/* Reads the text from a file, so that lines are as the test wants them. */
static int read_text(struct shim_maps *m, const char *text, size_t bytes)
{
	char path[] = "/tmp/ibvmig-maps-XXXXXX";
	int fd = mkstemp(path), rc;

	assert_true(fd >= 0 && write(fd, text, bytes) == (ssize_t)bytes);
	close(fd);
	rc = maps_read(m, path);
	unlink(path);
	return rc;
}

static void lines_may_be_long_and_many(void **state)
{
	const size_t each = 4200, lines = 64;
	struct shim_maps maps = {0};
	struct shim_mr m = {.pd = &pd, .access = IBV_ACCESS_LOCAL_WRITE};
	char *text = malloc(each * lines + 1);
	uintptr_t at;

	(void)state;
	for (size_t i = 0; i < lines; i++) { /* a page each, and one between them */
		int n = snprintf(text + i * each, 64, "%zx-%zx rw-p 00000000 00:00 0 /",
				 (2 * i + 1) * PAGE, (2 * i + 2) * PAGE);

		memset(text + i * each + n, 'x', each - (size_t)n - 1);
		text[(i + 1) * each - 1] = '\n';
	}
	assert_int_equal(read_text(&maps, text, each * lines), 0);
	for (size_t i = 0; i < 2 * lines + 2; i++) {
		m.v.addr = (void *)(i * PAGE); /* NOLINT */
		m.v.length = PAGE;
		assert_int_equal(maps_lost(&maps, &m, &at),
				 i % 2 && i < 2 * lines ? MAPS_THERE : MAPS_UNMAPPED);
	}
	m.v.length = SIZE_MAX; /* beyond the end of all addresses: what the verb refuses */
	assert_int_equal(maps_lost(&maps, &m, &at), MAPS_THERE);
	maps_free(&maps);
	free(text);
}

static void what_is_not_understood_is_an_error(void **state)
{
	static const char *const texts[] = {"x\n", "1000-2000\n", "2000-1000 rw-p\n",
					    "1000-2000 rw-p"};
	struct shim_maps maps = {0};
	char *endless = malloc(100000);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		assert_int_equal(read_text(&maps, texts[i], strlen(texts[i])), -EPROTO);
	memset(endless, 'x', 100000);
	assert_int_equal(read_text(&maps, endless, 100000), -EPROTO);
	assert_int_equal(maps_read(&maps, "/nowhere/maps"), -ENOENT);
	maps_free(&maps);
	free(endless);
}

/* Lengths are played: so much memory would take the test long. */
static void register_lengths(const size_t lengths[REGIONS_MET], unsigned side_by_side)
{
	struct shim_mr *m[REGIONS_MET];

	for (unsigned i = 0; i < REGIONS_MET; i++)
		m[i] = to_mr(reg(i * PAGE, PAGE, IBV_ACCESS_LOCAL_WRITE));
	release();
	for (unsigned i = 0; i < REGIONS_MET; i++)
		m[i]->v.length = lengths[i];
	under_way = 0;
	alone = false;
	meeting = side_by_side;
	assert_int_equal(regions_rebuild(), 0);
	meeting = 0;
	for (unsigned i = 0; i < REGIONS_MET; i++)
		m[i]->v.length = PAGE;
	assert_int_equal(there, REGIONS_MET);
	assert_false(alone);
}

static void few_large_regions_are_registered_side_by_side(void **state)
{
	static const size_t lengths[REGIONS_MET] = {PAGE, 512u << 20, 256u << 20};

	(void)state;
	register_lengths(lengths, REGIONS_MET);
}

static void the_largest_region_is_begun_first(void **state)
{
	static const size_t lengths[REGIONS_MET] = {PAGE, 2u << 20, 1u << 20};

	(void)state;
	register_lengths(lengths, 1);
	assert_int_equal(first_length, lengths[1]);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(what_is_there_is_accepted_and_nobody_is_asked),
		T(unmapped_memory_is_refused),
		T(so_is_memory_that_has_a_hole),
		T(a_hole_beside_a_region_is_none_of_its),
		T(memory_that_is_read_only_is_refused_for_writing),
		T(what_the_kernel_would_take_is_accepted),
		T(regions_that_stay_are_not_looked_at),
		T(a_lost_region_is_waited_for),
		T(regions_of_a_peer_are_not_looked_at),
		T(a_region_that_is_lost_while_suspended_is_gone),
		T(a_region_that_is_gone_may_be_given_other_memory),
		T(a_pd_that_is_not_changed_may_be_anything),
		T(a_region_that_is_there_again_is_registered),
		T(another_error_fails_the_resume_and_names_the_region),
		T(few_large_regions_are_registered_side_by_side),
		T(the_largest_region_is_begun_first),
		T(lines_may_be_long_and_many),
		T(what_is_not_understood_is_an_error),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
