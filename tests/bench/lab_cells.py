# SPDX-License-Identifier: GPL-2.0-or-later
"""Faults at chosen moments of migrations on the lab, and what must be right after each: docs/migration.md, "Faults".

A cell is a moment, as ibvmigd publishes it, and a fault that strikes there. Afterwards the VM runs on one host,
and one VF shows its vGUID and is leased there. ibvmig-sm, the switches, that host and the guest agree, checked
traffic goes on, and no lease, job or open record is left. A PARKED record must name its command, and the command
must lead there."""
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "demo"))
from demo import MOVER, MOVER_VGUID, PEER, PEER_VGUID, RUN, Traffic  # noqa: E402
from lab_site import Site, Watch  # noqa: E402
from labtest import BUILD, WAIT_S, Failure, wait_for  # noqa: E402

BANDWIDTH_MIB_S = 16  # pre-copy of some seconds
STATES = ("PREPARE", "HOLD", "QUIESCE", "DETACH", "SWITCH", "ATTACH", "RESUME", "DONE")
ATTEMPTS = 5
STOPPED_S = 10  # longer than ibvmig-lease waits
RATE = "8"  # messages a second each way: the hosts share few processors
VICTIM_PORT = 18701


@dataclass
class Scene:
    """A boot of the lab with its VMs and their traffic, and the migration that is under way."""
    lab: object
    site: Site = None
    traffic: Traffic = None
    lid: int = 0
    source: str = "hosta"
    target: str = "hostb"
    mend: list = field(default_factory=list)  # calls that end the fault once virsh has ended
    broken: list = field(default_factory=list)  # the operator's work before he resolves a parked record

    def up(self):
        lab = self.lab
        self.site = Site(lab)
        for vm, host, vguid in ((MOVER, "hosta", MOVER_VGUID), (PEER, "hostc", PEER_VGUID)):
            lab.lab("vm", "define", vm, host, "--mem", 256, "--vguid", vguid)
            lab.where[vm] = host
        lab.lab("vm", "start", MOVER, PEER, deadline_s=3 * WAIT_S)  # the VMs boot side by side
        for vm in (MOVER, PEER):
            lab.wait_vf(vm)
        self.traffic = Traffic(lab)
        self.traffic.start_check("-q", "2", "-r", RATE, filled_mib=0)
        self.lid = lab.fabric_lid(MOVER_VGUID)


# ---- faults: each strikes at once, and leaves in scene.mend what ends it ----

def kill(name):
    """A service, as ibvmigd@{source}; it is started again after virsh has ended."""
    def strike(scene):
        service = name.format(source=scene.source, target=scene.target)
        os.kill(scene.site.service(service), signal.SIGKILL)
        scene.mend.append(lambda: restart(scene, service))
    return strike


def restart(scene, service):
    wait_for(f"{service} has ended", WAIT_S, lambda: not alive(scene, service))
    scene.lab.lab("service", "start", service)


def alive(scene, service):
    try:
        return bool(scene.site.service(service))
    except KeyError:
        return False


def kill_restart(name):
    """The same, started again at once."""
    def strike(scene):
        kill(name)(scene)
        scene.mend.pop()()
    return strike


def stop(name):
    """Stands still until virsh has ended, or for STOPPED_S: ibvmig-lease must act meanwhile."""
    def strike(scene):
        pid = scene.site.service(name.format(source=scene.source, target=scene.target))
        os.kill(pid, signal.SIGSTOP)
        scene.mend.append(lambda: go_on(pid))
    return strike


def go_on(pid):
    """A service that was started from outside the lab has an nsenter above it, which stops with it."""
    parent = next(x for x in Path(f"/proc/{pid}/status").read_text().splitlines() if x.startswith("PPid:"))
    os.kill(pid, signal.SIGCONT)
    above = int(parent.split()[1])
    if b"nsenter" in Path(f"/proc/{above}/cmdline").read_bytes():
        os.kill(above, signal.SIGCONT)


def cut(seconds):
    """The network between the two hosts; both reach all others."""
    def strike(scene):
        both = (scene.source, scene.target)
        scene.site.cut(both, True)
        try:
            time.sleep(seconds)  # the fault's own length
        finally:
            scene.site.cut(both, False)
    return strike


def kill_agent(vm):
    return lambda scene: scene.lab.guest(vm, "kill -9 $(pidof ibvmig-agent)")


