/* SPDX-License-Identifier: GPL-2.0-or-later */
/* cmocka with TAP on stdout, which tests/run-all counts. */
#ifndef IBVMIG_TESTS_TAP_H
#define IBVMIG_TESTS_TAP_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#define RUN_TESTS(tests)                                                                           \
	(cmocka_set_message_output(CM_OUTPUT_TAP),                                                 \
	 cmocka_run_group_tests_name(#tests, tests, NULL, NULL))

#endif
