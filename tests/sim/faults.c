/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/sim/faults.h"
#include "common/util.h"
#include "daemon/migrate/machine.h"
#include "tests/sim/lost.h"
#include "tests/sim/right.h"
#include "tests/sim/virt.h"

#include <errno.h>
#include <string.h>

#define DOWN_US (2 * SIM_S)

static struct sim_guest *const mover = &sim_guests[0], *const peer = &sim_guests[1];

bool sim_source_lost, sim_destination_lost;

static void daemon_back(void *arg)
{
	int host = (int)(intptr_t)arg;

	/* systemd tries again. */
	if (!sim_hosts[host].proc.up)
		sim_daemon_start(host);
	if (!sim_hosts[host].proc.up)
		sim_after(NULL, DOWN_US, daemon_back, arg);
}

static void kill_daemon(int host)
{
	sim_daemon_kill(host);
	sim_after(NULL, DOWN_US, daemon_back, (void *)(intptr_t)host);
}

static void sm_back(void *arg)
{
	(void)arg;
	sim_proc_start(&sim_fabric.sm, NULL);
}

static void kill_sm(int arg)
{
	(void)arg;
	sim_proc_die(&sim_fabric.sm);
	sim_after(NULL, 5 * SIM_S, sm_back, NULL);
}

static void stop_daemon(int host)
{
	sim_hosts[host].proc.stopped_until_us = sim_us() + 30 * SIM_S;
}

static void stop_sm(int arg)
{
	(void)arg;
	sim_fabric.sm.stopped_until_us = sim_us() + 30 * SIM_S;
}

static void stop_libvirtd(int host)
{
	sim_libvirtd_stop(host, 30 * SIM_S);
}

static void stop_opensm(int arg)
{
	(void)arg;
	sim_fabric.opensm_stopped_until_us = sim_us() + 30 * SIM_S;
}

static void stop_agent(int guest)
{
	sim_guests[guest].agent_stopped_until_us = sim_us() + 30 * SIM_S;
}

static void stop_process(int guest)
{
	sim_guests[guest].process_stopped_until_us = sim_us() + 30 * SIM_S;
}

static void kill_opensm(int seconds)
{
	sim_fabric.opensm_down_until_us = sim_us() + (unsigned)seconds * SIM_S;
}

static void kill_libvirtd(int host)
{
	sim_libvirtd_kill(host, 3 * SIM_S);
}

static void kill_virsh(int arg)
{
	(void)arg;
	sim_virsh_kill(mover);
}

static void kill_agent(int guest)
{
	sim_guest_agent_kill(&sim_guests[guest], SIM_S);
}

static void kill_process(int guest)
{
	sim_guest_process_kill(&sim_guests[guest]);
}

static void cut(int seconds)
{
	sim_net.cut_until_us = sim_us() + (unsigned)seconds * SIM_S;
}

static void stick_channel(int guest)
{
	sim_guests[guest].channel_stuck_until_us = sim_us() + 30 * SIM_S;
}

static void replies_well(void *arg)
{
	(void)arg;
	sim_net.replies = REPLIES_WELL;
	sim_agent_replies = REPLIES_WELL;
	sim_provider_replies = REPLIES_WELL;
	sim_libvirt = (struct sim_libvirt){0};
}

/* A fault that loses or refuses answers is shorter than those where a further try helps. */
static void let_pass(enum sim_replies how)
{
	bool no_answers = how == REPLIES_LOST || how == REPLIES_REFUSED;

	sim_after(NULL, (no_answers ? 10 : 60) * SIM_S, replies_well, NULL);
}

static void replies(int how)
{
	sim_net.replies = (enum sim_replies)how;
	let_pass(sim_net.replies);
}

static void agent_replies(int how)
{
	sim_agent_replies = (enum sim_replies)how;
	let_pass(sim_agent_replies);
}

static void provider_replies(int how)
{
	sim_provider_replies = (enum sim_replies)how;
	let_pass(sim_provider_replies);
}

