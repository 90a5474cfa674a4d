/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Clock, events, processes and workers of simulated hosts (world.h). */
#include "tests/sim/world.h"
#include "common/loop.h"
#include "common/trim.h"
#include "common/util.h"
#include "common/work.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <ucontext.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#define FIBER_BYTES                       (1u << 20)
#define FIBER_LEAVES(fake, bottom, bytes) __sanitizer_start_switch_fiber(fake, bottom, bytes)
#define FIBER_ENTERS(fake, bottom, bytes) __sanitizer_finish_switch_fiber(fake, bottom, bytes)
#else
#define FIBER_BYTES                       (256u << 10)
#define FIBER_LEAVES(fake, bottom, bytes) ((void)(fake), (void)(bottom), (void)(bytes))
#define FIBER_ENTERS(fake, bottom, bytes) ((void)(fake), (void)(bottom), (void)(bytes))
#endif

/* To TSan (SAN=thread) each worker is a thread, and all loops are one: they share a stack. One is
 * before the other only where that is so of real threads: where a job is submitted, where it has
 * ended, and where a message goes out. What plays the hosts is not looked at (Makefile). */
#ifdef SIM_TSAN
#include <sanitizer/tsan_interface.h>
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
void AnnotateBenignRaceSized(const char *file, int line, const volatile void *at, size_t bytes,
			     const char *why);
#define THREAD_NEW()       __tsan_create_fiber(0)
#define THREAD_END(thread) __tsan_destroy_fiber(thread)
#define THREAD_SELF()      __tsan_get_current_fiber()
#define SHARED(what)       AnnotateBenignRaceSized(__FILE__, __LINE__, &(what), sizeof(what), #what)
#define THREAD_SWITCH(to)  __tsan_switch_to_fiber(to, __tsan_switch_to_fiber_no_sync)
#define BEFORE(what)       __tsan_release(what)
#define AFTER(what)        __tsan_acquire(what)
#define STACKS_KEPT        0 /* a new one has no history */
#else
#define THREAD_NEW()       NULL
#define THREAD_END(thread) ((void)(thread))
#define THREAD_SELF()      NULL
#define SHARED(what)       ((void)0)
#define THREAD_SWITCH(to)  ((void)(to))
#define BEFORE(what)       ((void)(what))
#define AFTER(what)        ((void)(what))
#define STACKS_KEPT        64
#endif

#define PROCS_MAX 8
#define STEPS_MAX 2000000 /* a world with more does not come to rest */
#define START_US  (1000 * SIM_S)
#define WALL_MS   1700000000000ull

struct sim_event {
	struct sim_event *next;
	uint64_t at_us, seq;
	struct sim_proc *owner; /* borrowed, or NULL */
	unsigned life;
	void (*fn)(void *arg);
	void *arg;
};

struct sim_fiber {
	ucontext_t context;
	void *stack;  /* owned */
	void *thread; /* owned */
	struct sim_proc *owner;
	unsigned life;
	struct work_pool *pool; /* borrowed */
	struct sim_fiber *next; /* in its queue */
	void (*run)(void *arg), (*done)(void *arg);
	void *arg;
	bool ended;
};

/* Lives as long as its owner's life; then what is in it is gone. */
struct work_pool {
	struct sim_proc *owner;
	unsigned threads, busy;
	struct sim_fiber *first, **last; /* fibers that wait for a thread */
};

struct sim_proc *sim_self;

static uint64_t clock_now_us = START_US;
static uint64_t last_seq, steps;
static struct sim_event *events; /* by time, then by age */
static struct sim_proc *procs[PROCS_MAX];
static unsigned proc_count;
static struct sim_fiber *current;
static ucontext_t main_context;
static void *spare_stacks[64];
static unsigned spare_count;
static const unsigned stacks_kept = STACKS_KEPT;
static void *main_thread;
static const void *main_stack;
static size_t main_stack_bytes;

static uint32_t chance = 12345;

void sim_seed(uint32_t seed)
{
	chance = seed;
}

uint64_t sim_random(uint64_t below)
{
	chance = chance * 1103515245 + 12345;
	return below ? (chance >> 8) % below : 0;
}

void sim_unseen(bool begin)
{
#ifdef SIM_TSAN
	(begin ? AnnotateIgnoreReadsBegin : AnnotateIgnoreReadsEnd)(__FILE__, __LINE__);
	(begin ? AnnotateIgnoreWritesBegin : AnnotateIgnoreWritesEnd)(__FILE__, __LINE__);
#else
	(void)begin;
#endif
}

