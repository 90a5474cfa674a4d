/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Command lines: what a table makes of them, and the one line that an error is. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/command.h"
#include "common/util.h"

#define WORDS_MAX 12

enum { OPT_FILE, OPT_LOUD, OPT_WAY, OPT_SOCKET, OPTIONS };

static int run_nothing(const struct command_line *l)
{
	(void)l;
	return 0;
}

static const struct command_option options[OPTIONS] = {
	[OPT_FILE] = {"--file", "FILE", "that is read", 'f'},
	[OPT_LOUD] = {"--loud", NULL, "not in silence", 0},
	[OPT_WAY] = {"--way", "in|out", "which way", 0},
	[OPT_SOCKET] = {"--socket", "PATH", "of the daemon", 0},
};

static const struct command commands[] = {
	{"status", "[VM]", COMMAND_BIT(OPT_LOUD), run_nothing, "how it goes"},
	{"migrate", "VM DEST", COMMAND_BIT(OPT_WAY) | COMMAND_BIT(OPT_FILE), run_nothing, "go"},
	{"list", "", 0, run_nothing, "all"},
	{"parked", "[undo|commit]", 0, run_nothing, "what is left"},
	{"reconcile", "[release]", 0, run_nothing, "ask"},
	{"cost", "[NET...]", 0, run_nothing, "of nets"},
};

static const struct program tool = {
	.name = "tool",
	.options = options,
	.option_count = OPTIONS,
	.commands = commands,
	.command_count = ARRAY_SIZE(commands),
	.always = COMMAND_BIT(OPT_SOCKET),
};

static const struct command serve = {NULL, "", COMMAND_BIT(OPT_FILE), run_nothing, "serves"};
static const struct program server = {.name = "server",
				      .options = options,
				      .option_count = OPTIONS,
				      .commands = &serve,
				      .command_count = 1};

static const struct command other = {NULL, "PROGRAM [ARGUMENT...]", COMMAND_BIT(OPT_LOUD),
				     run_nothing, "starts"};
static const struct program starter = {.name = "starter",
				       .options = options,
				       .option_count = OPTIONS,
				       .commands = &other,
				       .command_count = 1,
				       .hands_on = true};

static struct command_line line;
static char said[4096], told[16384]; /* on stderr and on stdout */
static char *argv_kept[WORDS_MAX + 2];

static void read_back(int fd, int own, int to, char *text, size_t room)
{
	ssize_t n;

	dup2(own, to);
	close(own);
	n = pread(fd, text, room - 1, 0);
	text[n > 0 ? n : 0] = '\0';
	close(fd);
}

/* Parses words, which spaces part; "''" is an empty one. */
static int parse(const struct program *p, const char *words)
{
	int out = memfd_create("out", 0), err = memfd_create("err", 0);
	int own_out = dup(STDOUT_FILENO), own_err = dup(STDERR_FILENO), argc = 1, rc;
	static char text[512];

	snprintf(text, sizeof text, "%s", words);
	argv_kept[0] = strdupa("x");
	for (char *rest = text, *w; *words && (w = strsep(&rest, " ")) && argc <= WORDS_MAX;)
		argv_kept[argc++] = strcmp(w, "''") ? w : w + 2;
	argv_kept[argc] = NULL;
	fflush(stdout);
	dup2(out, STDOUT_FILENO);
	dup2(err, STDERR_FILENO);
	rc = command_parse(p, argc, argv_kept, &line);
	fflush(stdout);
	read_back(out, own_out, STDOUT_FILENO, told, sizeof told);
	read_back(err, own_err, STDERR_FILENO, said, sizeof said);
	return rc;
}

static void test_command_and_options(void **state)
{
	(void)state;
	assert_int_equal(parse(&tool, "migrate --way out g1 -f a --file=b hostb"), COMMAND_RUN);
	assert_string_equal(line.command->name, "migrate");
	assert_int_equal(line.arg_count, 2);
	assert_string_equal(line.args[1], "hostb");
	assert_null(line.args[2]);
	assert_string_equal(command_value(&line, OPT_WAY), "out");
	assert_string_equal(command_value(&line, OPT_FILE), "b");
	assert_false(command_has(&line, OPT_LOUD));
	assert_int_equal(parse(&tool, "--socket /s status --loud"), COMMAND_RUN);
	assert_true(command_has(&line, OPT_LOUD));
	assert_int_equal(parse(&tool, "status -- -g"), COMMAND_RUN);
	assert_string_equal(line.args[0], "-g");
	assert_int_equal(parse(&tool, "cost a b c d"), COMMAND_RUN);
	assert_int_equal(line.arg_count, 4);
	assert_int_equal(parse(&tool, "parked commit"), COMMAND_RUN);
	assert_int_equal(parse(&tool, "reconcile release"), COMMAND_RUN);
	assert_int_equal(parse(&server, "-fpath"), COMMAND_RUN);
	assert_string_equal(command_value(&line, OPT_FILE), "path");
}

