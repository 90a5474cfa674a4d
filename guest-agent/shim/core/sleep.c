/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A program's thread that sleeps in a verb until there is an event. Without the shim it sleeps in a
 * read(), which goes on after a signal whose handler was installed with SA_RESTART. So perftest,
 * which looks once a minute (SIGALRM) whether messages come, takes EINTR for an error. Here it
 * sleeps in a poll(), which never goes on by itself, and does not say which signal has come. */
#include "guest-agent/shim/core/sleep.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

/* Synchronous signals come of what the thread itself does, and not while it sleeps. */
static bool synchronous(int sig)
{
	return sig == SIGSEGV || sig == SIGBUS || sig == SIGILL || sig == SIGFPE ||
	       sig == SIGTRAP || sig == SIGSYS || sig == SIGABRT;
}

/* A handler of one shot has been taken away by now, its flags have not. */
static bool interrupts(int sig)
{
	struct sigaction a;

	if (synchronous(sig) || sigaction(sig, NULL, &a) || a.sa_flags & SA_RESTART)
		return false;
	return a.sa_flags & SA_RESETHAND || (a.sa_handler != SIG_DFL && a.sa_handler != SIG_IGN);
}

/* True if a signal that this thread takes may be one after which a read() fails. */
static bool may_interrupt(void)
{
	sigset_t blocked;

	pthread_sigmask(SIG_SETMASK, NULL, &blocked);
	for (int sig = 1; sig <= SIGRTMAX; sig++)
		if (!sigismember(&blocked, sig) && interrupts(sig))
			return true;
	return false;
}

int shim_sleep(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	while (poll(&p, 1, -1) < 0)
		if (errno != EINTR)
			return -errno;
		else if (may_interrupt())
			return -EINTR;
	return 0;
}
