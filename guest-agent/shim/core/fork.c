/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Descriptors of the device and of ours, which must lead nowhere in a child of a fork
 * (shim/child.c). */
#include "guest-agent/shim/core/fork.h"
#include "guest-agent/shim/core/objects.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define FDS_MAX   65536 /* higher descriptors stay open in a child */
#define WORD_BITS 64

static _Atomic(uint64_t) kept[FDS_MAX / WORD_BITS];
static int nowhere = -1; /* can neither be written nor asked by ioctl */

void fork_keep_fd(int fd)
{
	if (fd >= 0 && fd < FDS_MAX)
		atomic_fetch_or(&kept[fd / WORD_BITS], 1ull << (fd % WORD_BITS));
}

void fork_drop_fd(int fd)
{
	if (fd >= 0 && fd < FDS_MAX)
		atomic_fetch_and(&kept[fd / WORD_BITS], ~(1ull << (fd % WORD_BITS)));
}

/* The descriptors' numbers stay taken, so that the parent's objects, should they be used, meet
 * nothing else. */
void fork_cut_fds(void)
{
	for (int i = 0; i < FDS_MAX / WORD_BITS; i++) {
		uint64_t word = atomic_exchange(&kept[i], 0);

		for (; word; word &= word - 1) {
			int fd = i * WORD_BITS + __builtin_ctzll(word);

			if (dup3(nowhere, fd, O_CLOEXEC) < 0)
				close(fd);
		}
	}
}

int fork_no_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	(void)cq;
	(void)n;
	(void)wc;
	return -EBADF;
}

void fork_prepare(void)
{
	if (nowhere < 0)
		nowhere = open("/dev/null", O_RDONLY | O_CLOEXEC);
}
