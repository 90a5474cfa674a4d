/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Command lines: one table of options and one of commands are parser, usage and "help COMMAND".
 * The usage is shown when it is asked for; an error is one line that names the word. */
#ifndef IBVMIG_COMMON_COMMAND_H
#define IBVMIG_COMMON_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define COMMAND_WORDS_MAX 192 /* arguments, and options as well */
#define COMMAND_RUN       -1  /* command_parse() has found a command: go on */
#define COMMAND_USAGE     2   /* exit status: the command line is wrong */

#define COMMAND_BIT(option) (UINT64_C(1) << (option))

/* --help, -h, --version and -V belong to every program, and stand in no table. */
struct command_option {
	const char *name;  /* "--json" */
	const char *value; /* "FILE", or the words that may stand there: "a|b"; NULL: none */
	const char *help;
	char letter; /* 'c' for -c; 0: none */
};

struct command_line;

struct command {
	const char *name;      /* NULL: runs without a command */
	const char *arguments; /* "VM [DEST]", "[NET...]", "[undo|commit]" or "" */
	uint64_t options;      /* bits of indices of the program's table */
	int (*run)(const struct command_line *l); /* the exit status */
	const char *help;
};

struct program {
	const char *name;
	const struct command_option *options;
	const struct command *commands;
	size_t option_count, command_count;
	uint64_t always;   /* options of every command */
	const char *notes; /* stands behind the usage of all; or NULL */
	bool hands_on; /* starts another program: the words from the first argument on are its */
};

struct command_line {
	const struct program *program;
	const struct command *command;
	void *context; /* borrowed: the program gives it to its commands */
	const char *args[COMMAND_WORDS_MAX + 1]; /* borrowed; NULL behind the last one */
	size_t arg_count;
	char **argv; /* a program that hands on: from the first argument on; args has that one */
	struct {
		unsigned option;
		const char *value; /* borrowed; "" for an option without a value */
	} given[COMMAND_WORDS_MAX];
	size_t given_count;
};

/* COMMAND_RUN, and the command is ret_line's; else an exit status, and what there is to say has
 * been said: 0 where help or version was asked for. */
int command_parse(const struct program *p, int argc, char **argv, struct command_line *ret_line);

/* The last value of an option, or NULL. Borrowed. */
const char *command_value(const struct command_line *l, unsigned option);
static inline bool command_has(const struct command_line *l, unsigned option)
{
	return command_value(l, option);
}

/* Prints a line on stderr, after the program's name. Returns COMMAND_USAGE. */
int command_refuse(const struct command_line *l, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* For completion: a command by its name, or NULL; an option's index, or -1. */
const struct command *command_find(const struct program *p, const char *name);
int command_option_find(const struct program *p, const char *name);

#endif
