/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The commands of ibvmig-sm ask the running daemon, and show its answers. */
#include "sm-helper/cli.h"
#include "common/http/client.h"
#include "common/json.h"
#include "common/util.h"
#include "sm-helper/rest/listen.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define ASK_MS 60000 /* a reconciliation asks every host */

/* Calls the running daemon; says on stderr why that failed. */
static int ask_daemon(const struct conf *conf, const char *method, const char *path,
		      struct json_object *body, struct json_object **ret_answer)
{
	struct listeners listen = {0};
	int rc = listen_secure(&listen, conf, NULL);
	char *base AUTO_FREE = rc ? NULL : listen_url(&listen, conf);
	char error[HTTP_ERROR_MAX] = "no memory";

	if (base)
		rc = http_call(base, method, path, body, ASK_MS, ret_answer, error);
	if (base && rc)
		fprintf(stderr, "ibvmig-sm: %s: %s\n", base, error);
	listen_clear(&listen);
	return base ? rc : -EIO;
}

static void print_json(struct json_object *answer)
{
	puts(json_object_to_json_string_ext(answer, JSON_C_TO_STRING_PRETTY |
							    JSON_C_TO_STRING_SPACED |
							    JSON_C_TO_STRING_NOSLASHESCAPE));
}

int cli_status(const struct command_line *l)
{
	struct json_object *answer AUTO_JSON = NULL;

	if (ask_daemon(l->context, "GET", "/v1/status", NULL, &answer))
		return 1;
	print_json(answer);
	return !json_opt_bool(json_opt(answer, "sm"), "plugin", false) ||
	       !str_eq(json_opt_str(json_opt(answer, "registry"), "state", ""), "good");
}

int cli_vguids(const struct command_line *l)
{
	struct json_object *answer AUTO_JSON = NULL;

	if (ask_daemon(l->context, "GET", "/v1/vguids", NULL, &answer))
		return 1;
	print_json(answer);
	return 0;
}

static void print_row(struct json_object *row)
{
	const char *text = json_opt_str(row, "text", "");

	printf("%-18s %-20s %-14s %-14s %-18s %5d %-12s %s%s%s\n", json_opt_str(row, "vguid", "-"),
	       json_opt_str(row, "name", "-"), json_opt_str(row, "host", "-"),
	       json_opt_str(row, "vf", "-"), json_opt_str(row, "parked_guid", "-"),
	       json_object_get_int(json_opt(row, "lid")), json_opt_str(row, "addresses", "-"),
	       json_opt_str(row, "verdict", "-"), *text ? ": " : "", text);
}

/* Rows that would change, or have been left open, make the exit status. */
static bool print_rebuild(struct json_object *answer)
{
	struct json_object *hosts = json_opt(answer, "hosts"), *rows = json_opt(answer, "vguids");
	const char *aside = json_opt_str(answer, "aside", "");
	bool applied = json_opt_bool(answer, "applied", false), open = false;

	for (size_t i = 0; i < json_count(hosts); i++) {
		struct json_object *h = json_object_array_get_idx(hosts, i);

		if (json_opt_bool(h, "answered", false))
			continue;
		printf("no answer from %s (%s): %s\n", json_opt_str(h, "host", "?"),
		       json_opt_str(h, "url", "?"), json_opt_str(h, "error", "?"));
		open = true;
	}
	printf("%-18s %-20s %-14s %-14s %-18s %5s %-12s %s\n", "VGUID", "VM", "HOST", "VF",
	       "PARKED", "LID", "ADDRESSES", "VERDICT");
	for (size_t i = 0; i < json_count(rows); i++) {
		struct json_object *row = json_object_array_get_idx(rows, i);
		const char *verdict = json_opt_str(row, "verdict", "");

		print_row(row);
		open |= str_eq(verdict, "conflict") ||
			(!applied && (str_eq(verdict, "enter") || str_eq(verdict, "correct")));
	}
	if (*aside)
		printf("the corrupt file is kept as %s\n", aside);
	puts(applied ? "applied: this registry has the subnet"
		     : "nothing is changed; --apply does it");
	return open;
}

