/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/sim/cells.h"
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "tests/sim/right.h"

#include <errno.h>
#include <ftw.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define JOBS  4
#define CPU_S 60

/* After the state has begun: before anything, amid its first call, and amid a later one. */
static const unsigned delays_ms[] = {0, 7, 45};

/* ---- one ---- */

struct cell {
	const struct sim_strategy *strategy;
	const struct sim_fault *fault; /* NULL: none */
	const struct sim_point *point;
	unsigned delay_ms;
	pid_t pid;
	struct sim_result *result; /* shared with the process that runs it */
};

bool sim_at_point(void *point)
{
	const struct sim_point *p = point;
	struct migration *m = sim_record(p->role == ROLE_SOURCE ? HOST_A : HOST_B, p->role);

	return m && m->rec.state == p->state && m->rec.back == p->back &&
	       (!p->is_more || p->is_more(m));
}

void sim_strike(const struct sim_fault *fault, struct sim_result *r)
{
	if (!fault)
		return;
	r->missed = fault->is_there && !fault->is_there(fault->arg);
	fault->strike(fault->arg);
}

static void run_cell(const char *dir, const struct cell *c)
{
	struct sim_result *r = c->result;

	sim_mover = c->strategy->mover;
	mkdir(dir, 0700);
	if (!sim_world_start(dir) || !sim_all_right(NULL)) {
		snprintf(r->text, sizeof r->text, "the world does not start: %.300s", sim_wrong);
	} else {
		r->ok = c->strategy->play(c->fault, c->point, c->delay_ms, r) && !*sim_broken;
		snprintf(r->text, sizeof r->text, "%.390s",
			 *sim_broken ? sim_broken
			 : r->ok     ? ""
				     : sim_wrong);
	}
	r->ran = true;
}

/* ---- all of them ---- */

static int unlink_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static void start_cell(const char *dir, struct cell *c, int number)
{
	struct rlimit cpu = {.rlim_cur = CPU_S, .rlim_max = CPU_S + 5};
	char *own AUTO_FREE = strf("%s/cell%d", dir, number);

	fflush(NULL);
	c->pid = fork();
	if (c->pid)
		return;
	/* The limit is on the processor's time, not on the clock's: a loaded machine is no
	 * failure. */
	setrlimit(RLIMIT_CPU, &cpu);
	run_cell(own, c);
	nftw(own, unlink_one, 16, FTW_DEPTH | FTW_PHYS);
	_exit(0);
}

static void end_cell(struct cell *cells, size_t n)
{
	int status;
	pid_t pid = wait(&status);

	for (size_t i = 0; i < n; i++) {
		struct cell *c = &cells[i];

		if (c->pid != pid || pid <= 0)
			continue;
		if (!c->result->ran)
			snprintf(c->result->text, SIM_REASON_MAX,
				 "the process ended with status 0x%x", (unsigned)status);
		c->pid = 0;
	}
}

static const char *verdict(const struct sim_result *r)
{
	if (!r->ok)
		return "failed";
	if (r->missed)
		return "nothing-there";
	if (r->dead)
		return "vm-dead";
	if (r->parked)
		return r->moved ? "resolved-moved" : "resolved-stayed";
	return r->moved ? "moved" : "stayed";
}

static const char *fault_name(const struct cell *c)
{
	return c->fault ? c->fault->name : "none";
}

static bool same_row(const struct cell *a, const struct cell *b)
{
	return a->fault == b->fault && a->strategy == b->strategy;
}

/* Why the fault means nothing to that way, or NULL. */
static const char *means_nothing(const struct sim_strategy *s, const struct sim_fault *f)
{
	if (!f)
		return NULL;
	return s->cold ? f->not_cold : s->mover.migrates_state ? f->not_native : NULL;
}

/* Prints the faults without cells, and why they have none. */
static void print_left_out(FILE *f, const struct cell *cells, size_t n)
{
	const char *comma = "";

	fprintf(f, "\"left_out\":[");
	for (size_t i = 0; i < n; i++) {
		const struct sim_strategy *s = cells[i].strategy;

		if (i && s == cells[i - 1].strategy)
			continue;
		for (const struct sim_fault *k = sim_faults; k < sim_faults + sim_fault_count;
		     k++) {
			struct json_object *o AUTO_JSON = json_object_new_object();

			if (!means_nothing(s, k))
				continue;
			json_set_str(o, "strategy", s->name);
			json_set_str(o, "fault", k->name);
			json_set_str(o, "why", means_nothing(s, k));
			fprintf(f, "%s%s", comma, json_text(o));
			comma = ",";
		}
	}
	fprintf(f, "],");
}

