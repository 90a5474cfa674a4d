# SPDX-License-Identifier: GPL-2.0-or-later
"""Moves of the server that succeed, by Nova and by plain virsh, and what each phase of them took."""
import json
import re
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

from check import DONE_S, HERE, MOVER, SERVER
from cloud import BANDWIDTH_MIB_S, BUILD, Failure

EVENTS = {f"ibvmig_{verb}" for verb in ("check_destination", "check_source", "arm", "migrate", "release", "confirm")}
NOVA_ARRIVES = re.compile(r"^(\S+ \S+) .*Post operation of migration started", re.M)


def measure(check, origin, move):
    """move(), and the record of the migration that it was: (record, {phase: milliseconds})."""
    asked_ms = time.time() * 1000
    move()
    told_ms = time.time() * 1000
    record = check.lab.wait_done(MOVER, origin, DONE_S)
    half = check.lab.rest(origin, f"/v1/migrations/{record['id']}")["source"]
    entered = {t["state"]: t["wall_ms"] for t in reversed(half["transitions"])}
    data = record["data"]
    return record, {
        "asked to PREPARE": round(entered["PREPARE"] - asked_ms),
        "PREPARE": data["prepare_us"] / 1000,
        "HOLD to SWITCH": entered["SWITCH"] - entered["HOLD"],
        "VF away (detach to attach)": data["detach_to_attach_us"] / 1000,
        "VM stopped": data["vm_downtime_ms"],
        "outage of the applications": data["outage_us"] / 1000,
        "PREPARE to DONE": entered["DONE"] - entered["PREPARE"],
        "PREPARE to told": round(told_ms - entered["PREPARE"]),
        "asked to told": round(told_ms - asked_ms)}


# -- by Nova

def by_nova(check, to, ask=None):
    """openstack server migrate, or what else asks for it, and all that must be so afterwards."""
    origin, before = check.lab.where[MOVER], check.address()
    record, phases = measure(check, origin, lambda: (ask or check.ask)(to))
    check.lab.where[MOVER] = check.server()["OS-EXT-SRV-ATTR:host"]
    name = f"{origin} to {to}"
    if not check.tap.equal(f"{name}: the server is there", check.lab.where[MOVER], to):
        raise Failure(f"{name}: {json.dumps(check.events(), indent=1)}")
    late_detach(check, name, record)
    trigger = attach_trigger(check, name, record)
    check.at_rest(name, before)
    check.bound(name)
    disk_went_along(check, name)
    all_went_well(check, name)
    check.report["migrations"].append({"by": "nova", "from": origin, "to": to, "phases_ms": phases, "attach": trigger,
                                       "record": record})
    check.said(f"migrated from {name}")


def late_detach(check, name, record):
    """The VF was in the guest while QEMU copied."""
    shown = check.lab.sh(check.lab.where[MOVER], BUILD / "bin/ibvmig", "timeline", record["id"], "--json").stdout
    lanes = {lane["kind"]: lane["spans"] for lane in json.loads(shown)["lanes"] if lane["kind"] in ("qemu", "vf")}
    copy, gone = lanes["qemu"][0], lanes["vf"][0]["end_us"]
    check.tap.equal(f"{name}: strategy", record["strategy"], "late")
    check.tap.check(f"{name}: the VF leaves during pre-copy, not before", copy["name"] == "pre-copy"
                    and copy["start_us"] < gone <= copy["end_us"], lanes)


def attach_trigger(check, name, record):
    """When QEMU's RESUME reached the destination's ibvmigd, when it had the VF attached, and when Nova came there; in
    milliseconds of the epoch. Both go on by themselves; that ibvmigd does not wait: Verbs.nova_comes_late()."""
    host = check.lab.where[MOVER]
    half = check.lab.rest(host, f"/v1/migrations/{record['id']}")["destination"]
    resumed = next(t["wall_ms"] for t in half["transitions"] if t.get("note") == "COMMIT")
    log = (check.lab.dir / f"log/nova-compute@{host}.log").read_text()
    nova = datetime.fromisoformat(NOVA_ARRIVES.findall(log)[-1]).timestamp() * 1000
    seen = {"RESUME": resumed, "attached": resumed + record["data"]["attach_us"] / 1000, "Nova": round(nova)}
    print(f"# {name}: RESUME {seen['Nova'] - seen['RESUME']} ms before Nova came", flush=True)
    return seen