static void libvirt_calls(int how)
{
	sim_libvirt.calls = (enum sim_replies)how;
	let_pass(sim_libvirt.calls);
}

static void libvirt_events(int how)
{
	sim_libvirt.events = (enum sim_replies)how;
	sim_after(NULL, 60 * SIM_S, replies_well, NULL);
}

static const char *const event_names[] = {"DEVICE_DELETED", "MIGRATION", "RESUME", "lifecycle"};

static void lose_event(int which)
{
	sim_libvirt.event = event_names[which];
	libvirt_events(REPLIES_LOST);
}

static void disk_well(void *arg)
{
	((struct sim_proc *)arg)->disk_errno = 0;
}

static void fail_disk(int host, int error)
{
	sim_hosts[host].proc.disk_errno = error;
	sim_after(NULL, 20 * SIM_S, disk_well, &sim_hosts[host].proc);
}

static void fill_disk(int host)
{
	fail_disk(host, ENOSPC);
}

static void make_disk_readonly(int host)
{
	fail_disk(host, EROFS);
}

static void jump_clock(int host)
{
	sim_hosts[host].proc.wall_offset_ms += 3600 * 1000ll;
}

static void jump_clock_back(int host)
{
	sim_hosts[host].proc.wall_offset_ms -= 3600 * 1000ll;
}

/* The one that the last VF of the VM goes to; NULL: none is prepared. */
static bool *last_vf(int host)
{
	struct migration *m = sim_record(host, ROLE_DESTINATION);

	for (unsigned i = 0; m && i < sim_size.vfs; i++)
		if (!strcmp(sim_hosts[host].vfs[i].name, m->rec.vfs[m->rec.vf_count - 1].to.vf))
			return &sim_hosts[host].vfs[i].vanished;
	return NULL;
}

static bool has_vf(int host)
{
	return last_vf(host);
}

static void vanish_vf(int host)
{
	if (has_vf(host))
		*last_vf(host) = true;
}

static void ignore_device_del(int arg)
{
	(void)arg;
	mover->ignores_device_del = true;
}

static void kill_port(int arg)
{
	(void)arg;
	mover->port_dead = true;
}

/* Nothing tells of it. */
static void abort_unheard(int host)
{
	libvirt_events(REPLIES_LOST);
	sim_abort(mover, host);
}

static bool has_qemu(int host)
{
	return sim_qemu_at(host, mover);
}

static void kill_qemu(int host)
{
	sim_vm_may_be_dead = true;
	sim_qemu_kill(mover, host);
}

static void kill_qemu_unheard(int host)
{
	libvirt_events(REPLIES_LOST);
	kill_qemu(host);
}

/* And what tells the peer's guest of it is not there, for longer than anyone asks. */
static void kill_qemu_and_peer_daemon(int host)
{
	kill_qemu(host);
	sim_daemon_kill(HOST_C);
	sim_after(NULL, 40 * SIM_S, daemon_back, (void *)(intptr_t)HOST_C);
}

static void kill_qemu_and_peer_agent(int host)
{
	kill_qemu(host);
	sim_guest_agent_kill(peer, 40 * SIM_S);
}

static void kill_qemu_and_cut(int host)
{
	kill_qemu(host);
	cut(60);
}

/* The whole source, for good. */
static void lose_source(int host)
{
	sim_source_lost = true;
	sim_lost_strike(host);
}

static void lose_destination(int host)
{
	sim_destination_lost = true;
	sim_lost_strike(host);
}

static void power_back(void *arg)
{
	(void)arg;
	sim_power_on(HOST_A);
}

/* The source's power fails, and is back. */
static void cycle_source(int host)
{
	sim_vm_may_be_dead = true;
	sim_power_off(host);
	sim_after(NULL, 60 * SIM_S, power_back, NULL);
}

static void programs_begin(void *arg)
{
	(void)arg;
	mover->live = true;
}

