/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "common/command.h"
#include "common/nearest.h"
#include "common/util.h"

#include <stdarg.h>
#include <string.h>

/* ---- tables ---- */

const struct command *command_find(const struct program *p, const char *name)
{
	for (size_t i = 0; i < p->command_count; i++)
		if (str_eq(p->commands[i].name, name) || (!name && !p->commands[i].name))
			return &p->commands[i];
	return NULL;
}

int command_option_find(const struct program *p, const char *name)
{
	for (size_t i = 0; i < p->option_count; i++) {
		const struct command_option *o = &p->options[i];

		if (!strcmp(o->name, name) ||
		    (o->letter && name[0] == '-' && name[1] == o->letter && !name[2]))
			return (int)i;
	}
	return -1;
}

static bool has_commands(const struct program *p)
{
	return p->command_count > 1 || p->commands[0].name;
}

const char *command_value(const struct command_line *l, unsigned option)
{
	for (size_t i = l->given_count; i-- > 0;)
		if (l->given[i].option == option)
			return l->given[i].value;
	return NULL;
}

/* ---- usage ---- */

/* The command with its arguments and options, as it is typed: without a name, options are first. */
static void print_synopsis(const struct program *p, const struct command *k, FILE *out)
{
	if (k->name)
		fprintf(out, " %s%s%s", k->name, *k->arguments ? " " : "", k->arguments);
	for (size_t i = 0; i < p->option_count; i++) {
		const struct command_option *o = &p->options[i];

		if (k->options & COMMAND_BIT(i))
			fprintf(out, " [%s%s%s]", o->name, o->value ? " " : "",
				o->value ? o->value : "");
	}
	if (!k->name && *k->arguments)
		fprintf(out, " %s", k->arguments);
	fputc('\n', out);
}

static void print_option(const struct command_option *o, FILE *out)
{
	char letter[8] = "";
	char *name AUTO_FREE = NULL;

	if (o->letter)
		snprintf(letter, sizeof letter, " (-%c)", o->letter);
	name = strf("%s%s%s%s", o->name, o->value ? " " : "", o->value ? o->value : "", letter);
	fprintf(out, "    %-28s %s\n", name ? name : o->name, o->help);
}

static void print_options(const struct program *p, uint64_t mask, FILE *out)
{
	static const struct command_option help = {"--help", NULL, "print this and exit", 'h'};

	print_option(&help, out);
	for (size_t i = 0; i < p->option_count; i++)
		if ((mask | p->always) & COMMAND_BIT(i))
			print_option(&p->options[i], out);
}

static void print_command_usage(const struct program *p, const struct command *k, FILE *out)
{
	fprintf(out, "usage: %s", p->name);
	print_synopsis(p, k, out);
	fprintf(out, "  %s\n", k->help);
	print_options(p, k->options, out);
}

static void print_usage(const struct program *p, FILE *out)
{
	if (!has_commands(p)) {
		print_command_usage(p, &p->commands[0], out);
	} else {
		fprintf(out, "usage: %s %s [ARGUMENT...] [OPTION...]\n", p->name,
			command_find(p, NULL) ? "[COMMAND]" : "COMMAND");
		for (size_t i = 0; i < p->command_count; i++) {
			const struct command *k = &p->commands[i];

			fputs(k->name ? " " : "  without a command", out);
			print_synopsis(p, k, out);
			fprintf(out, "      %s\n", k->help);
		}
		fprintf(out, "options:\n");
		print_options(p, ~UINT64_C(0), out);
		fprintf(out, "%s help COMMAND tells more of one.\n", p->name);
	}
	fprintf(out, "%s --version tells the version.\n%s", p->name, p->notes ? p->notes : "");
}

/* ---- errors ---- */

int command_refuse(const struct command_line *l, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "%s: ", l->program->name);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	return COMMAND_USAGE;
}

/* Says what a word is not, and which word is near it. */
static int refuse_word(const struct command_line *l, const char *what, const struct nearest *near)
{
	if (near->word)
		return command_refuse(l, "%s; did you mean %s?", what, near->word);
	return command_refuse(l, "%s; %s --help tells all", what, l->program->name);
}

static int refuse_option(const struct command_line *l, const char *word)
{
	char *what AUTO_FREE = strf("%s is no option", word);
	struct nearest near = {.typed = word};

	for (size_t i = 0; i < l->program->option_count; i++)
		nearest_try(&near, l->program->options[i].name);
	nearest_try(&near, "--help");
	nearest_try(&near, "--version");
	return refuse_word(l, what ? what : word, &near);
}

static int refuse_command(const struct command_line *l, const char *word)
{
	char *what AUTO_FREE = strf("there is no command %s", word);
	struct nearest near = {.typed = word};

	for (size_t i = 0; i < l->program->command_count; i++)
		if (l->program->commands[i].name)
			nearest_try(&near, l->program->commands[i].name);
	return refuse_word(l, what ? what : word, &near);
}

/* ---- arguments of a command ---- */

/* "[undo|commit]" and "[release]" are those words; "[VM]" is any. */
static bool may_stand(const char *pattern, size_t n, const char *word)
{
	size_t length = strlen(word);

	if (*pattern != '[' || pattern[1] < 'a' || pattern[1] > 'z')
		return true;
	for (const char *p = pattern + 1, *end = pattern + n - 1; p < end;) {
		size_t w = strcspn(p, "|]");

		if (w == length && !strncmp(p, word, w))
			return true;
		p += w + 1;
	}
	return false;
}

