/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Whatever a guest writes into its channel: the parser keeps its bounds and never crashes. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "common/frame.h"
#include "common/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void look(void *arg, struct json_object *msg)
{
	struct json_reader r;

	(void)arg;
	json_reader_init(&r, msg);
	json_need_str(&r, "op");
	json_need_u64(&r, "id", 0, UINT64_MAX);
	json_need_guid(&r, "to");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct frame_parser p = {0};
	size_t half = size / 2;

	frame_feed(&p, data, half, look, NULL);
	frame_feed(&p, data + half, size - half, look, NULL);
	if (p.text_bytes > FRAME_TEXT_MAX || p.dropped > size)
		abort();
	frame_parser_reset(&p);
	return 0;
}
