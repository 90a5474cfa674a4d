# SPDX-License-Identifier: GPL-2.0-or-later
"""Verbs of the driver fail once each, and `openstack server event show` says why."""
import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Callable

from check import DONE_S, HERE, MOVER, MOVER_VGUID, PKEY, SERVER
from cloud import BUILD, Failure, labconf, wait_for


@dataclass
class Break:
    """What is broken, and mended when the event has been read. With a step: once Nova is there (ibvmig_lab.py), which
    waits for it."""
    spoil: Callable
    mend: Callable
    step: str = ""


class Verbs:
    def __init__(self, check):
        self.check, self.lab = check, check.lab
        self.breaks = check.cloud.dir / "breaks"

    # -- one migration that fails

    def at(self, brk):
        """Breaks it when Nova has come to its step, and lets Nova go on."""
        reached = self.breaks / f"{brk.step}.reached"
        try:
            wait_for(f"Nova comes to {brk.step}", DONE_S, reached.exists)
            brk.spoil()
        finally:
            for path in (self.breaks / brk.step, reached):
                path.unlink(missing_ok=True)

    def meanwhile(self, breaks):
        """Asks for the migration, and breaks things before and during it."""
        later = [b for b in breaks if b.step]
        for b in later:
            (self.breaks / b.step).touch()
        for b in breaks:
            if not b.step:
                b.spoil()
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(self.check.ask, self.check.other_host(), False)
            for b in later:
                self.at(b)
            asked.result()

    def fails(self, name, wanted, *breaks):
        """The server stays, and goes on."""
        before = self.check.address()
        self.meanwhile(breaks)
        self.check.seen(name, wanted)
        for b in breaks:
            b.mend()
        self.check.stays(name, before)
        self.check.said(f"failed: {name}")

    def parks(self, name, host, wanted, *breaks):
        """The server is in ERROR on that host, its migration parked there, until it is mended as the event says."""
        before = self.check.address()
        self.meanwhile(breaks)
        self.lab.where[MOVER] = host
        told = self.check.seen(name, wanted)["ibvmig_confirm"][2] or ""
        self.check.becomes(f"{name}: in ERROR, on", self.check.rest, ("ERROR", None, host))
        for b in breaks:
            b.mend()
        command = re.search(r"then: ibvmig resolve ([\w-]+)", told)
        if not command:
            raise Failure(f"{name}: no command is named: {told}")
        self.lab.sh(host, BUILD / "bin/ibvmig", "resolve", command[1])
        self.check.cloud.openstack("server", "set", "--state", "active", SERVER)
        self.check.stays(name, before)
        self.check.said(f"failed: {name}")

    # -- one that succeeds

    def nova_comes_late(self, to):
        """Asks for a live migration, and keeps Nova from the destination until the VF is attached there: ibvmigd does
        it on libvirt's RESUME, and needs nothing of Nova's."""
        def attached():
            self.lab.where[MOVER] = to
            self.lab.wait_vf(MOVER)
            self.check.traffic.wait_progress(f"before Nova has come to {to}: traffic goes on", 60)
            events = self.check.events()
            self.check.tap.check(f"the VF is attached on {to} before Nova has come there",
                                 "ibvmig_confirm" not in events, events)
        self.meanwhile([Break(attached, lambda: None, "arrive")])

    # -- what is broken

    def daemon(self, host, step=""):
        service = f"ibvmigd@{host}"
        return Break(lambda: self.lab.lab("service", "stop", service),
                     lambda: self.lab.lab("service", "start", service), step)

    def sm(self):
        def well(yes):
            hosts = self.check.cloud.hosts + ["hostc"]
            wait_for("ibvmig-sm's state is seen by all", DONE_S, lambda: all(
                self.lab.status(h)["sm"]["ok"] == yes for h in hosts), 0.5)
        return Break(lambda: (self.lab.lab("service", "stop", "ibvmig-sm@sm"), well(False)),
                     lambda: (self.lab.lab("service", "start", "ibvmig-sm@sm"), well(True)))

    def agent(self, step=""):
        def known(up):
            def see():
                vm = self.lab.vm_status(self.lab.where[MOVER], MOVER)
                return vm and (vm["agent"]["state"] == "up") == up
            wait_for(f"{MOVER}'s agent is seen to be {'up' if up else 'away'}", DONE_S, see, 0.2)
        return Break(lambda: (self.lab.guest(MOVER, "mv /usr/bin/ibvmig-agent /tmp/; killall ibvmig-agent"),
                              known(False)),
                     lambda: (self.lab.guest(MOVER, "mv /tmp/ibvmig-agent /usr/bin/"), known(True)), step)

    def provider(self, host, op, words):
        path = self.breaks / f"{host}-{op}"
        return Break(lambda: path.write_text(words + "\n"), path.unlink)

    def lost_vf(self, host):
        switch = self.breaks / f"{host}-lost"

        def make_again():
            switch.unlink()
            vf = next(v["name"] for v in self.lab.status(host)["vfs"] if v.get("vm"))
            self.lab.sh(host, "ip", "link", "del", f"tap-{vf}")
            self.lab.sh(host, "sh", "-c", 'echo "$0" | "$1" prepare', json.dumps(
                {"vf": vf, "vguid": MOVER_VGUID, "pkey": PKEY}), BUILD / "tests/lab_provider")
        return Break(switch.touch, make_again)

    # -- verb by verb

    def check_destination(self):
        self.fails("ibvmigd of the destination is stopped", {"ibvmig_check_destination": "does not answer"},
                   self.daemon(self.check.other_host()))
        self.fails("ibvmig-sm is stopped", {"ibvmig_check_destination": "cannot move addresses"}, self.sm())

    def check_source(self):
        self.fails("the guest has no agent", {"ibvmig_check_source": "no ibvmig-agent answers"}, self.agent())

    def arm(self):
        self.fails("the agent ends after the checks", {"ibvmig_arm": "no ibvmig-agent answers"}, self.agent("pre"))

    def migrate(self):
        """libvirt's job: refused by the hook (PREPARE)."""
        to = self.check.other_host()
        self.fails("the destination's provider refuses, then its ibvmigd ends", {
            "ibvmig_migrate": "no cable", "ibvmig_rollback": "does not answer"},
                   self.provider(to, "prepare", "no cable"), self.daemon(to, "rollback"))

    def switch(self):
        """The same, walked back after the VF had left (SWITCH)."""
        to = self.check.other_host()
        self.fails("the destination's VF does not take the vGUID", {"ibvmig_migrate": "table is full"},
                   self.provider(to, "set-guid", "table is full"))

    def confirm_at_source(self):
        """The walk back ends halfway."""
        origin, to = self.lab.where[MOVER], self.check.other_host()
        self.parks("neither VF takes the vGUID", origin, {
            "ibvmig_migrate": "table is full", "ibvmig_confirm": "no room"},
                   self.provider(to, "set-guid", "table is full"), self.provider(origin, "set-guid", "no room"))

    def confirm_at_destination(self):
        """The server has moved; its VF there has vanished."""
        to = self.check.other_host()
        self.parks("the destination's VF cannot be attached", to, {"ibvmig_confirm": "tap-"}, self.lost_vf(to))

    def attach(self):
        """The server starts anew, here by a hard reboot: its programs end."""
        name, host = "the server's VF cannot be prepared when it starts", self.lab.where[MOVER]
        refusal = self.provider(host, "prepare", "no cable")
        refusal.spoil()
        self.check.cloud.openstack("server", "reboot", "--hard", SERVER)
        self.check.seen(name, {"ibvmig_attach": "no cable"}, "reboot")
        self.check.becomes(f"{name}: in ERROR, on", self.check.rest, ("ERROR", None, host))
        self.check.tap.equal(f"{name}: it does not run", self.lab.virsh(host, "domstate", MOVER).stdout.strip(),
                             "shut off")
        refusal.mend()
        self.check.cloud.openstack("server", "reboot", "--hard", SERVER)
        self.check.becomes(f"{name}: mended, active on", self.check.rest, ("ACTIVE", None, host))
        self.lab.wait_vf(MOVER)
        self.check.said(f"failed: {name}")

    def release(self):
        """The server has left; its host's ibvmigd does not answer Nova."""
        name, before, origin, to = "ibvmigd of the source ends at last", self.check.address(), \
            self.lab.where[MOVER], self.check.other_host()
        daemon = self.daemon(origin, "post")

        def stop():
            self.lab.wait_done(MOVER, origin, DONE_S)
            daemon.spoil()
        self.meanwhile([Break(stop, daemon.mend, "post")])
        self.lab.where[MOVER] = to
        self.check.seen(name, {"ibvmig_release": "does not answer"})
        daemon.mend()
        self.check.stays(name, before)
        self.check.said(f"failed: {name}")

    def abort_in_hold(self):
        name, before, origin = "abort in HOLD", self.check.address(), self.lab.where[MOVER]
        url = f"https://{labconf.host_ip(self.check.cloud.hosts.index(origin))}:{labconf.PEER_PORT}"
        aborter = self.lab.popen("sm", *self.check.cloud.as_client(
            "/usr/bin/python3", HERE / "abort.py", SERVER, url, labconf.TLS_DIR))
        if aborter.stdout.readline() != "ready\n":
            raise Failure(f"{name}: {aborter.communicate()[0]}")
        with self.check.slow_copy():  # Nova is to pass the abort on before it ends
            self.check.ask(self.check.other_host(), check=False)
        out, _ = aborter.communicate(timeout=330)
        self.check.tap.check(f"{name}: asked for in time", aborter.returncode == 0, out)
        record = self.lab.wait_done(MOVER, origin, DONE_S, state="ABORTED")
        states = [t["state"] for t in self.lab.rest(origin, f"/v1/migrations/{record['id']}")["source"]["transitions"]]
        self.check.tap.check(f"{name}: before the VF had left", "HOLD" in states and "QUIESCE" not in states, states)
        self.check.tap.equal(f"{name}: Nova's verdict", self.check.read("migration")["status"], "cancelled")
        self.check.stays(name, before)
        self.check.report["failures"].append({"failure": name, "events": self.check.events()})
        self.check.said(name)
