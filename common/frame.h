/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Length-prefixed JSON on a byte stream that can lose its peer at any byte (docs/wire.md,
 * "Frames").
 *
 * A frame is 8 lower-case hex digits (the number of bytes of the text), a newline, and the text:
 * one JSON object in UTF-8. The byte 0xff occurs in neither, so it means "forget what came before":
 * whoever opens a connection sends one first. */
#ifndef IBVMIG_COMMON_FRAME_H
#define IBVMIG_COMMON_FRAME_H

#include <json-c/json.h>
#include <stddef.h>
#include <stdint.h>

#define FRAME_TEXT_MAX   (1u << 20)
#define FRAME_HEAD_BYTES 9
#define FRAME_RESET      0xff

struct frame_parser {
	char head[FRAME_HEAD_BYTES];
	size_t head_bytes;
	char *text; /* owned; NULL while the head is incomplete */
	size_t text_bytes, text_have;
	size_t skip;      /* bytes of an oversized frame still to be dropped */
	uint64_t dropped; /* bytes of garbage and refused frames since the start */
};

/* Called for each object; msg is borrowed during the call. */
typedef void frame_handler(void *arg, struct json_object *msg);

/* A zeroed parser is ready. Garbage is counted in .dropped and skipped up to the next plausible
 * head or reset byte; memory stays below FRAME_TEXT_MAX whatever arrives. */
void frame_feed(struct frame_parser *p, const void *data, size_t bytes, frame_handler *handler,
		void *arg);
void frame_parser_reset(struct frame_parser *p);

/* The frame of msg, owned by the caller. NULL if its text is over FRAME_TEXT_MAX. */
char *frame_pack(struct json_object *msg, size_t *ret_bytes);

#endif
