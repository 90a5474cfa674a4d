/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Simulated hosts in one process, on a clock of their own: real daemons (all of daemon/) over
 * played libvirt, QEMU, guests, ibvmig-sm, VFs and network. The seams are the C library's clock,
 * common/'s timers, workers, HTTP client and server, libvirt's functions and the VF provider's
 * call. The AF_UNIX sockets of guest channels are seams, too, and real. Nothing waits and nothing
 * depends on chance: the same call sequence gives the same run. */
#ifndef IBVMIG_TESTS_FAKE_SIM_H
#define IBVMIG_TESTS_FAKE_SIM_H

#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>
#include <systemd/sd-event.h>

#include "common/frame.h"
#include "daemon/base/daemon.h"
#include "daemon/libvirt/qmp.h"

#define SIM_MS    1000ull
#define SIM_S     1000000ull
#define SIM_RAILS 2 /* VFs of a VM, at most: the first of pf0, the second of pf1 */
/* At most. */
#define SIM_HOSTS  4
#define SIM_VFS    128
#define SIM_GUESTS 128

enum { HOST_A, HOST_B, HOST_C, HOST_D };

/* The world's size; hosts and vfs are set before it starts. */
struct sim_size {
	unsigned hosts;  /* the first: a mover's two, and the one of its peer */
	unsigned vfs;    /* on each host: one half of pf0, the other of pf1 */
	unsigned guests; /* by sim_add_pair(), sim_add_mover() */
	unsigned kept;   /* ended migrations in each journal; 0: as shipped */
};
extern struct sim_size sim_size;
/* Here is what a real host has in /run: no disk. NULL: beside all else, for tests, which do not
 * measure time. */
extern const char *sim_run_dir;

/* ---- clock.c: clock, events, processes, fibers ---- */

struct sim_event;

/* A program: while it is stopped its events wait, when it is dead they are gone. */
struct sim_proc {
	const char *name;
	bool up;
	uint64_t stopped_until_us;
	int64_t wall_offset_ms; /* offset of this host's wall clock */
	int disk_errno;         /* end of its writes to files; 0: they work */
	sd_event *loop;         /* a daemon's; NULL otherwise */
	unsigned life;          /* how often it was started */
	int fds[256];           /* the process's sockets, closed when it dies */
	unsigned fd_count;
	/* Time, on the world's clock in ns, when a processor of the process's own would be through
	 * with its load, by the CPU time that its code has needed. Only where timed. */
	bool timed;
	uint64_t busy_until_ns;
};

extern struct sim_proc *sim_self; /* the process whose code runs now; NULL: the world's */

/* To TSan: what is done until the end belongs to the world, which has no threads. */
void sim_unseen(bool begin);

uint64_t sim_us(void);
/* owner NULL: the world. The event is forgotten if that life of the owner ends before. */
struct sim_event *sim_after(struct sim_proc *owner, uint64_t us, void (*fn)(void *arg), void *arg);
void sim_cancel(struct sim_event *e);
/* Runs the world until cond() holds or the time has come; whether it holds. after_each (or NULL) is
 * called after each event. */
/* Below that; another one each time, the same in each run with this seed. */
uint64_t sim_random(uint64_t below);
void sim_seed(uint32_t seed);
bool sim_run(bool (*cond)(void *arg), void *arg, uint64_t until_us, void (*after_each)(void));
void sim_proc_start(struct sim_proc *p, sd_event *loop);
void sim_proc_die(struct sim_proc *p);
struct sim_proc *sim_proc_of_loop(sd_event *loop);
uint64_t sim_steps(void);

struct sim_fiber;
/* The worker that runs now, or NULL in a loop's thread. */
struct sim_fiber *sim_fiber(void);
/* In a worker: gives the processor away until sim_wake(). */
void sim_wait(void);
void sim_wake(struct sim_fiber *f);
void sim_sleep(uint64_t us);

/* ---- net.c ---- */

/* The fate of messages. REFUSED is for calls, which do nothing and fail. A LOST call has done what
 * it was to do, and fails. */
enum sim_replies {
	REPLIES_WELL,
	REPLIES_LATE,
	REPLIES_DOUBLED,
	REPLIES_REORDERED,
	REPLIES_LOST,
	REPLIES_REFUSED
};

struct sim_net {
	enum sim_replies replies;
	uint64_t cut_until_us; /* between A and B */
	uint64_t latency_us;
	uint64_t jitter_us; /* at most so much more, for each message and each worker's turn */
	uint64_t calls, lost;
	unsigned status; /* status of the answer that is being told; 0: there is none */
};
extern struct sim_net sim_net;