def kill_process(scene):
    """A process with the shim and QPs of its own: the other one's traffic is looked at."""
    scene.lab.guest(MOVER, "kill -9 $(cat /tmp/victim.pid)")


def with_victim(scene):
    listen = f"{RUN} rdma_check -p {VICTIM_PORT} -o /tmp/victim.json"
    scene.lab.guest(PEER, f"{listen} >/tmp/victim.log 2>&1 & echo $! >/tmp/victim.pid")
    scene.lab.guest(MOVER, f"{listen} {scene.traffic.peer_ip} >/tmp/victim.log 2>&1 & echo $! >/tmp/victim.pid")
    wait_for("the victim's traffic", WAIT_S, lambda: (scene.lab.guest_json(MOVER, "/tmp/victim.json") or {}).get("received"))


def without_victim(scene):
    """The victim's other end must end by itself: nobody answers it."""
    wait_for("the victim's other end ends", WAIT_S, lambda: scene.lab.guest(
        PEER, "kill -0 $(cat /tmp/victim.pid) 2>/dev/null", check=False).returncode)


def kill_incoming_qemu(scene):
    os.kill(scene.site.qemus(MOVER)[scene.target], signal.SIGKILL)


def deaf_to_unplug(scene):
    """The guest does not hear that a device is to leave (the event of q35's hot-plug), until it is mended."""
    scene.lab.guest(MOVER, "echo disable >/sys/firmware/acpi/interrupts/gpe01")
    scene.mend.append(lambda: scene.lab.guest(MOVER, "echo enable >/sys/firmware/acpi/interrupts/gpe01"))


def refuse(op):
    """The provider at the destination refuses one of its commands."""
    def strike(scene):
        switch = scene.lab.dir / f"hosts/{scene.target}/refuse"
        switch.write_text(op)
        scene.mend.append(switch.unlink)
    return strike


def lose_vf(scene):
    """The link that the destination's VF would be attached to vanishes; the operator brings it back. Another link has
    its name: QEMU would make a tap device that is missing, one without a bridge."""
    site, host = scene.site, scene.target
    vf = next(v["name"] for v in site.get(host, "/v1/status")["vfs"] if v["vm"])
    site.net(host, "ip", "link", "del", f"tap-{vf}")
    site.net(host, "ip", "link", "add", f"tap-{vf}", "type", "bridge")
    again = json.dumps({"vf": vf, "vguid": MOVER_VGUID, "pkey": "0x8001"})
    scene.broken += [lambda: scene.lab.sh(host, "sh", "-c", 'echo "$0" | "$1" prepare', again, BUILD / "tests/lab_provider"),
                     lambda: site.net(host, "ip", "link", "del", f"tap-{vf}")]  # the last one first


def fill_disk(role):
    def strike(scene):
        folder = disk(scene, role)
        left = os.statvfs(folder)
        (folder / "filled").write_bytes(b"x" * (left.f_bavail * left.f_frsize))
        scene.mend.append((folder / "filled").unlink)
    return strike


def disk(scene, role):
    """Returns the path of the host's journal, as its namespaces have it."""
    return Path(f"/proc/{scene.site.anchor(getattr(scene, role))}/root/var/lib/ibvmig")


def small_disk(role):
    """The journal of that host in a small file system of its own, for the rest of the lab."""
    def before(scene):
        host = getattr(scene, role)
        scene.lab.lab("service", "stop", f"ibvmigd@{host}")
        scene.lab.sh(host, "sh", "-c", "mkdir /run/ibvmig/disk && mount -t tmpfs -o size=8m journal /run/ibvmig/disk && "
                     "cp -a /var/lib/ibvmig/. /run/ibvmig/disk && mount --move /run/ibvmig/disk /var/lib/ibvmig")
        scene.lab.lab("service", "start", f"ibvmigd@{host}")
        scene.lab.wait_vf(MOVER)
    return before


def job_abort(scene):
    scene.lab.virsh(scene.source, "domjobabort", MOVER)


def daemon_abort(scene):
    """Asks for what `ibvmig abort` asks for."""
    status, answer = scene.site.call(scene.source, "POST", f"/v1/vms/{MOVER}/abort", {})
    if status >= 300:
        raise Failure(f"abort: {answer}")


@dataclass
class Cell:
    role: str  # publishes the state
    state: str
    fault: str
    strike: Callable
    ends: tuple = ("stayed", "moved")
    before: Callable = None
    after: Callable = None
    lasts_s: int = WAIT_S  # at most; then it is mended, though virsh has not ended

    @property
    def name(self):
        return f"{self.fault} at {'destination ' if self.role == 'destination' else ''}{self.state}"


