/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "common/util.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

static uint64_t clock_us(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

uint64_t now_us(void)
{
	return clock_us(CLOCK_MONOTONIC);
}

uint64_t now_ms(void)
{
	return now_us() / 1000;
}

uint64_t wall_ms(void)
{
	return clock_us(CLOCK_REALTIME) / 1000;
}

void str_make_printable(char *s)
{
	for (unsigned char *p = (unsigned char *)s; *p; p++) {
		if (*p == 0xc2 && p[1] >= 0x80 && p[1] <= 0x9f)
			p[0] = p[1] = ' ';
		else if (*p < ' ' || *p == 0x7f)
			*p = ' ';
	}
}

char *strf(const char *fmt, ...)
{
	char *s = NULL;
	va_list ap;

	va_start(ap, fmt);
	int n = vasprintf(&s, fmt, ap);
	va_end(ap);
	return n < 0 ? NULL : s;
}

int str_set(char **s, const char *value)
{
	char *copy = value ? strdup(value) : NULL;

	if (value && !copy)
		return -ENOMEM;
	free(*s);
	*s = copy;
	return 0;
}

int parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *ret_value)
{
	char *end;

	if (!text || *text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	unsigned long long v = strtoull(text, &end,
					text[0] == '0' && (text[1] | 32) == 'x' ? 16 : 10);
	if (*end)
		return -EINVAL;
	if (errno || v < min || v > max)
		return -ERANGE;
	*ret_value = v;
	return 0;
}

int read_file(const char *path, size_t max, char **ret_text, size_t *ret_bytes)
{
	int fd AUTO_CLOSE = open(path, O_RDONLY | O_CLOEXEC);
	char *text AUTO_FREE = NULL;
	size_t size = 0, room = 0;

	if (fd < 0)
		return -errno;
	for (;;) {
		if (size + 1 >= room) {
			char *grown = realloc(text, room = room ? room * 2 : 4096);

			if (!grown)
				return -ENOMEM;
			text = grown;
		}
		ssize_t n = read(fd, text + size, room - size - 1);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (!n)
			break;
		size += (size_t)n;
		if (size > max)
			return -EFBIG;
	}
	text[size] = '\0';
	*ret_text = TAKE(text);
	if (ret_bytes)
		*ret_bytes = size;
	return 0;
}

int make_parent_dir(const char *path)
{
	const char *slash = strrchr(path, '/');
	char dir[PATH_MAX];

	if (!slash || slash == path)
		return 0;
	if ((size_t)(slash - path) >= sizeof dir)
		return -ENAMETOOLONG;
	memcpy(dir, path, (size_t)(slash - path));
	dir[slash - path] = '\0';
	return mkdir(dir, 0755) && errno != EEXIST ? -errno : 0;
}

static const char base64_digits[] =
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

uint64_t checksum64(const void *data, size_t n)
{
	const uint8_t *at = data;
	uint64_t sum = 0xcbf29ce484222325;

	while (n--)
		sum = (sum ^ *at++) * 0x100000001b3;
	return sum;
}

char *base64_encode(const void *data, size_t n)
{
	const unsigned char *in = data;
	char *out = malloc((n + 2) / 3 * 4 + 1);
	size_t o = 0;

	if (!out)
		return NULL;
	for (size_t i = 0; i < n; i += 3) {
		uint32_t v = (uint32_t)in[i] << 16;

		if (i + 1 < n)
			v |= (uint32_t)in[i + 1] << 8;
		if (i + 2 < n)
			v |= in[i + 2];
		out[o++] = base64_digits[v >> 18];
		out[o++] = base64_digits[v >> 12 & 63];
		out[o++] = i + 1 < n ? base64_digits[v >> 6 & 63] : '=';
		out[o++] = i + 2 < n ? base64_digits[v & 63] : '=';
	}
	out[o] = '\0';
	return out;
}

static int base64_digit(char c)
{
	const char *p = c ? strchr(base64_digits, c) : NULL;

	return p ? (int)(p - base64_digits) : -1;
}

int base64_decode(const char *text, void *data, size_t max, size_t *ret_n)
{
	unsigned char *out = data;
	size_t len = strlen(text), n = 0;

	if (len % 4)
		return -EINVAL;
	for (size_t i = 0; i < len; i += 4) {
		bool last = i + 4 == len;
		int pad = last && text[i + 3] == '=' ? (text[i + 2] == '=' ? 2 : 1) : 0;
		uint32_t v = 0;

		for (int k = 0; k < 4; k++) {
			int d = k >= 4 - pad ? 0 : base64_digit(text[i + (size_t)k]);

			if (d < 0)
				return -EINVAL;
			v = v << 6 | (uint32_t)d;
		}
		for (int k = 0; k < 3 - pad; k++) {
			if (n == max)
				return -EMSGSIZE;
			out[n++] = (unsigned char)(v >> (16 - 8 * k));
		}
	}
	*ret_n = n;
	return 0;
}