typedef void sim_http_done(void *arg, int rc, struct json_object *answer, const char *error);
/* A call by somebody who is no daemon: a hook, an operator, a test. */
void sim_http(int from_host, const char *base, const char *method, const char *path,
	      struct json_object *body, unsigned timeout_ms, sim_http_done *done, void *arg);
/* A GET by a program elsewhere: what it does with the body takes no time here, done() has none. */
void sim_http_get(const char *base, const char *path, unsigned timeout_ms, sim_http_done *done,
		  void *arg);
/* The answer of fabric.c's ibvmig-sm: 200, or an error's status, with a body owned by the
 * caller. */
unsigned sim_sm_request(const char *method, const char *path, struct json_object *body,
			struct json_object **ret_answer, char *error);
/* Open connections to it break. */
void sim_net_proc_died(struct sim_proc *p);

/* ---- fabric.c ---- */

struct sim_vf {
	const char *name;
	uint64_t parked_guid, guid;
	bool prepared, vanished;
	bool unfit; /* the provider does not prepare it */
};
extern enum sim_replies sim_provider_replies; /* WELL, LATE, LOST or REFUSED */

struct sim_binding {
	bool bound;
	uint64_t vguid;
	char vm[37], name[64], host[64], url[256], vf[64];
	uint64_t parked_guid;
	unsigned lid;
};

/* The load of the link of each host's pf0, as the switches' port counters have it. */
struct sim_loads {
	uint64_t mbps;              /* speed of each link; 0: nobody answers for the counters */
	uint64_t others[SIM_HOSTS]; /* load that hosts send beside the mover's, in Mb/s */
	uint64_t mover;             /* and it, wherever its VF is */
};

/* What ibvmig-sm says of the partition of 0x8001, to those that ask; of other P_Keys no vGUID is a
 * member. No PF is a member of either. OLD: it does not know the question; SILENT: it does not
 * answer it. */
enum sim_rights { RIGHTS_FULL, RIGHTS_LIMITED, RIGHTS_NONE, RIGHTS_OLD, RIGHTS_SILENT };

struct sim_fabric {
	struct sim_proc sm;
	enum sim_rights rights;
	unsigned rights_asked;
	uint64_t opensm_down_until_us, opensm_stopped_until_us;
	struct sim_binding bindings[SIM_GUESTS * SIM_RAILS];
	unsigned moves, moves_alive; /* moves_alive: whose senders were said to be alive */
	uint64_t fence_us, move_us;  /* how long ibvmig-sm takes for one, beside what it must */
	unsigned asked, asked_most;  /* calls for moves that wait for their answer; the most */
	struct sim_loads loads;
	uint64_t unseen_guid; /* OpenSM does not see the VF of this GUID: no move leads there; 0: it
			       * sees all */
};
extern struct sim_fabric sim_fabric;

struct sim_binding *sim_binding(uint64_t vguid);
/* How many VFs show it. */
unsigned sim_vfs_with(uint64_t guid);

/* ---- virt.c, qemu.c ---- */

enum sim_vcpu { VCPU_RUNS, VCPU_PAUSED, VCPU_INCOMING };
enum sim_job {
	QJOB_NONE,
	QJOB_SETUP,
	QJOB_ACTIVE,
	QJOB_DEVICE,
	QJOB_COMPLETED,
	QJOB_CANCELLED,
	QJOB_FAILED
};

struct sim_guest;

/* virsh migrate --compressed: QEMU's capability, not its work. */
enum sim_compression { SIM_PLAIN, SIM_XBZRLE, SIM_COMPRESS };

/* How movers are set up, and what virsh is asked for. */
struct sim_mover {
	const char *strategy; /* as in its metadata */
	bool migrates_state;  /* VFs give their state to QEMU */
	bool post_copy;       /* virsh migrate --postcopy */
	bool converges;       /* --auto-converge, with SIM_ASKED_THROTTLE */
	enum sim_compression compresses;
	unsigned disk_mib;       /* virsh migrate --copy-storage-all */
	const char *kernel_user; /* user of its VF, or NULL; several: one a line */
	bool two_vfs;
	bool persistent;    /* the VM's definition stays on each host where it has run */
	bool stays;         /* QEMU refuses the pair id to VFs, which are of another class */
	uint64_t ram_bytes; /* 0: 24 MiB */
	uint64_t writes_per_s, writes_to; /* bytes that the guest writes, of so many */
	bool agent_optional;              /* require-agent = no, on all hosts */
	bool pre_attach;    /* hosts have a QEMU with x-late-detach, and pre-attach = that */
	bool by_descriptor; /* QEMU gets VFs as with iommufd: not on its command line */
	bool starts_empty;  /* QEMU does not have what was on its command line */
};
extern struct sim_mover sim_mover;