def disk_went_along(check, name):
    """It was a block migration: hosts share no folder."""
    check.becomes(f"{name}: where the server's disk is", lambda: [
        h for h in check.cloud.hosts if (folder(check, h) / "disk").exists()], [check.lab.where[MOVER]])


def progress_shown(check, to, ask):
    """Asks for the migration. Nova writes it down every few seconds, of what libvirt tells of the pre-copy that ibvmigd
    holds: that is slow until it has."""
    origin = check.lab.where[MOVER]
    watcher = check.lab.popen("sm", *check.cloud.as_client("/usr/bin/python3", HERE / "progress.py", SERVER))
    if watcher.stdout.readline() != "ready\n":
        raise Failure(f"progress: {watcher.communicate()[0]}")

    def follow():
        """What was shown, up to the first line that tells enough."""
        shown = []
        for line in watcher.stdout:
            shown.append(line.strip())
            try:
                m = json.loads(line)
            except ValueError:
                continue
            if 0 < (m["memory_remaining_bytes"] or 0) <= m["memory_total_bytes"]:
                check.lab.virsh(origin, "migrate-setspeed", MOVER, BANDWIDTH_MIB_S, check=False)  # if it is there
                return shown, True
        return shown, False
    with check.slow_copy(), ThreadPoolExecutor(1) as pool:
        followed = pool.submit(follow)
        ask(to)
        shown, told = followed.result()
    watcher.communicate(timeout=DONE_S)
    check.tap.check(f"{origin} to {to}: `server migration show` has how much memory is left", told, "\n".join(shown))


def all_went_well(check, name):
    check.becomes(f"{name}: no event is open", lambda: [e for e, v in check.events().items() if not v[0]], [])
    events = check.shown()
    check.tap.equal(f"{name}: our events", {e for e in events if e.startswith("ibvmig_")}, EVENTS)
    check.tap.equal(f"{name}: events that did not succeed",
                    {e: v for e, v in events.items() if v[0] != "Success"}, {})


# -- by virsh

def by_virsh(check, to):
    """The same server by plain virsh migrate, behind Nova's back. Its disk's folder, which Nova would make there, comes
    before, and goes after."""
    origin, before = check.lab.where[MOVER], check.address()
    name = f"{origin} to {to} by virsh"
    shutil.copytree(folder(check, origin), folder(check, to))
    record, phases = measure(check, origin, lambda: check.lab.migrate(
        MOVER, to, "--bandwidth", BANDWIDTH_MIB_S, "--copy-storage-inc", "--persistent", "--undefinesource"))
    shutil.rmtree(folder(check, origin))
    check.lab.wait_vf(MOVER)
    check.tap.equal(f"{name}: LID and vGUID", check.address(), before)
    check.tap.equal(f"{name}: strategy", record["strategy"], "late")
    check.traffic.wait_progress(f"{name}: traffic goes on", 60)
    check.report["migrations"].append({"by": "virsh", "from": origin, "to": to, "phases_ms": phases, "record": record})
    check.said(f"migrated from {name}")


def folder(check, host):
    """The server's below instances_path."""
    return check.lab.dir / "hosts" / host / "var-lib-libvirt/nova/instances" / check.server()["id"]


def side_by_side(check):
    """{phase: {"nova": [ms of each], "virsh": [...]}} of all moves."""
    moves = check.report["migrations"]
    table = {phase: {by: [m["phases_ms"][phase] for m in moves if m["by"] == by] for by in ("nova", "virsh")}
             for phase in moves[0]["phases_ms"]}
    check.report["side_by_side_ms"] = table
    for phase, by in table.items():
        print(f"# {phase:28} ms: Nova {by['nova']}, virsh {by['virsh']}", flush=True)