static void power_and_vm_back(void *arg)
{
	power_back(arg);
	if (sim_qemu_of(mover))
		return;
	mover->suspended[0] = '\0';
	mover->live = false;
	mover->connection_ended = true;
	sim_qemu_start(HOST_A, mover);
	sim_after(NULL, 100 * SIM_S, programs_begin, NULL);
}

/* And the VM starts with its host. */
static void cycle_source_and_vm(int host)
{
	sim_power_off(host);
	sim_after(NULL, 60 * SIM_S, power_and_vm_back, NULL);
}

static void user_abort(int host)
{
	sim_abort(mover, host);
}

static void rights_back(void *arg)
{
	(void)arg;
	sim_fabric.rights = RIGHTS_FULL;
}

static void forget_rights(int how)
{
	sim_fabric.rights = (enum sim_rights)how;
	sim_after(NULL, 60 * SIM_S, rights_back, NULL);
}

static bool virsh_is_there(int arg)
{
	(void)arg;
	return mover->migration.under_way;
}

#define FAULT(called, how, what, ...)                                                              \
	{                                                                                          \
		.name = called, .strike = how, .arg = what, ##__VA_ARGS__                          \
	}

const struct sim_fault sim_faults[] = {
	FAULT("user-abort", user_abort, HOST_A),
	FAULT("kill-source-ibvmigd", kill_daemon, HOST_A),
	FAULT("kill-destination-ibvmigd", kill_daemon, HOST_B),
	FAULT("kill-peer-ibvmigd", kill_daemon, HOST_C),
	FAULT("kill-ibvmig-sm", kill_sm, 0),
	FAULT("sm-of-an-older-version-60s", forget_rights, RIGHTS_OLD, .promise = PROMISE_ARRIVES),
	FAULT("sm-silent-on-partitions-60s", forget_rights, RIGHTS_SILENT,
	      .promise = PROMISE_ARRIVES),
	FAULT("kill-opensm-15s", kill_opensm, 15),
	FAULT("kill-opensm-90s", kill_opensm, 90),
	FAULT("kill-source-libvirtd", kill_libvirtd, HOST_A),
	FAULT("kill-destination-libvirtd", kill_libvirtd, HOST_B),
	FAULT("kill-virsh", kill_virsh, 0, .is_there = virsh_is_there,
	      .not_cold = "ibvmigd asks libvirt itself, and a restore goes on without who asked"),
	FAULT("kill-agent", kill_agent, 0),
	FAULT("kill-peer-agent", kill_agent, 1),
	FAULT("kill-process", kill_process, 0),
	FAULT("stop-source-ibvmigd-30s", stop_daemon, HOST_A),
	FAULT("stop-destination-ibvmigd-30s", stop_daemon, HOST_B),
	FAULT("stop-peer-ibvmigd-30s", stop_daemon, HOST_C),
	FAULT("stop-ibvmig-sm-30s", stop_sm, 0),
	FAULT("stop-opensm-30s", stop_opensm, 0),
	FAULT("stop-source-libvirtd-30s", stop_libvirtd, HOST_A),
	FAULT("stop-destination-libvirtd-30s", stop_libvirtd, HOST_B),
	FAULT("stop-agent-30s", stop_agent, 0),
	FAULT("stop-peer-agent-30s", stop_agent, 1),
	FAULT("stop-process-30s", stop_process, 0),
	FAULT("stop-peer-process-30s", stop_process, 1),
	FAULT("cut-1s", cut, 1),
	FAULT("cut-10s", cut, 10),
	FAULT("cut-60s", cut, 60),
	FAULT("channel-stuck-30s", stick_channel, 0),
	FAULT("peer-channel-stuck-30s", stick_channel, 1),
	FAULT("replies-late", replies, REPLIES_LATE),
	FAULT("replies-doubled", replies, REPLIES_DOUBLED),
	FAULT("replies-reordered", replies, REPLIES_REORDERED),
	FAULT("replies-lost-10s", replies, REPLIES_LOST),
	FAULT("agent-replies-late", agent_replies, REPLIES_LATE),
	FAULT("agent-replies-doubled", agent_replies, REPLIES_DOUBLED),
	FAULT("agent-replies-reordered", agent_replies, REPLIES_REORDERED),
	FAULT("agent-replies-lost-10s", agent_replies, REPLIES_LOST),
	FAULT("events-late", libvirt_events, REPLIES_LATE, .promise = PROMISE_ARRIVES),
	FAULT("events-doubled", libvirt_events, REPLIES_DOUBLED, .promise = PROMISE_ARRIVES),
	FAULT("events-reordered", libvirt_events, REPLIES_REORDERED, .promise = PROMISE_ARRIVES),
	FAULT("events-lost-60s", libvirt_events, REPLIES_LOST, .promise = PROMISE_ARRIVES),
	FAULT("event-device-deleted-lost", lose_event, 0, .promise = PROMISE_ARRIVES),
	FAULT("event-migration-lost", lose_event, 1, .promise = PROMISE_ARRIVES),
	FAULT("event-resume-lost", lose_event, 2, .promise = PROMISE_ARRIVES),
	FAULT("event-lifecycle-lost", lose_event, 3, .promise = PROMISE_ARRIVES),
	FAULT("events-lost-and-abort", abort_unheard, HOST_A),
	FAULT("events-lost-and-kill-source-qemu", kill_qemu_unheard, HOST_A),
	FAULT("events-lost-and-kill-destination-qemu", kill_qemu_unheard, HOST_B),
	FAULT("libvirt-late", libvirt_calls, REPLIES_LATE),
	FAULT("libvirt-refuses-10s", libvirt_calls, REPLIES_REFUSED),
	FAULT("libvirt-answers-lost-10s", libvirt_calls, REPLIES_LOST),
	FAULT("provider-late", provider_replies, REPLIES_LATE),
	FAULT("provider-refuses-10s", provider_replies, REPLIES_REFUSED),
	FAULT("provider-answers-lost-10s", provider_replies, REPLIES_LOST),
	FAULT("source-disk-full-20s", fill_disk, HOST_A, .promise = PROMISE_STAYS),
	FAULT("destination-disk-full-20s", fill_disk, HOST_B),
	FAULT("source-disk-read-only-20s", make_disk_readonly, HOST_A, .promise = PROMISE_STAYS),
	FAULT("destination-disk-read-only-20s", make_disk_readonly, HOST_B),
	FAULT("source-clock-forward-1h", jump_clock, HOST_A),
	FAULT("source-clock-back-1h", jump_clock_back, HOST_A),
	FAULT("destination-clock-forward-1h", jump_clock, HOST_B),
	FAULT("destination-clock-back-1h", jump_clock_back, HOST_B),
	FAULT("destination-vf-vanishes", vanish_vf, HOST_B, .is_there = has_vf),
	FAULT("device-del-ignored", ignore_device_del, 0,
	      .not_native = "its device stays where it is"),
	FAULT("port-never-active", kill_port, 0,
	      .not_native = "its port is part of the state that moves"),
	FAULT("kill-source-qemu", kill_qemu, HOST_A, .is_there = has_qemu),
	FAULT("kill-destination-qemu", kill_qemu, HOST_B, .is_there = has_qemu),
	FAULT("kill-source-qemu-no-peer-ibvmigd-40s", kill_qemu_and_peer_daemon, HOST_A),
	FAULT("kill-source-qemu-no-peer-agent-40s", kill_qemu_and_peer_agent, HOST_A),
	FAULT("kill-source-qemu-and-cut-60s", kill_qemu_and_cut, HOST_A),
	FAULT("lose-source", lose_source, HOST_A),
	FAULT("cycle-source", cycle_source, HOST_A),
	FAULT("cycle-source-and-vm", cycle_source_and_vm, HOST_A),
	FAULT("lose-destination", lose_destination, HOST_B),
};

const size_t sim_fault_count = ARRAY_SIZE(sim_faults);
