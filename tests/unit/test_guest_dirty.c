/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The pages that the HCA may have written are really written again, and nothing else. A page that
 * is written while it is protected raises SIGSEGV, which is noted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "guest-agent/shim.h"

#define PAGE  4096u
#define PAGES 64u

struct shim shim;

/* What the file under test needs from the others. */
const struct shim_real *shim_real(void)
{
	static const struct shim_real none;

	return &none;
}
bool shim_ours(const struct ibv_context *c)
{
	return c != NULL;
}
void ctl_enter(void)
{
}
void ctl_exit(void)
{
}
void shim_log(const char *fmt, ...)
{
	(void)fmt;
}
void shim_set_uncovered(const char *why)
{
	(void)why;
}

static char *memory;
static volatile sig_atomic_t written[PAGES];

static void on_write(int sig, siginfo_t *info, void *context)
{
	size_t at = (size_t)((char *)info->si_addr - memory) / PAGE;

	(void)sig;
	(void)context;
	if ((char *)info->si_addr < memory || at >= PAGES)
		_exit(99);
	written[at] = 1;
	mprotect(memory + at * PAGE, PAGE, PROT_READ | PROT_WRITE);
}

static int setup(void **state)
{
	(void)state;
	memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		      0);
	for (size_t i = 0; i < PAGES * PAGE; i++)
		memory[i] = (char)(i * 7 + i / PAGE);
	memset((void *)written, 0, sizeof(written));
	return mprotect(memory, PAGES * PAGE, PROT_READ);
}

static int teardown(void **state)
{
	(void)state;
	return munmap(memory, PAGES * PAGE);
}

static unsigned count(unsigned from, unsigned to)
{
	unsigned n = 0;

	for (unsigned i = from; i < to; i++)
		n += written[i] != 0;
	return n;
}

static uint64_t dirty(size_t from, size_t bytes, unsigned access)
{
	struct shim_mr m = {.access = access, .v = {.addr = memory + from, .length = bytes}};
	struct sigaction on = {.sa_sigaction = on_write, .sa_flags = SA_SIGINFO}, before;
	uint64_t done;

	sigaction(SIGSEGV, &on, &before); /* cmocka has its own */
	done = mr_dirty(&m);
	sigaction(SIGSEGV, &before, NULL);
	return done;
}

static void each_page_is_written_and_none_is_changed(void **state)
{
	(void)state;
	assert_int_equal(dirty(0, PAGES * PAGE, IBV_ACCESS_LOCAL_WRITE), PAGES * PAGE);
	assert_int_equal(count(0, PAGES), PAGES);
	for (size_t i = 0; i < PAGES * PAGE; i++)
		assert_int_equal(memory[i], (char)(i * 7 + i / PAGE));
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
	assert_int_equal(count(0, PAGES), 0);
}

/* The program has unmapped a part of what it still has registered: no crash, the rest is written.
 */
static void holes_are_left_out(void **state)
{
	(void)state;
	munmap(memory + 5 * PAGE, 3 * PAGE);
	munmap(memory + 63 * PAGE, PAGE);
	assert_int_equal(dirty(0, PAGES * PAGE, IBV_ACCESS_LOCAL_WRITE), (PAGES - 4) * PAGE);
	assert_int_equal(count(0, PAGES), PAGES - 4);
}

void mw_forget_mr(struct shim_mr *m)
{
	(void)m;
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(each_page_is_written_and_none_is_changed),
		T(pages_that_are_touched_in_part_count),
		T(what_the_hca_only_reads_is_left_alone),
		T(holes_are_left_out),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