uint64_t sim_us(void)
{
	return clock_now_us;
}

uint64_t sim_steps(void)
{
	return steps;
}

/* ---- the clock that all code sees ---- */

int __wrap_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_clock_gettime(clockid_t id, struct timespec *t)
{
	uint64_t us = clock_now_us;

	if (id == CLOCK_REALTIME)
		us += (uint64_t)((int64_t)WALL_MS + (sim_self ? sim_self->wall_offset_ms : 0)) *
		      1000;
	t->tv_sec = (time_t)(us / 1000000);
	t->tv_nsec = (long)(us % 1000000) * 1000;
	return 0;
}

/* A worker that sleeps by poll(). */
int __real_poll(struct pollfd *fds, nfds_t n, int timeout_ms);
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms);
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
	if (n || !current)
		return __real_poll(fds, n, timeout_ms);
	sim_sleep((uint64_t)timeout_ms * SIM_MS);
	return 0;
}

int __real_socket(int domain, int type, int protocol);
int __wrap_socket(int domain, int type, int protocol);
int __wrap_socket(int domain, int type, int protocol)
{
	int fd = __real_socket(domain, type, protocol);

	if (fd >= 0 && sim_self && sim_self->fd_count < ARRAY_SIZE(sim_self->fds))
		sim_self->fds[sim_self->fd_count++] = fd;
	return fd;
}

int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_close(int fd)
{
	for (unsigned i = 0; sim_self && i < sim_self->fd_count; i++)
		if (sim_self->fds[i] == fd)
			sim_self->fds[i--] = sim_self->fds[--sim_self->fd_count];
	return __real_close(fd);
}

/* ---- events ---- */

static void insert(struct sim_event *e)
{
	struct sim_event **p = &events;

	while (*p && ((*p)->at_us < e->at_us || ((*p)->at_us == e->at_us && (*p)->seq < e->seq)))
		p = &(*p)->next;
	e->next = *p;
	*p = e;
}

struct sim_event *sim_after(struct sim_proc *owner, uint64_t us, void (*fn)(void *arg), void *arg)
{
	struct sim_event *e = calloc(1, sizeof *e);

	*e = (struct sim_event){
		.at_us = clock_now_us + us,
		.seq = ++last_seq,
		.owner = owner,
		.life = owner ? owner->life : 0,
		.fn = fn,
		.arg = arg,
	};
	BEFORE(e);
	insert(e);
	return e;
}

static bool take_out(struct sim_event *e)
{
	for (struct sim_event **p = &events; *p; p = &(*p)->next) {
		if (*p == e) {
			*p = e->next;
			return true;
		}
	}
	return false;
}

void sim_cancel(struct sim_event *e)
{
	if (e && take_out(e))
		free(e);
}

/* A worker that sleeps has made it. */
static void event_free(struct sim_event *e)
{
	sim_unseen(true);
	free(e);
	sim_unseen(false);
}

/* false: not now, and perhaps never. */
static bool may_run(struct sim_event *e)
{
	if (!e->owner)
		return true;
	if (!e->owner->up || e->owner->life != e->life) {
		event_free(e);
		return false;
	}
	if (e->owner->stopped_until_us > clock_now_us) {
		e->at_us = e->owner->stopped_until_us;
		insert(e);
		return false;
	}
	return true;
}

