# SPDX-License-Identifier: GPL-2.0-or-later
"""What the steps of make check-openstack share: the lab, the cloud in it, the server and its peer, and what Nova,
Neutron, placement and ibvmigd say of them."""
import json
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from cloud import DAEMON_CONF, TOP, Cloud, Failure, database, labconf, wait_for
sys.path.insert(0, str(TOP / "tests/demo"))
from demo import MOVER, MOVER_VGUID, PEER, PEER_VGUID, Traffic  # noqa: E402
from labtest import Lab, Tap  # noqa: E402

HERE = TOP / "openstack/check"
SERVER = "mover"
PKEY = "0x8001"
SMALL, LARGE = "small", "large"
FLAVORS = {SMALL: {"VCPU": 1, "MEMORY_MB": 384, "DISK_GB": 1, "CUSTOM_IB_VF": 1},
           LARGE: {"VCPU": 1, "MEMORY_MB": 448, "DISK_GB": 2, "CUSTOM_IB_VF": 1}}  # as placement has it; with 2
# CPUs a guest of a starved TCG may hang at its boot: a timer of CPU 0 does not come
DONE_S = 300  # a loaded machine has guests that rebuild their QPs in 10 s and more, and steps of Nova that take minutes


class Check:
    """One run: the lab, the cloud in it, the server, and what was seen."""

    def __init__(self, folder, neutron):
        self.dir = Path(folder)
        self.dir.mkdir(parents=True, exist_ok=True)
        self.tap, self.start_s = Tap(), time.monotonic()
        conf = [DAEMON_CONF, f"provider-exec = {HERE / 'provider'}"]
        self.lab = Lab(self.dir / "lab", up_options=[w for line in conf for w in ("--daemon-conf", line)],
                       link="roce")
        self.cloud = Cloud(self.lab, ["hosta", "hostb"], neutron)
        self.traffic = Traffic.__new__(Traffic)
        self.flavor = SMALL
        self.report = {"steps_s": {}, "migrations": [], "failures": [], "traffic": []}

    def said(self, text):
        self.report["steps_s"][text] = round(time.monotonic() - self.start_s, 1)
        print(f"# {self.report['steps_s'][text]:6.1f} s: {text}", flush=True)

    def down(self):
        self.lab.down()
        self.cloud.remove()

    # -- the server and its peer

    def adopt(self):
        """The lab's own list of VMs: so that it can talk to the server's guest as to its own."""
        spec = {"name": MOVER, "number": 1, "host": "hosta", "memory": FLAVORS[self.flavor]["MEMORY_MB"],
                "vguid": MOVER_VGUID, "mac": "52:54:00:77:00:01", "ip": labconf.vm_ip(1), "cmdline": ""}
        (self.lab.dir / "vms/vms.json").write_text(json.dumps({MOVER: spec}))

    def create(self):
        kernel = labconf.KERNEL if Path(labconf.KERNEL).exists() else labconf.lab_env()["LAB_KERNEL"]
        cmdline = ("console=ttyS0 panic=-1 quiet mitigations=off nokaslr no_timer_check "
                   f"lab.ip={labconf.vm_ip(1)}/16 lab.name={MOVER}")
        made = json.loads(self.cloud.run("/usr/bin/python3", HERE / "resources.py", kernel, labconf.IMAGE, cmdline,
                                         MOVER_VGUID, json.dumps(FLAVORS)))
        self.port, self.images = made["ib"], made["images"]
        self.cloud.openstack("server", "create", "--flavor", self.flavor, "--image", self.images[0], "--port",
                             made["management"], "--port", made["ib"], "--config-drive", "false", "--host", "hosta",
                             "--wait", SERVER)
        self.lab.where[MOVER] = self.server()["OS-EXT-SRV-ATTR:host"]

    def up(self):
        self.lab.up()
        self.said("the lab is up")
        self.cloud.start(self.said)
        self.adopt()
        self.lab.vm(PEER, "hostc", "--mem", 256, "--vguid", PEER_VGUID)
        self.lab.wait_vf(PEER)
        self.create()
        self.lab.wait_vf(MOVER)
        self.said("the server is up, its VF attached")
        self.bound("created")
        self.start_traffic("check")

    def start_traffic(self, name):
        """Checked, between the server and its peer; name: of its files in the guests."""
        self.traffic = Traffic(self.lab, name)
        self.traffic.start_check("-q", "2", filled_mib=96)
        self.said("checked traffic runs")

    def nothing_lost(self, name):
        """Of the checked traffic, which ends."""
        ends = self.traffic.stop_check()
        self.report["traffic"].append(ends)
        for vm, end in ends.items():
            self.tap.check(f"{name}: traffic of {vm}: sent, and ended well", end["sent"] > 0 and not end.get("died"),
                           end)
            self.tap.equal(f"{name}: traffic of {vm}: lost, doubled, changed",
                           [end[k] for k in ("lost", "duplicated", "corrupt")], [0, 0, 0])

    # -- what is asked for

    def other_host(self):
        return next(h for h in self.cloud.hosts if h != self.lab.where[MOVER])

    def ask(self, to, check=True):
        """openstack server migrate, until the server is at rest again."""
        self.cloud.openstack("server", "migrate", "--live-migration", "--host", to, "--wait", SERVER,
                             deadline_s=3 * DONE_S, check=check)

    @contextmanager
    def slow_copy(self):
        """Nova's live migrations begin with a pre-copy that takes a minute or more (ibvmig_lab.py): what has to come
        during it does."""
        switch = self.cloud.dir / "breaks/slow"
        switch.touch()
        try:
            yield
        finally:
            switch.unlink()

    # -- what is seen

    def address(self):
        return {"vguid": self.lab.vm_gid_guid(MOVER), "lid": self.lab.fabric_lid(MOVER_VGUID)}

    @cached_property
    def reader(self):
        return self.lab.popen("sm", *self.cloud.as_client("/usr/bin/python3", HERE / "books.py", SERVER,
                                                          database("nova")), stdin=subprocess.PIPE)

    def read(self, question):
        """What books.py answers."""
        print(question, file=self.reader.stdin, flush=True)
        line = self.reader.stdout.readline()
        if not line.startswith(("{", '"')):
            raise Failure(f"books.py: {question}: {line}{self.reader.communicate()[0]}")
        return json.loads(line)

    def server(self):
        return self.read("server")

    def events(self, action="live-migration"):
        """{event: [result, host, details]} of the server's latest action of that kind, so far."""
        return self.read(f"events {action}")["events"]

    def shown(self, action="live-migration"):
        """The same, as `openstack server event show` has it."""
        shown = self.cloud.show("server", "event", "show", SERVER, self.read(f"events {action}")["request"])
        return {e["event"]: [e["result"], e["host"], e["details"]] for e in shown["events"]}

    def seen(self, name, wanted, action="live-migration"):
        """That these events failed with these words: {event: words}. All events of that action."""
        def ended():
            return {e for e, v in self.events(action).items() if v[0]}
        try:  # Nova does not wait for all of them
            wait_for(name, DONE_S, lambda: set(wanted) <= ended(), 0.5)
        except Failure:
            pass
        got = self.shown(action)
        for event, words in wanted.items():
            result, _, details = got.get(event, (None, None, None))
            self.tap.equal(f"{name}: {event}", result, "Error")
            self.tap.check(f"{name}: {event} says why", words in (details or ""),
                           f"got {details!r}, want {words!r}")
            self.report["failures"].append({"failure": name, "event": event, "details": details})
        return got

    def rest(self):
        """(status, task, host) of the server."""
        server = self.server()
        return server["status"], server["OS-EXT-STS:task_state"], server["OS-EXT-SRV-ATTR:host"]

    def becomes(self, name, see, want):
        """Checks that see() is `want` before long."""
        try:
            wait_for(name, DONE_S, lambda: see() == want, 0.5)
        except Failure:
            pass
        self.tap.equal(name, see(), want)

    def vf(self, name):
        """PCI address of the server's VF, once it has one."""
        return wait_for(f"{name}: the VF of {MOVER}", DONE_S, lambda: self.vfs_of(self.lab.where[MOVER]), 0.3)[0]

    def books(self):
        """Who has which VF, which resources and which binding, by ibvmigd, Nova, placement and Neutron."""
        return {"ibvmigd": {h: v for h in self.cloud.hosts if (v := self.vfs_of(h))}, **self.read("claims")}

    def claims(self, name):
        """All of them name the same host, and the same VF; nobody has anything on another one."""
        server, to, vf = self.server()["id"], self.lab.where[MOVER], self.vf(name)
        self.becomes(f"{name}: one VF, the same for ibvmigd, Nova, placement and Neutron", self.books, {
            "ibvmigd": {to: [vf]}, "nova": {to: [[vf, "allocated", server]]}, "neutron": {to: [vf, "ACTIVE"]},
            "placement": {to: {server: FLAVORS[self.flavor]}}})

    def bound(self, name):
        """The InfiniBand port, as its owner sees it, and that its VF has the PKey of its network."""
        port, host = self.cloud.show("port", "show", self.port), self.lab.where[MOVER]
        self.tap.equal(f"{name}: the port", {k: port[k] for k in ("status", "binding_host_id", "binding_vif_type")},
                       {"status": "ACTIVE", "binding_host_id": host, "binding_vif_type": "ib_hostdev"})
        self.tap.equal(f"{name}: PKey of the port, and of its VF",
                       [port["binding_vif_details"].get("pkey"), self.lab.vm_status(host, MOVER)["pkey"]], 2 * [PKEY])

    def vfs_of(self, host):
        """PCI addresses of the VFs that VMs have there."""
        return [v["pci"] for v in self.lab.status(host)["vfs"] if v.get("vm")]

    def stays(self, name, before):
        """The server is where it was, with its VF, LID and traffic; the destination's VF is free."""
        server = self.server()
        self.tap.equal(f"{name}: the server stays, active", (server["OS-EXT-SRV-ATTR:host"], server["status"]),
                       (self.lab.where[MOVER], "ACTIVE"))
        self.at_rest(name, before)

    def at_rest(self, name, before):
        """The server has what it should have where it is."""
        self.lab.wait_vf(MOVER)
        self.tap.equal(f"{name}: LID and vGUID", self.address(), before)
        self.claims(name)
        self.traffic.wait_progress(f"{name}: traffic goes on", 60)