static int check_arguments(const struct command_line *l)
{
	const struct command *k = l->command;
	const char *takes = *k->arguments ? k->arguments : "no arguments";
	const char *name = k->name ? k->name : l->program->name, *p = k->arguments;
	size_t at = 0;

	for (; *p; p += strspn(p, " ")) {
		size_t n = strcspn(p, " ");
		bool more = n > 3 &&
			    (!strncmp(p + n - 4, "...]", 4) || !strncmp(p + n - 3, "...", 3));

		if (at >= l->arg_count)
			return *p == '[' ? 0 : command_refuse(l, "%s takes %s", name, takes);
		if (more)
			return 0;
		if (!may_stand(p, n, l->args[at]))
			return command_refuse(l, "%s takes %s, not %s", name, takes, l->args[at]);
		at++;
		p += n;
	}
	if (at < l->arg_count)
		return command_refuse(l, "%s takes %s; %s is one argument too many", name, takes,
				      l->args[at]);
	return 0;
}

static int check_options(const struct command_line *l)
{
	const struct program *p = l->program;

	for (size_t i = 0; i < l->given_count; i++) {
		unsigned o = l->given[i].option;

		if (!((l->command->options | p->always) & COMMAND_BIT(o)))
			return command_refuse(l, "%s has no option %s",
					      l->command->name ? l->command->name : p->name,
					      p->options[o].name);
	}
	return 0;
}

/* ---- parsing ---- */

struct parse {
	struct command_line *l;
	char **argv;
	int argc, at;
	const char *command;
	bool words_only, help;
};

static int add_given(struct parse *s, int option, const char *value)
{
	struct command_line *l = s->l;

	if (l->given_count == COMMAND_WORDS_MAX)
		return command_refuse(l, "%s is one option too many", s->argv[s->at]);
	l->given[l->given_count].option = (unsigned)option;
	l->given[l->given_count++].value = value;
	return 0;
}

/* The value of "--name=value" and "-cvalue", or NULL; *ret_name: the option alone, owned. */
static const char *split_option(const char *word, char **ret_name)
{
	size_t n = word[1] == '-' ? strcspn(word, "=") : 2;

	*ret_name = strndup(word, n);
	if (!word[n])
		return NULL;
	return word[n] == '=' && word[1] == '-' ? word + n + 1 : word + n;
}

static int take_option(struct parse *s)
{
	const struct program *p = s->l->program;
	const char *word = s->argv[s->at], *value;
	char *name AUTO_FREE = NULL;
	int o;

	if (!strcmp(word, "--help") || !strcmp(word, "-h")) {
		s->help = true;
		return 0;
	}
	value = split_option(word, &name);
	o = name ? command_option_find(p, name) : -1;
	if (o < 0 || (value && !p->options[o].value))
		return refuse_option(s->l, word);
	if (!p->options[o].value)
		return add_given(s, o, "");
	if (!value && s->at + 1 < s->argc)
		value = s->argv[++s->at];
	if (!value)
		return command_refuse(s->l, "%s needs %s", word, p->options[o].value);
	return add_given(s, o, value);
}

static int take_argument(struct parse *s)
{
	struct command_line *l = s->l;

	if (!*s->argv[s->at] && !l->program->hands_on)
		return command_refuse(l, "argument %d is empty", s->at);
	if (!s->command && has_commands(l->program)) {
		s->command = s->argv[s->at];
		return 0;
	}
	if (l->arg_count == COMMAND_WORDS_MAX)
		return command_refuse(l, "%s is one argument too many", s->argv[s->at]);
	l->args[l->arg_count++] = s->argv[s->at];
	if (l->program->hands_on) {
		l->argv = s->argv + s->at;
		s->at = s->argc;
	}
	return 0;
}

static int take_words(struct parse *s)
{
	int rc = 0;

	for (s->at = 1; !rc && s->at < s->argc; s->at++) {
		const char *word = s->argv[s->at];

		if (!s->words_only && !strcmp(word, "--"))
			s->words_only = true;
		else if (!s->words_only && word[0] == '-' && word[1])
			rc = take_option(s);
		else
			rc = take_argument(s);
	}
	return rc;
}

/* "help COMMAND" is "COMMAND --help". */
static void take_help(struct parse *s)
{
	struct command_line *l = s->l;

	if (!str_eq(s->command, "help") || command_find(l->program, "help"))
		return;
	s->help = true;
	s->command = l->args[0];
}

static int print_help(const struct parse *s)
{
	const struct program *p = s->l->program;
	const struct command *k = s->command ? command_find(p, s->command) : NULL;

	if (s->command && !k)
		return refuse_command(s->l, s->command);
	if (k)
		print_command_usage(p, k, stdout);
	else
		print_usage(p, stdout);
	return 0;
}

int command_parse(const struct program *p, int argc, char **argv, struct command_line *ret_line)
{
	struct command_line *l = ret_line;
	struct parse s = {.l = l, .argc = argc, .argv = argv};
	int rc;

	*l = (struct command_line){.program = p};
	if (argc > 1 && (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V"))) {
		printf("%s %s\n", p->name, IBVMIG_VERSION);
		return 0;
	}
	if ((rc = take_words(&s)))
		return rc;
	take_help(&s);
	if (s.help)
		return print_help(&s);
	l->command = command_find(p, s.command);
	if (!l->command && s.command)
		return refuse_command(l, s.command);
	if (!l->command)
		return command_refuse(l, "a command is missing; %s --help lists them", p->name);
	if ((rc = check_options(l)) || (rc = check_arguments(l)))
		return rc;
	return COMMAND_RUN;
}