static void test_hands_on(void **state)
{
	(void)state;
	assert_int_equal(parse(&starter, "--loud prog --loud -x"), COMMAND_RUN);
	assert_int_equal(line.arg_count, 1);
	assert_string_equal(line.args[0], "prog");
	assert_string_equal(line.argv[0], "prog");
	assert_string_equal(line.argv[2], "-x");
	assert_null(line.argv[3]);
	assert_int_equal(line.given_count, 1);
	assert_int_equal(parse(&starter, "help"), COMMAND_RUN);
}

static void test_help(void **state)
{
	char *of_command AUTO_FREE = NULL;

	(void)state;
	assert_int_equal(parse(&tool, "-h"), 0);
	assert_true(!strncmp(told, "usage: tool COMMAND ", 20));
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		assert_non_null(strstr(told, commands[i].help));
	assert_int_equal(parse(&tool, "migrate --help"), 0);
	assert_non_null(strstr(told, "usage: tool migrate VM DEST [--file FILE] [--way in|out]\n"));
	assert_null(strstr(told, "--loud"));
	assert_non_null(strstr(told, "--socket PATH"));
	of_command = strdup(told);
	assert_int_equal(parse(&tool, "help migrate"), 0);
	assert_string_equal(told, of_command);
	assert_int_equal(parse(&server, "--help"), 0);
	assert_non_null(strstr(told, "--file FILE (-f)"));
	assert_int_equal(parse(&server, "--version"), 0);
	assert_string_equal(told, "server " IBVMIG_VERSION "\n");
	assert_string_equal(said, "");
}

static const struct {
	const struct program *program;
	const char *words, *says;
} wrong[] = {
	{&tool, "", "tool: a command is missing; tool --help lists them\n"},
	{&tool, "statsu", "tool: there is no command statsu; did you mean status?\n"},
	{&tool, "fly", "tool: there is no command fly; tool --help tells all\n"},
	{&tool, "help fly", "tool: there is no command fly; tool --help tells all\n"},
	{&tool, "status --laud", "tool: --laud is no option; did you mean --loud?\n"},
	{&tool, "status -x", "tool: -x is no option; tool --help tells all\n"},
	{&tool, "status --loud=1", "tool: --loud=1 is no option; did you mean --loud?\n"},
	{&tool, "status --way in", "tool: status has no option --way\n"},
	{&tool, "status --socket", "tool: --socket needs PATH\n"},
	{&tool, "status ''", "tool: argument 2 is empty\n"},
	{&tool, "status a b", "tool: status takes [VM]; b is one argument too many\n"},
	{&tool, "list a", "tool: list takes no arguments; a is one argument too many\n"},
	{&tool, "migrate g1", "tool: migrate takes VM DEST\n"},
	{&tool, "reconcile all", "tool: reconcile takes [release], not all\n"},
	{&tool, "parked go", "tool: parked takes [undo|commit], not go\n"},
	{&server, "a", "server: server takes no arguments; a is one argument too many\n"},
	{&starter, "--loud", "starter: starter takes PROGRAM [ARGUMENT...]\n"},
};

static void test_errors_are_one_line(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		assert_int_equal(parse(wrong[i].program, wrong[i].words), COMMAND_USAGE);
		assert_string_equal(said, wrong[i].says);
		assert_string_equal(told, "");
	}
}

int main(void)
{
	const struct CMUnitTest common_command[] = {
		cmocka_unit_test(test_command_and_options),
		cmocka_unit_test(test_hands_on),
		cmocka_unit_test(test_help),
		cmocka_unit_test(test_errors_are_one_line),
	};

	return RUN_TESTS(common_command);
}
