# SPDX-License-Identifier: GPL-2.0-or-later
"""A VM with a VF on hosts whose QEMU has x-late-detach (`make qemu`). The VF leaves in the middle of a migration.
A VF that nobody has detached makes the migration fail at switchover, with the VM and its VF at the source."""
import json
import os
import signal
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[:0] = [str(Path(__file__).resolve().parent.parent / d) for d in ("bench", "e2e")]
from lab_site import Site  # noqa: E402
from labtest import BUILD, WAIT_S, Failure, scenario, wait_for  # noqa: E402

VM, VGUID = "vm", "0x00a1b2fffe000401"
os.environ["LAB_QEMU_ROOT"] = str(BUILD / "qemu/root")


def qmp(lab, host, execute, **arguments):
    p = lab.virsh(host, "qemu-monitor-command", VM, json.dumps({"execute": execute, "arguments": arguments}))
    answer = json.loads(p.stdout)
    if "error" in answer:
        raise Failure(f"{execute}: {answer['error']['desc']}")
    return answer["return"]


def vf_property(lab, name):
    """Returns a property of the VF's device in the VM's QEMU; None without a device."""
    devices = [d["name"] for d in qmp(lab, lab.where[VM], "qom-list", path="/machine/peripheral")]
    vf = [d for d in devices if d.startswith("ibvf")]
    return qmp(lab, lab.where[VM], "qom-get", path=f"/machine/peripheral/{vf[0]}", property=name) if vf else None


def moves(tap, lab, pre_attached):
    """There and back; pre_attached: the destination's QEMU has started with the VF."""
    tap.equal("the daemon has found the property, and uses no pair id",
              (vf_property(lab, "x-late-detach"), vf_property(lab, "failover_pair_id")), (True, ""))
    before = lab.vm_status("hosta", VM)
    for to in ("hostb", "hosta"):
        lab.migrate(VM, to)
        m = lab.wait_done(VM, lab.came_from[VM])
        after = lab.wait_vf(VM)
        tap.check(f"to {to}: the VF left during pre-copy", m["strategy"] == "late" and
                  m["data"].get("detach_us", 0) > 0 and m["data"].get("hold_us", 0) > 0, m)
        tap.equal(f"to {to}: the VF was in QEMU from its start", m["data"].get("pre_attached", False), pre_attached)
        tap.equal(f"to {to}: it has the property again", vf_property(lab, "x-late-detach"), True)
        tap.equal(f"to {to}: same LID and GID", (after["lid"], lab.vm_gid_guid(VM)), (before["lid"], VGUID))


def held_by_qemu(tap, lab):
    """In HOLD the daemon stops, and the lease holder, and its brakes are taken off: QEMU alone must keep the VM with
    its VF. The bandwidth is what makes HOLD last until they are stopped."""
    lid = lab.fabric_lid(VGUID)
    old = (lab.vm_status("hosta", VM)["migration"] or {}).get("id")
    brakes = [Site(lab).service(f"{name}@hosta") for name in ("ibvmig-lease", "ibvmigd")]
    p = lab.migrate_start(VM, "hostb", "--bandwidth", "8")
    lab.await_migration(VM, "hosta", old, ["HOLD"])
    try:
        for pid in brakes:
            os.kill(pid, signal.SIGSTOP)
        qmp(lab, "hosta", "migrate-set-parameters", **{"max-bandwidth": 1 << 30, "downtime-limit": 2000})
        out, _ = p.communicate(timeout=WAIT_S)
        tap.check("with the VF still there the migration fails", p.returncode != 0, out)
        for line in out.splitlines():
            print(f"#   {line}")
        log = lab.sh("hosta", "cat", f"/var/log/libvirt/qemu/{VM}.log").stdout
        tap.check("QEMU names the device and says why", "x-late-detach: still attached at switchover" in log,
                  log[-400:])
        tap.check("and before it has sent the device to the destination, which would refuse it as unknown",
                  "Unknown savevm" not in out, out)
        tap.equal("the VM runs at the source, with its VF", (lab.virsh("hosta", "domstate", VM).stdout.strip(),
                  vf_property(lab, "x-late-detach")), ("running", True))
    finally:
        for pid in brakes:
            os.kill(pid, signal.SIGCONT)
    m = lab.wait_done(VM, "hosta", state="ABORTED", deadline_s=WAIT_S)
    tap.check("the record ends in ABORTED with a reason", bool(m.get("reason")), m)
    lab.wait_vf(VM)
    tap.equal("same LID and GID", (lab.fabric_lid(VGUID), lab.vm_gid_guid(VM)), (lid, VGUID))
    wait_for("the other host's VF is free", WAIT_S, lambda: not any(v.get("vm") for v in lab.status("hostb")["vfs"]))
    lab.migrate(VM, "hostb")
    lab.wait_done(VM, "hosta")
    lab.wait_vf(VM)
    tap.equal("and migrates afterwards", lab.vm_gid_guid(VM), VGUID)


def late_detach(pre_attached, **lab_options):
    def body(tap, lab):
        lab.vm(VM, "hosta", "--mem", 128, "--vguid", VGUID)
        lab.wait_vf(VM)
        moves(tap, lab, pre_attached)
        held_by_qemu(tap, lab)

    scenario(body, hosts="a b", link="roce", **lab_options)
