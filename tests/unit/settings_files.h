/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The committed example and manual page of a program, against what its table of settings prints. */
#ifndef IBVMIG_TESTS_UNIT_SETTINGS_FILES_H
#define IBVMIG_TESTS_UNIT_SETTINGS_FILES_H

#include "common/conf.h"
#include "common/util.h"
#include "tests/unit/tap.h"

#include <string.h>

#define SETTINGS_BEGIN ".\\\" BEGIN SETTINGS\n"
#define SETTINGS_END   ".\\\" END SETTINGS\n"
#define SETTINGS_HINT  "%s is not what the table prints: make settings"

static inline char *settings_file(const char *path)
{
	char *text = NULL;

	assert_int_equal(read_file(path, CONF_FILE_MAX, &text, NULL), 0);
	return text;
}

static inline void assert_settings_files(const struct setting *table, const char *program)
{
	char *example AUTO_FREE = strf("hooks/%s.conf", program);
	char *page AUTO_FREE = strf("docs/man/%s.conf.5", program);
	char *has AUTO_FREE = settings_file(example), *tells AUTO_FREE = settings_file(page);
	char *printed AUTO_FREE = NULL, *list AUTO_FREE = NULL, *marked AUTO_FREE = NULL;
	size_t n;
	FILE *out = open_memstream(&printed, &n);

	settings_print_example(table, program, out);
	fclose(out);
	if (strcmp(printed, has) != 0)
		fail_msg(SETTINGS_HINT, example);
	out = open_memstream(&list, &n);
	settings_print_man(table, out);
	fclose(out);
	marked = strf(SETTINGS_BEGIN "%s" SETTINGS_END, list);
	if (!strstr(tells, marked))
		fail_msg(SETTINGS_HINT, page);
}

#endif
