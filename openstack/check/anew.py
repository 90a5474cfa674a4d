# SPDX-License-Identifier: GPL-2.0-or-later
"""Moves after which the server's guest boots anew: cold migration, confirmed and reverted, and the evacuation from a
host that is lost."""
from check import MOVER, MOVER_VGUID, SERVER
from lost import LostHost


def succeeded(check, name, action, want):
    """{event: host} of the driver's in that action."""
    check.becomes(f"{name}: our events", lambda: {
        event: (host, result) for event, (result, host, _) in check.events(action).items()
        if event.startswith("ibvmig_")}, {event: (host, "Success") for event, host in want.items()})


def boots(check, name, host):
    """The server is there, and its programs are started again. Its vGUID is the same; its LID is that of its VF there,
    as at every start (docs/fabric.md, Addresses)."""
    check.becomes(f"{name}: active on", check.rest, ("ACTIVE", None, host))
    check.lab.where[MOVER] = host
    check.lab.wait_vf(MOVER)
    bound = check.lab.sm_get(f"/v1/vguids/{MOVER_VGUID}")
    check.tap.equal(f"{name}: where ibvmig-sm has it", bound["host"], host)
    check.tap.equal(f"{name}: LID and vGUID", check.address(), {"vguid": MOVER_VGUID, "lid": bound["lid"]})
    check.start_traffic(name.replace(" ", "-"))
    check.bound(name)


def settles(check, name):
    """It is nowhere else, and nobody takes anything from it."""
    check.at_rest(name, check.address())
    check.becomes(f"{name}: domains", lambda: {h: domains(check, h) for h in check.cloud.hosts},
                  {h: [MOVER] if h == check.lab.where[MOVER] else [] for h in check.cloud.hosts})
    check.nothing_lost(name)
    check.said(name)


def domains(check, host):
    return check.lab.virsh(host, "list", "--all", "--name").stdout.split()


# -- cold migration

def migrate(check, name):
    """Until Nova waits for a verdict: the VF of the host that the server has left stays claimed, for a revert."""
    origin, to = check.lab.where[MOVER], check.other_host()
    left = check.vfs_of(origin)[0]
    check.cloud.openstack("server", "migrate", "--wait", SERVER)
    check.becomes(f"{name}: to be confirmed on", check.rest, ("VERIFY_RESIZE", None, to))
    check.lab.where[MOVER] = to
    succeeded(check, name, "migrate", {"ibvmig_release": origin, "ibvmig_attach": to})
    vf, server, kept_for = check.vf(name), check.server()["id"], check.read("migration")["uuid"]
    check.becomes(f"{name}: both hosts' claims, before the verdict", check.books, {
        "ibvmigd": {to: [vf]}, "neutron": {to: [vf, "ACTIVE"]},
        "nova": {to: [[vf, "allocated", server]], origin: [[left, "allocated", server]]},
        "placement": {to: {server: check.ALLOCATED}, origin: {kept_for: check.ALLOCATED}}})
    return origin, to


def confirmed(check):
    name = "cold migration confirmed"
    _, to = migrate(check, name)
    check.cloud.openstack("server", "migration", "confirm", SERVER)
    boots(check, name, to)
    settles(check, name)


def reverted(check):
    name = "cold migration reverted"
    origin, to = migrate(check, name)
    check.cloud.openstack("server", "migration", "revert", SERVER)
    boots(check, name, origin)
    succeeded(check, name, "revertResize", {"ibvmig_release": to, "ibvmig_attach": origin})
    settles(check, name)


# -- evacuation

def evacuated(check):
    """From a host that first only Nova takes for lost: nobody may take the addresses from the server that runs there.
    The host comes back at the end: until then Nova keeps its claims there."""
    name, to, server = "evacuated", check.other_host(), check.server()["id"]
    lost = LostHost(check, check.lab.where[MOVER])
    left = check.vf(name)
    refused(check, lost)
    lost.off()
    ask_evacuation(check)
    boots(check, name, to)
    succeeded(check, name, "evacuate", {"ibvmig_fence": to, "ibvmig_attach": to})
    vf = check.vf(name)
    check.becomes(f"{name}: both hosts' claims", lambda: check.read("claims"), {
        "neutron": {to: [vf, "ACTIVE"]},
        "nova": {to: [[vf, "allocated", server]], lost.name: [[left, "allocated", server]]},
        "placement": {h: {server: check.ALLOCATED} for h in check.cloud.hosts}})
    check.said(name)
    lost.on()
    check.becomes(f"{name}: Nova has tidied up on the host that is back", lambda: check.read("migration")["status"],
                  "completed")
    lost.tell_nova("--up")
    settles(check, "the lost host is back")


def ask_evacuation(check):
    """Debian 12's client (6.0.0) asks for it, and then fails to show the answer: its exit status tells nothing."""
    check.cloud.openstack("server", "evacuate", SERVER, check=False)


def refused(check, host):
    name, before = "evacuated from a host that is not off", check.address()
    check.start_traffic("refused")
    host.lose_nova()
    ask_evacuation(check)
    check.seen(name, {"ibvmig_fence": f"host {host.name} is not off"}, "evacuate")
    check.becomes(f"{name}: in ERROR, on", check.rest, ("ERROR", None, host.name))
    check.tap.equal(f"{name}: LID and vGUID", check.address(), before)
    check.traffic.wait_progress(f"{name}: traffic goes on", 60)
    check.nothing_lost(name)
    check.said(f"failed: {name}")