# ---- one cell ----

def play(scene, cell):
    """Returns an account of what happened, as a dict; `wrong` lists what was not right. A migration that is refused
    or walks back before the moment, as a busy machine makes it, is tried again."""
    lab = scene.lab
    for attempt in range(1, ATTEMPTS + 1):
        scene.source = lab.where[MOVER]
        scene.target = "hostb" if scene.source == "hosta" else "hosta"
        if cell.before and attempt == 1:
            cell.before(scene)
        before = {vm: scene.traffic.counts(vm) for vm in (MOVER, PEER)}
        event, struck_us, virsh = strike(scene, cell)
        parked = settle(scene, full_look if struck_us else lambda scene: [])
        if struck_us:
            break
    else:
        raise Failure(f"{cell.name}: the moment was not reached in {ATTEMPTS} migrations, but {event}")
    if cell.after:
        cell.after(scene)
    end = "moved" if lab.where[MOVER] == scene.target else "stayed"
    return {"cell": cell.name, "end": end, "virsh": virsh, "parked": parked, "attempts": attempt,
            "struck_in": state_then(scene, cell.role, event["id"], struck_us),
            "reason": record(scene, scene.source, "source", event["id"]).get("reason"),
            "silence_ms": silence_ms(scene, before), "right_s": round(time.monotonic() - struck_us / 1e6, 1),
            "wrong": [] if end in cell.ends else [f"it {end}; allowed: {' '.join(cell.ends)}"]}


def strike(scene, cell):
    """Makes a migration: (the event, when the fault struck on this machine's clock or None, what virsh
    said)."""
    watch = Watch(scene.site, scene.source if cell.role == "source" else scene.target)
    p = scene.lab.migrate_start(MOVER, scene.target, "--bandwidth", BANDWIDTH_MIB_S)
    struck_us = None
    try:
        event = watch.wait(cell.name, WAIT_S, lambda e: at(e, cell) or behind(e, cell), p.poll)
        if event and at(event, cell):
            struck_us = time.monotonic_ns() // 1000
            cell.strike(scene)
        said = virsh_end(p, cell.lasts_s)
    finally:
        watch.close()
        while scene.mend:
            scene.mend.pop(0)()
    return event, struck_us, said or virsh_end(p, WAIT_S)


def virsh_end(p, seconds):
    """Exit status and words, or None while it goes on."""
    try:
        return [p.wait(seconds), p.stdout.read().strip()]
    except subprocess.TimeoutExpired:
        return None


def at(event, cell):
    return event["type"] == "migration" and event["role"] == cell.role and event["direction"] == "forward" and \
        event["state"] == cell.state


def behind(event, cell):
    """A later state: the moment has passed, or does not come."""
    return event["type"] == "migration" and event["role"] == cell.role and (
        event["direction"] == "back" or event["state"] not in STATES
        or STATES.index(event["state"]) > STATES.index(cell.state))


def record(scene, host, role, number):
    return (scene.site.get(host, f"/v1/migrations/{number}") or {}).get(role) or {}


def state_then(scene, role, number, when_us):
    """In what state the journal has the record at that moment: all clocks are this machine's."""
    host = scene.source if role == "source" else scene.target
    past = [t for t in record(scene, host, role, number).get("transitions", []) if t["mono_us"] <= when_us]
    return past[-1]["state"] if past else None


def silence_ms(scene, before):
    """The longest that either end has not received anything since. None where more short silences came than the
    programs keep, and none was the longest of all."""
    longest = 0.0
    for vm, old in before.items():
        c = scene.traffic.counts(vm)
        new = c["gap_count"] - old["gap_count"]
        if c["max_gap_ms"] > old["max_gap_ms"]:
            longest = max(longest, c["max_gap_ms"])
        elif new <= len(c["gaps"]):
            longest = max([longest, *(g["ms"] for g in c["gaps"][len(c["gaps"]) - new:])])
        else:
            return None
    return round(longest)