int cli_rebuild(const struct command_line *l)
{
	struct json_object *body AUTO_JSON = json_object_new_object();
	struct json_object *answer AUTO_JSON = NULL, *hosts = json_object_new_array();

	for (size_t i = 0; l->args[i]; i++)
		json_object_array_add(hosts, json_object_new_string(l->args[i]));
	json_set(body, "hosts", hosts);
	json_set_bool(body, "apply",
		      command_has(l, (unsigned)command_option_find(l->program, "--apply")));
	if (ask_daemon(l->context, "POST", "/v1/rebuild", body, &answer))
		return 1;
	return print_rebuild(answer);
}

int cli_fence(const struct command_line *l)
{
	struct json_object *body AUTO_JSON = json_object_new_object(), *answer AUTO_JSON = NULL;

	if (!l->args[0] || !l->args[1]) {
		fprintf(stderr, "ibvmig-sm: say the VM's UUID, and the host that is off\n");
		return 2;
	}
	json_set_str(body, "vm", l->args[0]);
	json_set_str(body, "host", l->args[1]);
	json_set_bool(body, "sure",
		      command_has(l, (unsigned)command_option_find(l->program, "--sure")));
	if (ask_daemon(l->context, "POST", "/v1/fence", body, &answer))
		return 1;
	print_json(answer);
	return 0;
}

int cli_reconcile(const struct command_line *l)
{
	const char *word = l->args[0];
	struct json_object *body AUTO_JSON = json_object_new_object();
	struct json_object *answer AUTO_JSON = NULL, *list;
	int leaked = 0;

	json_set_bool(body, "release", word != NULL);
	if (ask_daemon(l->context, "POST", "/v1/reconcile", body, &answer))
		return 1;
	print_json(answer);
	list = json_opt(answer, "vguids");
	for (size_t i = 0; i < json_object_array_length(list); i++)
		leaked |= str_eq(json_opt_str(json_object_array_get_idx(list, i), "verdict", ""),
				 "leaked");
	return leaked;
}

int cli_verify(const struct command_line *l)
{
	struct json_object *answer AUTO_JSON = NULL, *list;
	int wrong = 0;

	if (ask_daemon(l->context, "GET", "/v1/verify", NULL, &answer))
		return 1;
	print_json(answer);
	list = json_opt(answer, "vguids");
	for (size_t i = 0; i < json_object_array_length(list); i++)
		wrong |= !json_opt_bool(json_object_array_get_idx(list, i), "ok", false);
	return wrong || json_count(json_opt(answer, "leftover_pkeys")) ||
	       json_count(json_opt(answer, "unread_pkeys"));
}

int cli_partitions(const struct command_line *l)
{
	struct json_object *answer AUTO_JSON = NULL;

	if (ask_daemon(l->context, "GET", "/v1/partitions", NULL, &answer))
		return 1;
	print_json(answer);
	return 0;
}

static struct json_object *members(const char *const *guids, const char *as)
{
	struct json_object *list = json_object_new_array();

	for (; *guids; guids++) {
		struct json_object *o = json_object_new_object();

		json_set_str(o, "guid", *guids);
		json_set_str(o, "membership", as);
		json_object_array_add(list, o);
	}
	return list;
}

int cli_partition(const struct command_line *l)
{
	const char *pkey = l->args[0], *as = l->args[1];
	bool remove = str_eq(as, "remove");
	struct json_object *body AUTO_JSON = json_object_new_object(), *answer AUTO_JSON = NULL;
	char *path AUTO_FREE = strf("/v1/partitions/%.40s/guids", pkey);

	if (!remove && !str_eq(as, "full") && !str_eq(as, "limited")) {
		fprintf(stderr, "ibvmig-sm: \"%s\" is no membership: full, limited, or remove\n",
			as);
		return COMMAND_USAGE;
	}
	json_set(body, remove ? "remove" : "add", members(&l->args[2], remove ? "full" : as));
	if (ask_daemon(l->context, "POST", path, body, &answer))
		return 1;
	print_json(answer);
	return 0;
}