int __real_clock_gettime(clockid_t id, struct timespec *t);
static uint64_t cpu_ns(void)
{
	struct timespec t;

	__real_clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Begins code of p, or of the world; what spent() takes. */
static uint64_t spend(struct sim_proc *p)
{
	sim_self = p;
	return p && p->timed ? cpu_ns() : 0;
}

static void spent(struct sim_proc *p, uint64_t since_ns)
{
	uint64_t now_ns = clock_now_us * 1000;

	sim_self = NULL;
	if (!since_ns)
		return;
	if (p->busy_until_ns < now_ns)
		p->busy_until_ns = now_ns;
	p->busy_until_ns += cpu_ns() - since_ns;
}

static void fiber_enter(void *arg);

static void run_first(void)
{
	struct sim_event *e = events;
	uint64_t since_ns;

	events = e->next;
	if (e->at_us > clock_now_us)
		clock_now_us = e->at_us;
	if (!may_run(e))
		return;
	since_ns = spend(e->owner);
	if (e->fn != fiber_enter) /* fiber_enter is no message */
		AFTER(e);
	e->fn(e->arg);
	spent(e->owner, since_ns);
	event_free(e);
}

static bool reads_sockets(const struct sim_proc *p)
{
	return p->up && p->loop && p->stopped_until_us <= clock_now_us;
}

/* Looks once at all of them, the channels first: most events move nothing. */
static bool sockets_move(struct pollfd fds[PROCS_MAX + SIM_CHANNELS])
{
	unsigned n = sim_channel_fds(fds);

	for (unsigned i = 0; i < proc_count; i++)
		if (reads_sockets(procs[i]))
			fds[n++] = (struct pollfd){.fd = sd_event_get_fd(procs[i]->loop),
						   .events = POLLIN};
	return __real_poll(fds, n, 0) > 0;
}

/* Handles the input of all sockets. */
static void run_sockets(void)
{
	struct pollfd fds[PROCS_MAX + SIM_CHANNELS];
	bool more = sockets_move(fds);

	while (more) {
		more = false;
		sim_guest_pump(fds);
		for (unsigned i = 0; i < proc_count; i++) {
			struct sim_proc *p = procs[i];
			uint64_t since_ns;

			if (!reads_sockets(p))
				continue;
			since_ns = spend(p);
			if (sd_event_run(p->loop, 0) > 0)
				more = true;
			spent(p, since_ns);
		}
		if (more)
			sockets_move(fds);
	}
}

bool sim_run(bool (*cond)(void *arg), void *arg, uint64_t until_us, void (*after_each)(void))
{
	uint64_t first = steps;

	for (;;) {
		run_sockets();
		if (after_each)
			after_each();
		if (cond && cond(arg))
			return true;
		if (!events || events->at_us > until_us || ++steps - first > STEPS_MAX)
			break;
		run_first();
	}
	if (clock_now_us < until_us)
		clock_now_us = until_us;
	return false;
}

/* ---- processes ---- */

void sim_proc_start(struct sim_proc *p, sd_event *loop)
{
	bool known = false;

	for (unsigned i = 0; i < proc_count; i++)
		known = known || procs[i] == p;
	if (!known)
		procs[proc_count++] = p;
	p->up = true;
	p->life++;
	p->loop = loop;
	p->stopped_until_us = 0;
}

void sim_proc_die(struct sim_proc *p)
{
	p->up = false;
	AFTER(p); /* the daemon's workers have ended with it */
	for (unsigned i = 0; i < p->fd_count; i++)
		__real_close(p->fds[i]);
	p->fd_count = 0;
	sim_net_proc_died(p);
}

struct sim_proc *sim_proc_of_loop(sd_event *loop)
{
	for (unsigned i = 0; i < proc_count; i++)
		if (procs[i]->up && procs[i]->loop == loop)
			return procs[i];
	return NULL;
}

/* ---- workers ---- */

static void *stack_get(void)
{
	if (spare_count)
		return spare_stacks[--spare_count];
	void *p = mmap(NULL, FIBER_BYTES, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static void stack_put(void *stack)
{
	if (spare_count < stacks_kept)
		spare_stacks[spare_count++] = stack;
	else
		munmap(stack, FIBER_BYTES);
}

static void fiber_main(void)
{
	struct sim_fiber *f = current;

	FIBER_ENTERS(NULL, &main_stack, &main_stack_bytes);
	AFTER(f);
	f->run(f->arg);
	f->ended = true;
	BEFORE(f);
	BEFORE(f->owner);
	THREAD_SWITCH(main_thread);
	FIBER_LEAVES(NULL, main_stack, main_stack_bytes);
	swapcontext(&f->context, &main_context);
}

static void fiber_done(void *arg)
{
	struct sim_fiber *f = arg;

	AFTER(f);
	f->done(f->arg);
	free(f);
}

static void fiber_enter(void *arg);

static void give_thread(struct work_pool *p)
{
	struct sim_fiber *f = p->first;

	if (!f || p->busy == p->threads)
		return;
	p->busy++;
	p->first = f->next;
	if (!p->first)
		p->last = &p->first;
	sim_after(f->owner, sim_random(sim_net.jitter_us), fiber_enter, f);
}

static void fiber_enter(void *arg)
{
	struct sim_fiber *f = arg;
	void *fake = NULL;

	current = f;
	FIBER_LEAVES(&fake, f->stack, FIBER_BYTES);
	main_thread = THREAD_SELF();
	SHARED(errno); /* threads would have one each */
	THREAD_SWITCH(f->thread);
	swapcontext(&main_context, &f->context);
	FIBER_ENTERS(fake, NULL, NULL);
	current = NULL;
	if (f->ended) {
		THREAD_END(f->thread);
		stack_put(f->stack);
		sim_after(f->owner, 0, fiber_done, f);
		f->pool->busy--;
		give_thread(f->pool);
	}
}

struct sim_fiber *sim_fiber(void)
{
	return current;
}

void sim_wait(void)
{
	struct sim_fiber *f = current;
	void *fake = NULL;

	BEFORE(f->owner);
	THREAD_SWITCH(main_thread);
	FIBER_LEAVES(&fake, main_stack, main_stack_bytes);
	swapcontext(&f->context, &main_context);
	FIBER_ENTERS(fake, &main_stack, &main_stack_bytes);
	AFTER(f);
}

void sim_wake(struct sim_fiber *f)
{
	BEFORE(f);
	if (f->owner->up && f->owner->life == f->life)
		sim_after(f->owner, 0, fiber_enter, f);
}

void sim_sleep(uint64_t us)
{
	/* At the start, in the loop's thread, a daemon may block: it takes no time then. */
	if (!current)
		return;
	sim_after(current->owner, us, fiber_enter, current);
	sim_wait();
}

int work_pool_new(sd_event *loop, unsigned threads, struct work_pool **ret_pool)
{
	struct work_pool *p = calloc(1, sizeof *p);

	if (!p)
		return -ENOMEM;
	p->owner = sim_proc_of_loop(loop);
	p->threads = threads;
	p->last = &p->first;
	*ret_pool = p;
	return 0;
}

void work_pool_free(struct work_pool *p)
{
	free(p);
}

int work_submit(struct work_pool *p, void (*run)(void *arg), void (*done)(void *arg), void *arg)
{
	struct sim_fiber *f = calloc(1, sizeof *f);

	if (!f || !(f->stack = stack_get())) {
		free(f);
		return -ENOMEM;
	}
	f->pool = p;
	f->owner = p->owner;
	f->life = p->owner->life;
	f->run = run;
	f->done = done;
	f->arg = arg;
	f->thread = THREAD_NEW();
	BEFORE(f);
	getcontext(&f->context);
	f->context.uc_stack.ss_sp = f->stack;
	f->context.uc_stack.ss_size = FIBER_BYTES;
	makecontext(&f->context, fiber_main, 0);
	*p->last = f;
	p->last = &f->next;
	give_thread(p);
	return 0;
}

/* Fibers have one processor: one after the other. */
void work_each(size_t n, void (*each)(void *arg, size_t i), void *arg)
{
	for (size_t i = 0; i < n; i++)
		each(arg, i);
}

/* ---- timers (common/loop.h) ---- */

/* The real one costs a millisecond at the start of each daemon. */
void trim_code(void)
{
}

struct loop_timer {
	struct sim_proc *owner;
	loop_timer_fn *fn;
	void *arg;
	struct sim_event *event; /* owned while armed */
};

static void timer_fired(void *arg)
{
	struct loop_timer *t = arg;

	t->event = NULL;
	t->fn(t->arg);
}

int loop_timer_new(sd_event *loop, loop_timer_fn *fn, void *arg, struct loop_timer **ret_timer)
{
	struct loop_timer *t = calloc(1, sizeof *t);

	if (!t)
		return -ENOMEM;
	*t = (struct loop_timer){.owner = sim_proc_of_loop(loop), .fn = fn, .arg = arg};
	*ret_timer = t;
	return 0;
}

void loop_timer_arm(struct loop_timer *t, uint64_t delay_ms)
{
	loop_timer_disarm(t);
	t->event = sim_after(t->owner, delay_ms * SIM_MS, timer_fired, t);
}

void loop_timer_disarm(struct loop_timer *t)
{
	if (!t)
		return;
	sim_cancel(t->event);
	t->event = NULL;
}

void loop_timer_free(struct loop_timer *t)
{
	loop_timer_disarm(t);
	free(t);
}