def settle(scene, others_look):
    """Until all is right, also what others_look() at; the commands of PARKED records that were carried out. Failure
    tells what stays wrong."""
    parked, wrong, end = [], [], time.monotonic() + WAIT_S
    while True:
        wrong = quick_look(scene, parked)
        if not wrong:
            try:
                wrong = others_look(scene)
            except (Failure, OSError, LookupError, StopIteration) as e: # somebody does not answer yet, or not in full
                wrong = [f"{type(e).__name__}: {e}"]
        if not wrong:
            return parked
        if time.monotonic() > end:
            raise Failure("; ".join(wrong))
        time.sleep(0.2)


def quick_look(scene, parked):
    """Processes and ibvmigd's own words: cheap, and mostly what is not right yet."""
    wrong, site = [], scene.site
    qemus = site.qemus(MOVER)
    if len(qemus) != 1:
        return [f"QEMUs of the VM on {' '.join(qemus) or 'no host'}"]
    scene.lab.where[MOVER], = qemus
    for host in site.hosts():
        try:
            wrong += host_look(scene, host, parked)
        except OSError as e:
            wrong.append(f"ibvmigd on {host}: {e}")
    return wrong + [f"lease {x}" for x in site.leases()]


def host_look(scene, host, parked):
    site, here = scene.site, scene.lab.where[MOVER] == host
    wrong = []
    for m in site.get(host, "/v1/migrations")["migrations"]:
        if m["state"] == "PARKED":
            resolve(scene, host, m, parked)
        if not m["ended"]:
            wrong.append(f"{host}: {m['role']}'s record in {m['state']}")
    status = site.get(host, "/v1/status")
    vm = next((v for v in status["vms"] if v["name"] == MOVER), None)
    mine = [v for v in status["vfs"] if v["vm"] == MOVER]
    if len(mine) != here:
        wrong.append(f"{host} has {len(mine)} VFs leased to the VM")
    if here and not (vm and vm["state"] == "attached" and vm["agent"]["state"] == "up" and vm["lid"] == scene.lid):
        wrong.append(f"{host} says of the VM: {vm}")
    return wrong


def resolve(scene, host, m, parked):
    """The operator mends what is broken and does what the record says. Once for each record."""
    said = m.get("trouble") or ""
    whole = record(scene, host, m["role"], m["id"])
    notes = " ".join(t.get("note") or "" for t in whole.get("transitions", []))
    command = re.search(rf"ibvmig resolve {m['id']}", notes)
    if not command:
        raise Failure(f"{host}: PARKED without its command: {said} {notes}")
    while scene.broken:
        scene.broken.pop()()
    if command[0] not in parked:
        parked.append(command[0])
        scene.lab.sh(host, BUILD / "bin/ibvmig", "resolve", m["id"])


def full_look(scene):
    """Returns complaints by the words of the others: libvirt, ibvmig-sm, the switches, the guest,
    and the traffic."""
    lab, host, wrong = scene.lab, scene.lab.where[MOVER], []
    listed = {h: lab.virsh(h, "list").stdout for h in scene.site.hosts()}
    having = {h: "running" in text.split(MOVER)[1].splitlines()[0] for h, text in listed.items() if MOVER in text}
    if having != {host: True}:
        wrong.append(f"libvirt has it on {having} (true: running); its QEMU is on {host}")
    vf = next(v["name"] for v in scene.site.get(host, "/v1/status")["vfs"] if v["vm"] == MOVER)
    known = scene.site.get("sm", f"/v1/vguids/{MOVER_VGUID}")
    if (known.get("host"), known.get("vf"), known.get("lid")) != (host, vf, scene.lid):
        wrong.append(f"ibvmig-sm has {known}, not {host} {vf} LID {scene.lid}")
    ports = lab.fabric_port_list()
    shown = [(name, lid) for guid, name, lid in ports if guid == int(MOVER_VGUID, 16)]
    if shown != [(f"{host}-{vf}", scene.lid)]:
        wrong.append(f"the fabric shows the vGUID at {shown}, not at {host}-{vf} with LID {scene.lid}")
    wrong += walk(scene, f"{host}-{vf}", next(lid for guid, _, lid in ports if guid == int(PEER_VGUID, 16)))
    if lab.vm_gid_guid(MOVER) != MOVER_VGUID:
        wrong.append(f"the guest shows {lab.vm_gid_guid(MOVER)}")
    if not wrong:
        scene.traffic.wait_progress("checked traffic goes on", WAIT_S)
        wrong += [f"{vm}: {k} {c[k]}: {c['first_error']}" for vm in (MOVER, PEER)
                  for c in [scene.traffic.counts(vm)] for k in ("lost", "duplicated", "corrupt") if c[k]]
    return wrong


