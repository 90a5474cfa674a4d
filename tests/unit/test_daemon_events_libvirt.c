/* SPDX-License-Identifier: GPL-2.0-or-later */
/* libvirt's handles in the daemon's loop (daemon/events_libvirt.h). */
#include "tests/unit/tap.h"

#include <dirent.h>
#include <fcntl.h>
#include <libvirt/libvirt.h>
#include <systemd/sd-event.h>
#include <unistd.h>

#include "daemon/events_libvirt.h"

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

static int setup(void **state)
{
	static sd_event *loop;

	(void)state;
	return sd_event_new(&loop) < 0 || events_libvirt_register(loop);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_is_refused_is_closed),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, setup, NULL);
}