/* Strategies without cells in PARKED. */
static void print_not_parked(FILE *f, const struct cell *cells, size_t n)
{
	const char *comma = "";

	fprintf(f, "\"not_parked\":[");
	for (size_t i = 0; i < n; i++) {
		const struct sim_strategy *s = cells[i].strategy;
		struct json_object *o AUTO_JSON = NULL;

		if (!s->not_parked || (i && s == cells[i - 1].strategy))
			continue;
		o = json_object_new_object();
		json_set_str(o, "strategy", s->name);
		json_set_str(o, "why", s->not_parked);
		fprintf(f, "%s%s", comma, json_text(o));
		comma = ",";
	}
	fprintf(f, "],");
}

static void print_report(FILE *f, const struct cell *cells, size_t n)
{
	size_t passed = 0, missed = 0;

	for (size_t i = 0; i < n; i++) {
		const struct sim_result *r = cells[i].result;

		passed += r->ok && !r->missed;
		missed += r->ok && r->missed;
	}
	fprintf(f, "{\"cells\":%zu,\"passed\":%zu,\"nothing_there\":%zu,", n, passed, missed);
	print_left_out(f, cells, n);
	print_not_parked(f, cells, n);
	fprintf(f, "\"matrix\":[\n");
	for (size_t i = 0; i < n; i++) {
		const struct cell *c = &cells[i];
		struct json_object *o AUTO_JSON = json_object_new_object();

		json_set_str(o, "strategy", c->strategy->name);
		json_set_str(o, "fault", fault_name(c));
		json_set_str(o, "state", c->point->name);
		json_set_u64(o, "after_ms", c->delay_ms);
		json_set_str(o, "verdict", verdict(c->result));
		json_set_u64(o, "parked", c->result->parked);
		json_set_u64(o, "settled_ms", (uint64_t)(c->result->seconds * 1e3));
		if (!c->result->ok)
			json_set_str(o, "why", c->result->text);
		fprintf(f, "%s%s\n", json_text(o), i + 1 < n ? "," : "");
	}
	fprintf(f, "]}\n");
}

/* Returns whether the report is on disk. A part of the matrix does not replace the report of the
 * whole one. */
static bool write_report(const struct cell *cells, size_t n, bool whole)
{
	const char *build = getenv("BUILD") ? getenv("BUILD") : "build";
	char *path AUTO_FREE = strf("%s/bench/faults%s.json", build, whole ? "" : "-part");
	FILE *f;
	bool ok;

	make_parent_dir(path);
	f = fopen(path, "w");
	if (f)
		print_report(f, cells, n);
	ok = f && !ferror(f);
	ok = f && !fclose(f) && ok;
	if (!ok)
		fprintf(stderr, "%s: cannot be written: %s\n", path, strerror(errno));
	return ok;
}

/* Prints one line of TAP for each fault. */
static unsigned print_rows(const struct cell *cells, size_t n)
{
	unsigned failed_rows = 0, row = 0;

	for (size_t i = 0; i < n;) {
		const char *name = fault_name(&cells[i]);
		unsigned count = 0, failed = 0, missed = 0;
		size_t first = i;

		for (; i < n && same_row(&cells[i], &cells[first]); i++, count++) {
			failed += !cells[i].result->ok;
			missed += cells[i].result->missed;
		}
		printf("%s %u - %s, %s: %u cells", failed ? "not ok" : "ok", ++row,
		       cells[first].strategy->name, name, count - missed);
		printf(missed ? ", and %u with nothing to strike\n" : "\n", missed);
		for (size_t k = first; k < i; k++)
			if (!cells[k].result->ok)
				printf("# %s %s %s %u: %s\n", cells[k].strategy->name, name,
				       cells[k].point->name, cells[k].delay_ms,
				       cells[k].result->text);
		failed_rows += failed > 0;
	}
	printf("1..%u\n", row);
	return failed_rows;
}

/* A sample has one moment of each state and fault; a sparse strategy has every third of these. */
static bool in_sample(const struct sim_strategy *s, size_t fault, size_t point, size_t delay)
{
	const size_t n = ARRAY_SIZE(delays_ms);

	if (s->sparse)
		return (fault + point) % n == 0 && (fault + point) / n % n == delay;
	return (fault + point) % n == delay;
}

/* The caller's choice; strategy, fault, state: NULL for all. */
struct choice {
	const char *strategy, *fault, *state;
	bool all_delays;
};

static bool is_chosen(const char *wanted, const char *name)
{
	return !wanted || !strcmp(wanted, name);
}

