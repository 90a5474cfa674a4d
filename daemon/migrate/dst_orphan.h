/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A VM that runs here, and whose source is lost for good before it has given the addresses away. No
 * daemon can know that: an operator says it (docs/migration.md, "A source that is lost"). */
#ifndef IBVMIG_DAEMON_MIGRATE_DST_ORPHAN_H
#define IBVMIG_DAEMON_MIGRATE_DST_ORPHAN_H

#include "daemon/migrate/step.h"

/* POST /v1/migrations/ID/resolve {"source_lost":true}, to the destination. Said again, 200. */
void orphan_post(struct http_request *req);
/* The words for a step that fails, or waits, because the source has not done its part, and what an
 * operator can do. why: cause. */
void orphan_name_way_out(const struct migration *m, const char *why,
			 char text[static HTTP_ERROR_MAX]);
/* SWITCH without the source. in: of migrate_input(); owned by the call. STEP_WAIT or -errno. */
int orphan_take_over(struct migration *m, struct json_object *in);

#endif