struct sim_device {
	bool there, deleting;
	bool native;      /* the device's state migrates; it is not unplugged meanwhile */
	bool late_detach; /* x-late-detach: QEMU does not switch over with it */
	bool unseen;      /* QEMU started with it; the guest has not looked since */
	char vf[64], bus[16];
};

/* QEMU's own, and what virsh is asked for. */
#define SIM_THROTTLE       ((struct qmp_throttle){20, 10})
#define SIM_ASKED_THROTTLE ((struct qmp_throttle){50, 25})

struct sim_qemu {
	bool exists;
	int host;
	struct sim_guest *guest;
	enum sim_vcpu vcpu;
	enum sim_job job;
	unsigned preset_mib; /* libvirt's migration speed */
	bool refuses_save;   /* by TLS credentials that nobody has */
	uint64_t bandwidth, downtime_ms, remaining, passes;
	uint64_t pass_us, sent;         /* when the newest pass began; bytes */
	uint64_t disk_left, disk_speed; /* rest and speed of the disk's copy before that; speed 0:
					 * no limit */
	struct qmp_throttle throttle_by;
	uint64_t throttle; /* the guest is throttled by that, in percent */
	bool job_hangs;    /* the job sends nothing, and does not end when it is cancelled */
	struct sim_device devices[SIM_RAILS]; /* by the index in its id */
	bool netdevs[SIM_VFS];
	int listen_fd, conn_fd;
	struct frame_parser parser;
	char path[108];
	char mark[400]; /* mark of the save that it was restored from, in its metadata */
	unsigned life;
};

struct sim_host {
	const char *name, *url;
	struct daemon d;
	struct sim_proc proc;             /* ibvmigd */
	unsigned boots;                   /* how often its power was off */
	size_t wal_synced;                /* bytes of the journal's WAL that outlast that */
	uint64_t sync_us;                 /* how much longer than others' its disk takes */
	bool libvirtd_up, libvirtd_hangs; /* hangs: in what it is asked to do to a domain */
	uint64_t libvirtd_stopped_until_us;
	struct sim_vf vfs[SIM_VFS];
	struct sim_qemu qemus[SIM_GUESTS];
	bool device_add_fails; /* fails for a VM's last VF */
};
extern struct sim_host sim_hosts[SIM_HOSTS];

/* ---- libvirt.c ---- */

struct sim_libvirt {
	enum sim_replies events; /* how events of libvirt and QEMU come; REFUSED: nobody may
				  * register for them */
	const char *event;       /* only these: QEMU's name, or "lifecycle"; NULL: all */
	enum sim_replies calls;  /* WELL, LATE, LOST or REFUSED */
};
extern struct sim_libvirt sim_libvirt;
/* How many connections of this ibvmigd to its libvirtd would tell it of their end. */
unsigned sim_libvirt_watched(int host);

/* virsh migrate --live --p2p. ok: how it was over. */
struct sim_migration {
	bool under_way, ok;
	bool paused; /* the VM was, and arrives so */
	int from, to;
	char error[512];
	uint64_t attempt;      /* events of an older one do nothing */
	uint64_t cut_since_us; /* the stream stands since; 0: it flows */
	char *hook_xml;        /* owned; what the hook has made of the VM's, or NULL */
};
void sim_migrate(struct sim_guest *g, int from, int to);
/* virsh suspend where it runs, as virsh itself does it at the end of migrate's --timeout. */
void sim_suspend(struct sim_guest *g);
/* ---- save.c ---- */

/* The file that guest 0 is saved to. */
struct sim_image {
	bool saving, whole;
	int host; /* saves, or has saved */
	char mark[400];
	bool restoring, restored;
	int to;
	bool unreadable; /* libvirt cannot load it */
	char error[512]; /* why the last one was not restored */
};
extern struct sim_image sim_image;
extern uint64_t sim_load_us; /* from the hook to the VM */
/* virsh restore; sim_image tells when it is over, and how. */
void sim_restore(int host);