/* cells: NULL to count them only. */
static size_t add_cells(struct cell *cells, const struct sim_strategy *s, const struct choice *want)
{
	size_t n = 0;

	for (size_t f = 0; f < sim_fault_count + 1; f++) {
		const struct sim_fault *fault = f ? &sim_faults[f - 1] : NULL;

		if (!is_chosen(want->fault, fault ? fault->name : "none") ||
		    means_nothing(s, fault))
			continue;
		for (size_t p = 0; p < s->point_count; p++) {
			if (!is_chosen(want->state, s->points[p].name) ||
			    (s->not_parked && s->points[p].state == M_PARKED))
				continue;
			for (size_t d = 0; d < ARRAY_SIZE(delays_ms); d++) {
				if (!want->all_delays && !in_sample(s, f, p, d))
					continue;
				if (cells)
					cells[n] = (struct cell){.strategy = s,
								 .fault = fault,
								 .point = &s->points[p],
								 .delay_ms = delays_ms[d]};
				n++;
			}
		}
	}
	return n;
}

/* How many; *ret_cells: owned by the caller, with results that processes share. */
static size_t make_cells(const struct sim_strategy *strategies, size_t count,
			 const struct choice *want, struct cell **ret_cells)
{
	struct sim_result *results;
	struct cell *cells;
	size_t n = 0, k = 0;

	for (size_t s = 0; s < count; s++)
		if (is_chosen(want->strategy, strategies[s].name))
			n += add_cells(NULL, &strategies[s], want);
	cells = calloc(n + 1, sizeof *cells);
	results = mmap(NULL, (n + 1) * sizeof *results, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (!cells || results == MAP_FAILED)
		abort();
	for (size_t s = 0; s < count; s++)
		if (is_chosen(want->strategy, strategies[s].name))
			k += add_cells(cells + k, &strategies[s], want);
	for (size_t i = 0; i < n; i++)
		cells[i].result = &results[i];
	*ret_cells = cells;
	return n;
}

static int run_all(const char *dir, struct cell *cells, size_t n, bool whole)
{
	size_t running = 0;
	unsigned failed;

	for (size_t i = 0; i < n; i++) {
		if (running == JOBS) {
			end_cell(cells, i);
			running--;
		}
		start_cell(dir, &cells[i], (int)i);
		running++;
	}
	for (; running; running--)
		end_cell(cells, n);
	failed = print_rows(cells, n);
	return !write_report(cells, n, whole) || failed;
}

static int run_one(const char *dir, struct cell *c, const char *ms)
{
	const struct sim_result *r = c->result;
	uint64_t delay = 0;

	if (parse_u64(ms, 0, 100000, &delay)) {
		fprintf(stderr, "the delay is \"%s\": 0 to 100000 ms are possible\n", ms);
		return 2;
	}
	c->delay_ms = (unsigned)delay;
	log_set_level(LOG_DEBUG);
	run_cell(dir, c);
	printf("%s: %s%s%s, %u parked, settled after %.3f s, %llu steps\n", r->ok ? "ok" : "not ok",
	       verdict(r), *r->text ? ": " : "", r->text, r->parked, r->seconds,
	       (unsigned long long)sim_steps());
	return !r->ok;
}

/* The arguments are all [STRATEGY [FAULT [STATE]]], or STRATEGY FAULT STATE MS, or none. false:
 * neither. */
static bool read_choice(int argc, char **argv, struct choice *ret)
{
	int first = argc > 1 && !strcmp(argv[1], "all") ? 2 : 1;

	if (argc > 5 || (first == 1 && argc != 1 && argc != 5))
		return false;
	*ret = (struct choice){.strategy = argc > first ? argv[first] : NULL,
			       .fault = argc > first + 1 ? argv[first + 1] : NULL,
			       .state = argc > first + 2 ? argv[first + 2] : NULL,
			       .all_delays = argc > 1};
	return true;
}

int sim_cells(const struct sim_strategy *strategies, size_t count, int argc, char **argv)
{
	char dir[] = "/dev/shm/ibvmig-faults-XXXXXX", slow[] = "/tmp/ibvmig-faults-XXXXXX";
	struct cell *cells AUTO_FREE = NULL;
	struct choice want;
	const char *own;
	size_t n;
	int rc;

	if (!read_choice(argc, argv, &want)) {
		fprintf(stderr,
			"usage: %s [all [STRATEGY [FAULT [STATE]]] | STRATEGY FAULT STATE MS]\n",
			argv[0]);
		return 2;
	}
	n = make_cells(strategies, count, &want, &cells);
	if (!n) {
		fprintf(stderr, "there is no such cell: strategy %s, fault %s, state %s\n",
			want.strategy, want.fault ? want.fault : "(any)",
			want.state ? want.state : "(any)");
		return 2;
	}
	own = mkdtemp(dir);
	if (!own)
		own = mkdtemp(slow);
	if (!own) {
		perror("mkdtemp");
		return 1;
	}
	log_init("faults");
	log_set_level((enum log_level)0);
	if (argc > 1 && strcmp(argv[1], "all"))
		rc = run_one(own, cells, argv[4]);
	else
		rc = run_all(own, cells, n, argc == 2);
	nftw(own, unlink_one, 16, FTW_DEPTH | FTW_PHYS);
	return rc;
}
