/* SPDX-License-Identifier: GPL-2.0-or-later */
/* libvirt's handles in the daemon's loop (daemon/libvirt/loop.h). */
#include "tests/unit/tap.h"

#include <dirent.h>
#include <fcntl.h>
#include <libvirt/libvirt.h>
#include <systemd/sd-event.h>
#include <unistd.h>

#include "daemon/libvirt/loop.h"

static sd_event *loop;

static unsigned open_files(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static void ignore(int watch, int fd, int events, void *opaque)
{
	(void)watch;
	(void)fd;
	(void)events;
	(void)opaque;
}

/* epoll takes no regular file. */
static void test_what_is_refused_is_closed(void **state)
{
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	unsigned before = open_files();

	(void)state;
	assert_int_equal(virEventAddHandle(fd, VIR_EVENT_HANDLE_READABLE, ignore, NULL, NULL), -1);
	assert_int_equal(open_files(), before);
	close(fd);
}

static void count(int watch, int fd, int events, void *opaque)
{
	(void)watch;
	(void)fd;
	(void)events;
	++*(unsigned *)opaque;
}

/* libvirt switches a handle off by no events: whoever has hung up is then not told either, over and
 * over. */
static void test_off_is_off(void **state)
{
	unsigned calls = 0;
	int fd[2], watch;

	(void)state;
	assert_int_equal(pipe2(fd, O_CLOEXEC), 0);
	watch = virEventAddHandle(fd[0], VIR_EVENT_HANDLE_READABLE, count, &calls, NULL);
	assert_true(watch >= 0);
	close(fd[1]);
	virEventUpdateHandle(watch, 0);
	for (int i = 0; i < 10; i++)
		assert_true(sd_event_run(loop, 0) >= 0);
	assert_int_equal(calls, 0);
	virEventUpdateHandle(watch, VIR_EVENT_HANDLE_READABLE);
	assert_true(sd_event_run(loop, 0) > 0);
	assert_int_equal(calls, 1);
	virEventUpdateHandle(watch, 0);
	virEventUpdateHandle(watch, 0);
	assert_int_equal(virEventRemoveHandle(watch), 0);
	watch = virEventAddHandle(fd[0], 0, count, &calls, NULL);
	for (int i = 0; i < 10; i++)
		assert_true(sd_event_run(loop, 0) >= 0);
	assert_int_equal(calls, 1);
	assert_int_equal(virEventRemoveHandle(watch), 0);
	close(fd[0]);
}

static int setup(void **state)
{
	(void)state;
	return sd_event_new(&loop) < 0 || events_libvirt_register(loop);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_is_refused_is_closed),
		cmocka_unit_test(test_off_is_off),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, setup, NULL);
}
