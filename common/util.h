/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Small things that every folder needs: locals that free themselves, strings, clocks. */
#ifndef IBVMIG_COMMON_UTIL_H
#define IBVMIG_COMMON_UTIL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define ARRAY_SIZE(a)                   (sizeof(a) / sizeof((a)[0]))
#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

/* Locals that free themselves: set them at the declaration, hand them over with TAKE(). */
#define AUTO_FREE  __attribute__((cleanup(cleanup_free)))
#define AUTO_CLOSE __attribute__((cleanup(cleanup_close)))
#define AUTO_FILE  __attribute__((cleanup(cleanup_file)))
/* pthread_mutex_t *m AUTO_UNLOCK = mutex_lock(&x->lock); */
#define AUTO_UNLOCK __attribute__((cleanup(cleanup_unlock), unused))

/* The value of the pointer p, which is NULL afterwards: ownership leaves the local. */
#define TAKE(p)                                                                                    \
	({                                                                                         \
		__typeof__(p) taken_ = (p);                                                        \
		(p) = NULL;                                                                        \
		taken_;                                                                            \
	})
#define TAKE_FD(fd)                                                                                \
	({                                                                                         \
		int taken_ = (fd);                                                                 \
		(fd) = -1;                                                                         \
		taken_;                                                                            \
	})

static inline void cleanup_free(void *p)
{
	free(*(void **)p);
}

static inline void cleanup_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

static inline void cleanup_file(FILE **f)
{
	if (*f)
		fclose(*f);
}

static inline pthread_mutex_t *mutex_lock(pthread_mutex_t *m)
{
	pthread_mutex_lock(m);
	return m;
}

static inline void cleanup_unlock(pthread_mutex_t **m)
{
	if (*m)
		pthread_mutex_unlock(*m);
}

/* CLOCK_MONOTONIC and CLOCK_REALTIME. */
uint64_t now_us(void);
uint64_t now_ms(void);
uint64_t wall_ms(void);

/* Control characters become spaces, those of two bytes too (U+0080 to U+009F in UTF-8). Text that
 * others have written makes no lines of its own in a log, and commands no terminal. */
void str_make_printable(char *s);
/* A string of its own, owned by the caller; NULL only without memory. */
char *strf(const char *fmt, ...) __attribute__((format(printf, 1, 2), malloc));

/* Replaces *s, which is owned by its holder, by a copy of value (NULL allowed). 0 or -ENOMEM. */
int str_set(char **s, const char *value);

static inline bool str_eq(const char *a, const char *b)
{
	return a && b && !__builtin_strcmp(a, b);
}

/* The whole of text must be one number in base 10 or, with 0x, 16, from min to max.
 * 0, -EINVAL (not a number) or -ERANGE. */
int parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *ret_value);

/* Reads a file of at most max bytes; *ret_text is owned by the caller and ends with NUL.
 * 0, -EFBIG, or -errno of open and read. */
int read_file(const char *path, size_t max, char **ret_text, size_t *ret_bytes);

/* Makes the folder in which path lies (one level, mode 0755). 0 also if it is there; else -errno.
 */
int make_parent_dir(const char *path);

/* FNV-1a: finds what was cut off or mixed up, not what was forged. */
uint64_t checksum64(const void *data, size_t n);

/* Base 64 of n bytes (RFC 4648), owned by the caller. */
char *base64_encode(const void *data, size_t n);
/* 0, -EINVAL on anything that is not base 64, -EMSGSIZE above max bytes. */
int base64_decode(const char *text, void *data, size_t max, size_t *ret_n);

#endif
