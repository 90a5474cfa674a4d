/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Preloaded into a program that is built with -finstrument-functions: the address of each function
 * that it enters, and that of the call, relative to the program's start, go into $WALK_CALLS. */
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#define BUFFERED   4096
#define NOT_TRACED __attribute__((no_instrument_function))

void __cyg_profile_func_enter(void *function, void *caller);
void __cyg_profile_func_exit(void *function, void *caller);

static uint64_t calls[BUFFERED];
static size_t count;
static uintptr_t start;
static int fd = -1;

static NOT_TRACED void flush(void)
{
	size_t size = count * sizeof *calls;

	if (fd >= 0 && write(fd, calls, size) != (ssize_t)size)
		_exit(99);
	count = 0;
}

/* The program itself is the first that is listed. */
static NOT_TRACED int first(struct dl_phdr_info *info, size_t size, void *arg)
{
	(void)size;
	*(uintptr_t *)arg = info->dlpi_addr;
	return 1;
}

static NOT_TRACED __attribute__((constructor)) void begin(void)
{
	const char *path = getenv("WALK_CALLS");

	dl_iterate_phdr(first, &start);
	if (path)
		fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
}

static NOT_TRACED __attribute__((destructor)) void end(void)
{
	flush();
}

NOT_TRACED void __cyg_profile_func_enter(void *function, void *caller)
{
	calls[count++] = (uintptr_t)function - start;
	calls[count++] = (uintptr_t)caller - start;
	if (count == BUFFERED)
		flush();
}

NOT_TRACED void __cyg_profile_func_exit(void *function, void *caller)
{
	(void)function;
	(void)caller;
}
