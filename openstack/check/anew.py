# SPDX-License-Identifier: GPL-2.0-or-later
"""What the server's guest boots anew after: cold migration and resize, each confirmed and reverted, rebuild, shelving
with and without offload, and the evacuation from a host that is lost."""
from check import FLAVORS, LARGE, MOVER, MOVER_VGUID, SERVER
from lost import LostHost
from moves import folder
from verbs import Verbs


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
    one_domain(check, name)
    check.nothing_lost(name)
    check.said(name)


def one_domain(check, name):
    """On the server's host, as large as its flavor."""
    flavor = FLAVORS[check.flavor]
    size = [str(flavor["VCPU"]), f"{flavor['MEMORY_MB'] << 10} KiB"]
    check.becomes(f"{name}: domains, their CPUs and memory", lambda: domains(check), {
        h: {MOVER: size} if h == check.lab.where[MOVER] else {} for h in check.cloud.hosts})


def domains(check):
    """{host: {domain: [CPUs, memory]}}"""
    return {host: {name: size(check, host, name) for name in
                   check.lab.virsh(host, "list", "--all", "--name").stdout.split()} for host in check.cloud.hosts}


def size(check, host, name):
    info = check.lab.virsh(host, "dominfo", name, check=False).stdout  # the domain may just have left
    told = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
    return [told.get(key, "").strip() for key in ("CPU(s)", "Max memory")]


# -- cold migration and resize

def move(check, name, flavor):
    """Until Nova waits for a verdict: the VF of the host that the server has left stays claimed, for a revert."""
    origin, to, before = check.lab.where[MOVER], check.other_host(), FLAVORS[check.flavor]
    left = check.vfs_of(origin)[0]
    ask, action = (["resize", "--flavor", flavor], "resize") if flavor else (["migrate"], "migrate")
    check.cloud.openstack("server", *ask, "--wait", SERVER)
    check.becomes(f"{name}: to be confirmed on", check.rest, ("VERIFY_RESIZE", None, to))
    check.lab.where[MOVER] = to
    succeeded(check, name, action, {"ibvmig_release": origin, "ibvmig_attach": to})
    vf, server, kept_for = check.vf(name), check.server()["id"], check.read("migration")["uuid"]
    check.becomes(f"{name}: both hosts' claims, before the verdict", check.books, {
        "ibvmigd": {to: [vf]}, "neutron": {to: [vf, "ACTIVE"]},
        "nova": {to: [[vf, "allocated", server]], origin: [[left, "allocated", server]]},
        "placement": {to: {server: FLAVORS[flavor or check.flavor]}, origin: {kept_for: before}}})
    return origin, to


def confirmed(check, name, flavor=None):
    """With a flavor: a resize, else a cold migration."""
    _, to = move(check, name, flavor)
    check.cloud.openstack("server", "resize" if flavor else "migration", "confirm", SERVER)
    check.flavor = flavor or check.flavor
    boots(check, name, to)
    settles(check, name)


def reverted(check, name, flavor=None):
    origin, to = move(check, name, flavor)
    check.cloud.openstack("server", "resize" if flavor else "migration", "revert", SERVER)
    boots(check, name, origin)
    succeeded(check, name, "revertResize", {"ibvmig_release": to, "ibvmig_attach": origin})
    settles(check, name)


# -- rebuild

def rebuilt(check):
    """From another image, on the same host, with the same VF."""
    name, host = "rebuilt", check.lab.where[MOVER]
    vf = check.vf(name)
    check.cloud.openstack("server", "rebuild", "--image", check.images[1], "--wait", SERVER)
    boots(check, name, host)
    succeeded(check, name, "rebuild", {"ibvmig_release": host, "ibvmig_attach": host})
    cmdline = check.lab.guest(MOVER, "cat /proc/cmdline").stdout
    check.tap.check(f"{name}: from the other image", "lab.image=1" in cmdline, cmdline)
    check.tap.equal(f"{name}: the VF", check.vf(name), vf)
    settles(check, name)


# -- shelving

