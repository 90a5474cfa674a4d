/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The check whether the memory of a region is there still. The HCA holds its pages, so a program
 * may unmap or protect them while they are registered. Nothing fails until they are to be
 * registered again.
 *
 * The file /proc/self/maps tells at a cost that does not depend on how large the regions are.
 * Memory that is mapped for reading and writing can be registered for anything. Other mappings
 * depend on the version of the kernel and on the driver: before Linux 6.2 the kernel wrote to
 * private memory whatever its protection. So the kernel is asked there: one page of the mapping is
 * registered, and given back. */
#include "guest-agent/shim/core/maps.h"
#include "guest-agent/shim/core/real.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define PAGE_BYTES ((uintptr_t)4096)
#define LINE_MAX   (32u << 10) /* a path has 4 KiB, or 16 with all of it escaped */
#define ROOM_MIN   256

enum verdict { NOT_ASKED, CAN_BE, CANNOT_BE };

struct maps_span {
	uintptr_t from, to;
	bool plain;              /* for reading and writing */
	enum verdict verdict[2]; /* else: of regions that are only read, and of others */
};

/* Neighbours that are plain become one. 0 or -ENOMEM. */
static int add(struct shim_maps *m, struct maps_span s)
{
	struct maps_span *last = m->count ? &m->span[m->count - 1] : NULL, *grown;
	size_t room = m->room ? m->room * 2 : ROOM_MIN;

	if (last && s.plain && last->plain && last->to == s.from) {
		last->to = s.to;
		return 0;
	}
	if (m->count == m->room) {
		grown = realloc(m->span, room * sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		m->span = grown;
		m->room = room;
	}
	m->span[m->count++] = s;
	return 0;
}

/* "55d0c0a00000-55d0c0a21000 rw-p 00000000 00:00 0 [heap]" */
static int add_line(struct shim_maps *m, const char *line)
{
	struct maps_span s = {0};
	char *end;

	s.from = strtoul(line, &end, 16);
	if (*end != '-')
		return -EPROTO;
	s.to = strtoul(end + 1, &end, 16);
	if (*end != ' ' || s.to <= s.from)
		return -EPROTO;
	s.plain = end[1] == 'r' && end[2] == 'w';
	return add(m, s);
}

/* Whole lines of text. How many bytes they have, or -errno. */
static ssize_t add_lines(struct shim_maps *m, char *text)
{
	char *line = text, *end;
	int rc;

	for (; (end = strchr(line, '\n')); line = end + 1) {
		*end = '\0';
		rc = add_line(m, line);
		if (rc)
			return rc;
	}
	return line - text;
}

int maps_read(struct shim_maps *m, const char *path)
{
	int fd AUTO_CLOSE = open(path, O_RDONLY | O_CLOEXEC);
	char *text AUTO_FREE = fd < 0 ? NULL : malloc(LINE_MAX + 1);
	size_t kept = 0;
	ssize_t n;

	m->count = 0;
	if (fd < 0)
		return -errno;
	if (!text)
		return -ENOMEM;
	while ((n = read(fd, text + kept, LINE_MAX - kept)) > 0) {
		kept += (size_t)n;
		text[kept] = '\0';
		n = add_lines(m, text);
		if (n < 0 || (!n && kept == LINE_MAX))
			return n < 0 ? (int)n : -EPROTO;
		kept -= (size_t)n;
		memmove(text, text + n, kept);
	}
	return n < 0 ? -errno : kept ? -EPROTO : 0;
}

void maps_free(struct shim_maps *m)
{
	free(m->span);
	*m = (struct shim_maps){0};
}

/* The first span that ends above address. */
static size_t find(const struct shim_maps *m, uintptr_t address)
{
	size_t low = 0, high = m->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (m->span[middle].to <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Only EFAULT says that it is the memory: a second registration may fail for want of other things.
 */
static enum verdict ask(const struct shim_mr *mr, uintptr_t page)
{
	struct ibv_mr *real = real_verbs.reg_mr_iova2(mr->pd->real, (void *)page, 1, page,
						      mr->access);

	if (!real)
		return errno == EFAULT ? CANNOT_BE : CAN_BE;
	real_verbs.dereg_mr(real);
	return CAN_BE;
}

static bool refused(struct maps_span *s, const struct shim_mr *mr, uintptr_t page)
{
	/* The kernel's own rule for pages that it must be able to write (ib_access_writable). */
	unsigned writes = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			  IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
	enum verdict *v = &s->verdict[(mr->access & writes) != 0];

	if (!s->plain && *v == NOT_ASKED)
		*v = ask(mr, page);
	return !s->plain && *v == CANNOT_BE;
}

enum maps_lost maps_lost(struct shim_maps *m, const struct shim_mr *mr, uintptr_t *ret_at)
{
	uintptr_t at = (uintptr_t)mr->v.addr & ~(PAGE_BYTES - 1);
	uintptr_t end = (uintptr_t)mr->v.addr + mr->v.length;

	/* Memory on demand may be what will be mapped; and nothing is no memory. */
	if (mr->access & IBV_ACCESS_ON_DEMAND || !mr->v.length || end < at)
		return MAPS_THERE;
	for (size_t i = find(m, at); at < end; i++) {
		if (i == m->count || m->span[i].from > at) {
			*ret_at = at;
			return MAPS_UNMAPPED;
		}
		if (refused(&m->span[i], mr, at)) {
			*ret_at = at;
			return MAPS_PROTECTED;
		}
		at = m->span[i].to;
	}
	return MAPS_THERE;
}