/* A port that an entry names, or a port's own LID. */
static const char *held(struct json_object *entry, const char *key, char text[static 8])
{
	struct json_object *value = json_opt(entry, key);

	if (!value)
		return str_eq(key, "holds") && str_eq(json_opt_str(entry, "state", ""), "unknown")
			       ? "?"
			       : "none";
	snprintf(text, 8, "%d", json_object_get_int(value));
	return text;
}

static void print_held(struct json_object *entry)
{
	struct json_object *lid = json_opt(entry, "lid");
	char what[24], holds[8], before[8], after[8];

	snprintf(what, sizeof what, lid ? "LID %d" : "port %d",
		 json_object_get_int(lid ? lid : json_opt(entry, "port")));
	printf("%-20s %-18s %-10s %-8s %-8s %-8s %s%s\n", json_opt_str(entry, "switch", "-"),
	       json_opt_str(entry, "switch_guid", "-"), what, held(entry, "holds", holds),
	       held(entry, "before", before), held(entry, "after", after),
	       json_opt_str(entry, "state", "-"),
	       json_opt_bool(entry, "gone", false) ? ", gone" : "");
}

static void print_list(struct json_object *list)
{
	for (size_t i = 0; i < json_count(list); i++)
		print_held(json_object_array_get_idx(list, i));
}

static const char *shown(struct json_object *entry, const char *key)
{
	bool unknown = str_eq(key, "holds") && str_eq(json_opt_str(entry, "state", ""), "unknown");

	return json_opt_str(entry, key, unknown ? "?" : "none");
}

static void print_guids(struct json_object *list)
{
	if (json_count(list))
		printf("%-20s %-18s %-5s %-18s %-18s %-18s %s\n", "VF", "PORT", "ENTRY", "HOLDS",
		       "BEFORE", "AFTER", "STATE");
	for (size_t i = 0; i < json_count(list); i++) {
		struct json_object *g = json_object_array_get_idx(list, i);

		printf("%-20s %-18s %-5d %-18s %-18s %-18s %s\n", json_opt_str(g, "vf", "-"),
		       json_opt_str(g, "port_guid", "-"),
		       json_object_get_int(json_opt(g, "guid_index")), shown(g, "holds"),
		       shown(g, "before"), shown(g, "after"), json_opt_str(g, "state", "-"));
	}
}

static void print_parked(struct json_object *parked)
{
	struct json_object *moves = json_opt(parked, "moves");

	printf("%s\n", json_opt_str(parked, "why", ""));
	for (size_t i = 0; i < json_count(moves); i++) {
		struct json_object *m = json_object_array_get_idx(moves, i);
		struct json_object *from = json_opt(m, "from"), *to = json_opt(m, "to");

		printf("vGUID %s of VM %s: from %s of %s to %s of %s\n",
		       json_opt_str(m, "vguid", "-"), json_opt_str(m, "vm", "-"),
		       json_opt_str(from, "vf", "-"), json_opt_str(from, "host", "-"),
		       json_opt_str(to, "vf", "-"), json_opt_str(to, "host", "-"));
	}
	printf("%-20s %-18s %-10s %-8s %-8s %-8s %s\n", "SWITCH", "GUID", "WHAT", "HOLDS", "BEFORE",
	       "AFTER", "STATE");
	print_list(json_opt(parked, "entries"));
	print_list(json_opt(parked, "ports"));
	print_guids(json_opt(parked, "guids"));
}

int cli_parked(const struct command_line *l)
{
	const char *word = l->args[0];
	struct json_object *body AUTO_JSON = json_object_new_object();
	struct json_object *answer AUTO_JSON = NULL, *parked;

	json_set_str(body, "action", word);
	if (ask_daemon(l->context, word ? "POST" : "GET", word ? "/v1/parked" : "/v1/status",
		       word ? body : NULL, &answer))
		return 1;
	parked = json_opt(answer, "parked");
	if (parked)
		print_parked(parked);
	else
		puts("nothing is parked");
	return parked != NULL;
}
