/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "common/frame.h"
#include "common/json.h"
#include "common/util.h"

#include <string.h>

void frame_parser_reset(struct frame_parser *p)
{
	uint64_t dropped = p->dropped;

	free(p->text);
	*p = (struct frame_parser){.dropped = dropped};
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Drops the first byte until what is there can be the beginning of a head. */
static void resync_head(struct frame_parser *p)
{
	for (;;) {
		size_t i = 0;

		while (i < p->head_bytes &&
		       (i == FRAME_HEAD_BYTES - 1 ? p->head[i] == '\n'
						  : hex_digit(p->head[i]) >= 0))
			i++;
		if (i == p->head_bytes)
			return;
		memmove(p->head, p->head + 1, --p->head_bytes);
		p->dropped++;
	}
}

static void head_done(struct frame_parser *p)
{
	uint32_t n = 0;

	for (int i = 0; i < FRAME_HEAD_BYTES - 1; i++)
		n = n << 4 | (uint32_t)hex_digit(p->head[i]);
	p->head_bytes = 0;
	if (n == 0 || n > FRAME_TEXT_MAX || !(p->text = malloc(n))) {
		p->dropped += FRAME_HEAD_BYTES;
		p->skip = n;
		return;
	}
	p->text_bytes = n;
	p->text_have = 0;
}

static void text_done(struct frame_parser *p, frame_handler *handler, void *arg)
{
	char *text AUTO_FREE = TAKE(p->text);
	struct json_object *msg AUTO_JSON = NULL;

	if (json_parse(text, p->text_bytes, &msg))
		p->dropped += FRAME_HEAD_BYTES + p->text_bytes;
	else
		handler(arg, msg);
}

static size_t min_size(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* Takes at least one byte; none of them is FRAME_RESET. */
static size_t feed_some(struct frame_parser *p, const char *data, size_t bytes,
			frame_handler *handler, void *arg)
{
	size_t n;

	if (p->skip) {
		n = min_size(p->skip, bytes);
		p->skip -= n;
		p->dropped += n;
		return n;
	}
	if (!p->text) {
		p->head[p->head_bytes++] = *data;
		resync_head(p);
		if (p->head_bytes == FRAME_HEAD_BYTES)
			head_done(p);
		return 1;
	}
	n = min_size(p->text_bytes - p->text_have, bytes);
	memcpy(p->text + p->text_have, data, n);
	p->text_have += n;
	if (p->text_have == p->text_bytes)
		text_done(p, handler, arg);
	return n;
}

void frame_feed(struct frame_parser *p, const void *data, size_t bytes, frame_handler *handler,
		void *arg)
{
	const char *at = data, *end = at + bytes;

	while (at < end) {
		const char *reset = memchr(at, FRAME_RESET, (size_t)(end - at));
		const char *stop = reset ? reset : end;

		while (at < stop)
			at += feed_some(p, at, (size_t)(stop - at), handler, arg);
		if (reset) {
			p->dropped += p->head_bytes + (p->text ? p->text_have : 0);
			frame_parser_reset(p);
			at = reset + 1;
		}
	}
}

char *frame_pack(struct json_object *msg, size_t *ret_bytes)
{
	const char *text = json_text(msg);
	size_t n = strlen(text);

	if (n > FRAME_TEXT_MAX)
		return NULL;
	*ret_bytes = FRAME_HEAD_BYTES + n;
	return strf("%08zx\n%s", n, text);
}