/* virsh domjobabort; false: there is no job. */
bool sim_abort(struct sim_guest *g, int host);
void sim_qemu_start(int host, struct sim_guest *g);
/* QEMU dies where it runs, or where it waits. */
void sim_qemu_kill(struct sim_guest *g, int host);
void sim_libvirtd_kill(int host, uint64_t down_us);
/* As if sim_migrate() were direct, not --p2p: virsh dies, and both libvirtds notice. */
void sim_virsh_kill(struct sim_guest *g);
/* SIGSTOP: calls and events wait, and the part of a migration that is libvirtd's. */
void sim_libvirtd_stop(int host, uint64_t us);
/* virsh resume, destroy of what libvirt leaves to an operator after its own death; true: there was
 * something. */
bool sim_virsh_mends(void);
struct sim_qemu *sim_qemu_of(struct sim_guest *g); /* holds the VM's memory and lives, or NULL */
unsigned sim_running(struct sim_guest *g);
/* How many devices a QEMU has. */
unsigned sim_devices(const struct sim_qemu *q);

/* ---- guest.c ---- */

/* A mover, or its peer: the two ends of a connection. A peer may have several, and is suspended for
 * one of them at a time. */
struct sim_guest {
	const char *name, *uuid;
	uint64_t vguids[SIM_RAILS];
	bool mover;
	struct sim_guest *other; /* a mover's: its peer; a peer's: the mover whose end it was last
				    asked to suspend */
	int first;               /* the host where it starts */
	struct sim_migration migration;
	bool connection_ended; /* a mover's: an end has given the other one up */
	bool agent_up, process_dead;
	bool live; /* the VM's QPs run; a peer's: the QPs to other */
	char suspended[40];
	uint64_t ballast_until_us, ballast_bytes;
	uint64_t channel_stuck_until_us;
	uint64_t agent_stopped_until_us;    /* SIGSTOP: it neither reads nor answers, nor dirties */
	uint64_t process_stopped_until_us;  /* the process with the QPs does nothing asked of it */
	bool ignores_device_del, port_dead; /* apply to its last VF */
	const char *pkey; /* a QP of its process 12 has this one; NULL: "0x8001" */
	struct {
		bool busy, resume, ready;
		uint64_t id, deadline_us;
		uint64_t alone_us; /* since when nothing of the other end was to be had */
		char migration[40];
		struct sim_event *timer;
	} job;
};
extern struct sim_guest sim_guests[SIM_GUESTS]; /* the first two are there from the beginning */
/* Before the world starts. The mover. */
struct sim_guest *sim_add_pair(int mover_host, int peer_host);
/* Adds one more mover, of a peer that is there. */
struct sim_guest *sim_add_mover(int host, struct sim_guest *peer);
unsigned sim_index(const struct sim_guest *g);
/* Returns whether this end of the mover's connection runs. */
bool sim_end_lives(const struct sim_guest *end, const struct sim_guest *mover);
/* How many VFs it has. */
unsigned sim_rails(const struct sim_guest *g);
extern enum sim_replies sim_agent_replies;
/* Suspends and resumes of movers, whose records their hosts keep: how many came while the host's
 * journal was not on the disk, and how many came after that. */
extern unsigned sim_hasty, sim_not_hasty;

#define SIM_CHANNELS (SIM_HOSTS * SIM_GUESTS)
struct pollfd;
/* The sockets of all channels into fds, at most SIM_CHANNELS; how many. */
unsigned sim_channel_fds(struct pollfd *fds);
/* Reads what poll() has found in those. */
void sim_guest_pump(const struct pollfd *fds);
void sim_guest_agent_kill(struct sim_guest *g, uint64_t down_us);
void sim_guest_process_kill(struct sim_guest *g);
/* The device may be taken away: nothing holds it. rail: the index of the VF. */
bool sim_guest_lets_go(struct sim_guest *g, unsigned rail);
void sim_guest_input(struct sim_guest *g, struct json_object *msg);
void sim_channel_send(struct sim_guest *g, struct json_object *msg);
/* QEMU's event when the agent opens or closes its port. */
void sim_channel_event(struct sim_guest *g, bool open);

/* ---- world.c ---- */

/* Starts all hosts and the VMs, the first mover on A and its peer on C, and waits until all are
 * attached. dir: for journals and sockets. false: they did not come up. */
bool sim_world_start(const char *dir);
void sim_daemon_kill(int host);
void sim_daemon_start(int host);
/* The disk has all that this host's journal has. */
bool sim_journal_synced(int host);
/* Takes all of a host but its disk: ibvmigd, VMs, and what its VFs showed. They do not answer any
 * more. */
void sim_power_off(int host);
void sim_power_on(int host);

#endif
