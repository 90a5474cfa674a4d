/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Lines of the log, read back from a pipe in the place of stderr. */
#include "tests/unit/tap.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"

static int pipe_fd[2], stderr_fd;

static int redirect(void **state)
{
	(void)state;
	stderr_fd = dup(STDERR_FILENO);
	return stderr_fd < 0 || pipe2(pipe_fd, O_CLOEXEC) || dup2(pipe_fd[1], STDERR_FILENO) < 0;
}

static int restore(void **state)
{
	(void)state;
	return dup2(stderr_fd, STDERR_FILENO) < 0 || close(pipe_fd[0]) || close(pipe_fd[1]) ||
	       close(stderr_fd);
}

static char *line(void)
{
	static char text[8192];
	ssize_t n = read(pipe_fd[0], text, sizeof text - 1);

	assert_true(n > 0);
	text[n] = '\0';
	return text;
}

/* A guest's text must not make lines of its own, with a priority of its own in the journal. */
static void test_one_line(void **state)
{
	char *said;

	(void)state;
	setenv("JOURNAL_STREAM", "8:1", 1);
	log_init("test");
	log_info("VM %s: agent: %s", "g1", "gone\n<3>all is lost\r\x1b[2J\x7f\tend\xc2\x9b");
	said = line();
	assert_string_equal(said, "<6>VM g1: agent: gone <3>all is lost  [2J  end  \n");
}

static void test_cut(void **state)
{
	char *text = malloc(9000), *said;

	(void)state;
	memset(text, 'x', 8999);
	text[8999] = '\0';
	log_error("%s", text);
	said = line();
	assert_int_equal(strlen(said), 2047);
	assert_string_equal(said + 2044, "xx\n");
	free(text);
}

static void test_utf8(void **state)
{
	(void)state;
	log_warn("%s", "Bär");
	assert_string_equal(line(), "<4>Bär\n");
}

int main(void)
{
	const struct CMUnitTest log_tests[] = {
		cmocka_unit_test_setup_teardown(test_one_line, redirect, restore),
		cmocka_unit_test_setup_teardown(test_cut, redirect, restore),
		cmocka_unit_test_setup_teardown(test_utf8, redirect, restore),
	};

	return RUN_TESTS(log_tests);
}