def walk(scene, node, peer):
    """Both ways by the LFTs, as a tool that knows nothing of ours follows them; peer is the LID of the other VM."""
    wrong = []
    for start, end in ((peer, scene.lid), (scene.lid, peer)):
        p = scene.lab.sim("ibtracert", start, end, check=False)
        last = p.stdout.strip().splitlines()[-1:] or [p.stderr.strip()]
        if p.returncode or f"lid {end}-" not in last[0] or end == scene.lid and f'"{node}"' not in last[0]:
            wrong.append(f"the LFTs lead from LID {start} to {last[0]}, not to LID {end}")
    return wrong


def cells(role, state, *faults):
    return [Cell(role, state, *f) for f in faults]


CELLS = [
    *cells("source", "SWITCH",
           ("kill -9 of the source's ibvmigd", kill_restart("ibvmigd@{source}")),
           ("kill -9 of the destination's ibvmigd", kill_restart("ibvmigd@{target}")),
           ("kill -9 of ibvmig-sm", kill_restart("ibvmig-sm@sm")),
           ("kill -9 of OpenSM", kill_restart("opensm@sm")),
           ("network cut for 10 s", cut(10)),
           ("the provider refuses set-guid", refuse("set-guid"), ("stayed",)),
           ("kill -9 of the destination's QEMU", kill_incoming_qemu, ("stayed",)),
           ("ibvmig abort", daemon_abort)),
    *cells("source", "HOLD",
           ("the destination's VF vanishes", lose_vf, ("moved",))),
    # ATTACH begins before the source has the answer to its order and says COMMIT: without that the
    # destination cancels
    *cells("destination", "ATTACH",
           ("kill -9 of the destination's ibvmigd", kill_restart("ibvmigd@{target}")),
           ("network cut for 1 s", cut(1))),
    *cells("destination", "RESUME",
           ("kill -9 of the destination's ibvmigd", kill_restart("ibvmigd@{target}"), ("moved",)),
           ("kill -9 of the source's ibvmigd", kill_restart("ibvmigd@{source}"), ("moved",)),
           ("kill -9 of the peer's agent", kill_agent(PEER), ("moved",))),
    *cells("source", "DETACH",
           ("kill -9 of the source's ibvmigd", kill_restart("ibvmigd@{source}"), ("stayed",)),
           ("kill -9 of the source's libvirtd", kill_restart("libvirtd@{source}"), ("stayed",))),
    *cells("source", "QUIESCE",
           ("kill -9 of the source's ibvmigd", kill("ibvmigd@{source}"), ("stayed",)),
           ("kill -9 of a process with the shim", kill_process, ("stayed", "moved"), with_victim, without_victim)),
    *cells("source", "HOLD",
           ("kill -9 of the source's ibvmigd", kill("ibvmigd@{source}"), ("stayed",)),
           ("SIGSTOP of the source's ibvmigd", stop("ibvmigd@{source}"), ("stayed",), None, None, STOPPED_S),
           ("kill -9 of the destination's ibvmigd", kill_restart("ibvmigd@{target}")),
           ("SIGSTOP of the destination's ibvmigd", stop("ibvmigd@{target}"), ("stayed", "moved"), None, None, STOPPED_S),
           ("kill -9 of the source's libvirtd", kill_restart("libvirtd@{source}"), ("stayed",)),
           ("kill -9 of the destination's libvirtd", kill_restart("libvirtd@{target}"), ("stayed",)),
           ("network cut for 1 s", cut(1)),
           ("network cut for 10 s", cut(10)),
           ("kill -9 of the agent", kill_agent(MOVER)),
           ("kill -9 of the peer's agent", kill_agent(PEER)),
           ("kill -9 of the destination's QEMU", kill_incoming_qemu, ("stayed",)),
           ("virsh domjobabort", job_abort, ("stayed",)),
           ("the guest ignores device_del", deaf_to_unplug, ("stayed",)),
           ("the journal's disk is full at the source", fill_disk("source"), ("stayed",), small_disk("source"))),
    *cells("source", "PREPARE",
           ("kill -9 of the source's ibvmigd", kill("ibvmigd@{source}"), ("stayed",)),
           ("kill -9 of the destination's ibvmigd", kill("ibvmigd@{target}"), ("stayed",)),
           ("kill -9 of ibvmig-sm", kill_restart("ibvmig-sm@sm"))),
]
