/* SPDX-License-Identifier: GPL-2.0-or-later */
/* ibvmig doctor: the daemon's findings, the bad ones last, where they are seen. */
#include "common/json.h"
#include "common/util.h"
#include "daemon/cli/main.h"

#include <inttypes.h>
#include <string.h>

static void print_check(struct json_object *o)
{
	printf("%-8s %-16s %s: %s\n", cli_text(o, "verdict", "?"), cli_text(o, "check", "?"),
	       cli_text(o, "subject", "?"), cli_text(o, "detail", ""));
	if (json_opt_str(o, "fix", NULL))
		printf("%25s to mend it: %s\n", "", cli_text(o, "fix", ""));
}

int cli_doctor(const struct command_line *c)
{
	static const char *const order[] = {"skipped", "ok", "warning", "bad"};
	struct json_object *answer AUTO_JSON = NULL, *list;
	int rc = cli_call(c, "GET", "/v1/doctor", NULL, &answer);

	if (rc)
		return rc;
	list = json_opt(answer, "checks");
	if (command_has(c, OPT_JSON))
		cli_print_json(answer);
	for (size_t v = 0; !command_has(c, OPT_JSON) && v < ARRAY_SIZE(order); v++)
		for (size_t i = 0; i < json_count(list); i++)
			if (!strcmp(order[v],
				    cli_text(json_object_array_get_idx(list, i), "verdict", "")))
				print_check(json_object_array_get_idx(list, i));
	if (!command_has(c, OPT_JSON))
		printf("%zu checks: %" PRIu64 " bad, %" PRIu64 " warnings, %" PRIu64 " skipped\n",
		       json_count(list), json_opt_u64(answer, "bad", 0),
		       json_opt_u64(answer, "warnings", 0), json_opt_u64(answer, "skipped", 0));
	return json_opt_u64(answer, "bad", 0) ? CLI_FAILED : CLI_OK;
}