def shelved(check):
    """Off its host's CPUs only: what Nova, placement and Neutron have for it stays, and it starts there again."""
    name, host, left = "shelved", check.lab.where[MOVER], check.vfs_of(check.lab.where[MOVER])[0]
    check.cloud.openstack("server", "shelve", "--wait", SERVER)
    check.becomes(f"{name}: rests on", check.rest, ("SHELVED", None, host))
    succeeded(check, name, "shelve", {"ibvmig_release": host})
    server = check.server()["id"]
    check.becomes(f"{name}: claims, without ibvmigd's", check.books, {
        "ibvmigd": {}, "nova": {host: [[left, "allocated", server]]}, "neutron": {host: [left, "ACTIVE"]},
        "placement": {host: {server: FLAVORS[check.flavor]}}})
    addresses_free(check, name)
    one_domain(check, name)
    unshelved(check, "unshelved where it was", host, {"ibvmig_release": host})


def offloaded(check):
    """It has no host any more, and comes back on the other one, since an operator has closed that which it had."""
    name, host, to = "offloaded", check.lab.where[MOVER], check.other_host()
    left = check.vfs_of(host)[0]
    check.cloud.look_anew(host)
    check.cloud.openstack("server", "shelve", "--offload", "--wait", SERVER)
    check.becomes(f"{name}: rests", check.rest, ("SHELVED_OFFLOADED", None, None))
    for action in ("shelve", "shelveOffload"):
        succeeded(check, name, action, {"ibvmig_release": host})
    check.becomes(f"{name}: nobody has claims; Neutron leaves the binding", check.books, {
        "ibvmigd": {}, "nova": {}, "neutron": {host: [left, "ACTIVE"]}, "placement": {}})
    nowhere(check, name)
    check.cloud.openstack("compute", "service", "set", "--disable", host, "nova-compute")
    unshelved_in_vain(check, to)
    unshelved(check, "unshelved elsewhere", to)
    check.cloud.openstack("compute", "service", "set", "--enable", host, "nova-compute")


def addresses_free(check, name):
    """No port of the fabric has the vGUID, and ibvmig-sm has it bound nowhere."""
    check.becomes(f"{name}: LID of the vGUID, and who has it", lambda: [
        check.lab.fabric_lid(MOVER_VGUID), [v["host"] for v in check.lab.sm_get("/v1/vguids")["vguids"]
                                            if v["vguid"] == MOVER_VGUID]], [None, []])


def nowhere(check, name):
    addresses_free(check, name)
    check.tap.equal(f"{name}: domains", domains(check), {h: {} for h in check.cloud.hosts})
    check.tap.equal(f"{name}: folders", [h for h in check.cloud.hosts if folder(check, h).exists()], [])


def unshelved_in_vain(check, to):
    """Its VF cannot be prepared where it is to start: it is offloaded again, and nothing of it stays there. (The
    client's --wait would wait for ever.)"""
    name, refusal = "the VF cannot be prepared for unshelving", Verbs(check).provider(to, "prepare", "no cable")
    refusal.spoil()
    check.cloud.openstack("server", "unshelve", SERVER)
    check.seen(name, {"ibvmig_attach": "no cable"}, "unshelve")
    refusal.mend()
    check.becomes(f"{name}: rests", check.rest, ("SHELVED_OFFLOADED", None, None))
    check.becomes(f"{name}: hosts with claims; Neutron leaves the binding", lambda: {
        who: list(hosts) for who, hosts in check.books().items()}, {
            "ibvmigd": [], "nova": [], "neutron": [to], "placement": []})
    nowhere(check, name)
    check.said(f"failed: {name}")


def unshelved(check, name, host, before=None):
    """before: {event: host}; Nova starts a server that has a host as at a hard reboot, and makes sure first that it is
    off."""
    check.cloud.openstack("server", "unshelve", "--wait", SERVER)
    boots(check, name, host)
    succeeded(check, name, "unshelve", {"ibvmig_attach": host, **(before or {})})
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
        "placement": {h: {server: FLAVORS[check.flavor]} for h in check.cloud.hosts}})
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
