# SPDX-License-Identifier: GPL-2.0-or-later
"""Two OpenSMs with our plugin, an ibvmig-sm beside each, for fabric_failover and bench-failover.

The LID space has holes, so that a port that lost its LID would get another one. Ports have GUID tables.
umad_timeouts.so gives the programs umad's time-outs, without which a question that a dead master has not
answered never ends."""
import re
import signal
import time

from fabric_lab import BUILD, UMAD2SIM, VM, WAIT_S, Lab, Net, VF, equal, wait_for
from shared_lab import SharedVF, SharedVM, shared

# A busy machine may take a second for an answer.
CONF = {"log_flags": "0x87", "polling_retry_number": 3, "transaction_timeout": 1000}


HIGHEST = 15  # of sm_priority
KINDS = ("a VF's LID", "VFs' LIDs in a chain", "a dynamic LID", "both in a chain", "entries of GUID tables")


class Place(VF):
    """A VF of the simulated fabric; its GUID is known to be set when show() returns."""

    def __init__(self, lab, view, name):
        super().__init__(lab, view, name)
        self.route = route(view, name)
        self.own = self.lid  # waits while a VM with a dynamic LID is there

    def show(self, guid):
        self.set_guid(guid)
        wait_for(f"{self.name} shows {guid:#x}", lambda: f"{guid:016x}" in self.lab.tool(
            "smpquery", "-D", "nodeinfo", self.route, check=False))


def route(v, name):
    """Directed route from hv0-pf to a CA, breadth first."""
    start = next(i for i in v.cas() if v.ports[i][1] == "hv0-pf")
    todo, seen = [(start, "0")], {start}
    for node, path in todo:
        if v.ports[node][1] == name:
            return path
        for (n, p), (peer, _) in v.links.items():
            if n == node and peer not in seen:
                seen.add(peer)
                todo.append((peer, f"{path},{p}"))
    raise AssertionError(f"no route to {name}")


class Moves:
    """Moves of VMs with LIDs of their own, as one batch."""

    def __init__(self, *moves):
        self.moves = [(vm, vm.at, to) for vm, to in moves]

    def show_parked(self, back=False):
        for _, at, to in self.moves:
            (to if back else at).show((to if back else at).parked)

    def show(self, back=False):
        """As hosts do it: all that are left show parked GUIDs before any shows a vGUID."""
        self.show_parked(back)
        for vm, at, to in self.moves:
            (at if back else to).show(vm.guid)

    def call(self, lab, back=False):
        moves = [{**vm.base(), "from": (to if back else at).json(False), "to": (at if back else to).json()}
                 for vm, at, to in self.moves]
        return lab.call("POST", "/v1/moves", {"moves": moves})

    def carry_out(self, lab, back=False):
        """The answer of a call that must succeed."""
        status, r = self.call(lab, back)
        lids = [vm.lid_at(at if back else to) for vm, at, to in self.moves]
        equal((status, [m["lid_after"] for m in r.get("moves", [])], r.get("verified")), (200, lids, True), r)
        return r

    def left(self, place):
        """The LID that comes to a place which a VM leaves with its own: the one at the end of its chain."""
        goes = {at: to for vm, at, to in self.moves if not vm.dynamic}
        while place in goes:
            place = goes[place]
        return place.own

    def own(self):
        """By place: the LIDs that are the places' own afterwards, where they change."""
        own = {at: self.left(at) for vm, at, _ in self.moves if not vm.dynamic}
        return own | {to: vm.lid for vm, _, to in self.moves if not vm.dynamic}

    def after(self, lids):
        """Returns the LIDs that come of Pair.lids()."""
        own = self.own()
        after = lids | {at.name: own.get(at, at.own) for _, at, _ in self.moves}
        return after | {to.name: vm.lid for vm, _, to in self.moves}

    def done(self):
        """The VMs and LIDs are where these moves want them."""
        for place, lid in self.own().items():
            place.own = lid
        for vm, _, to in self.moves:
            vm.at = to


class PortMoves(Moves):
    """Moves of VMs that share the LIDs of ports: their GUID tables are the subnet manager's to set."""

    def show(self, back=False):
        pass

    def own(self):
        return {}

    def after(self, lids):
        return lids


class OwnVM(VM):
    """A VM whose LID stays its own: that of a VF (whose own one then goes where it came from), or a dynamic
    one."""

    def __init__(self, lab, n, at, dynamic=False):
        super().__init__(lab, n, at)
        self.dynamic = dynamic

    def bind(self):
        self.at.show(self.guid)
        status, r = self.call("/v1/bind", {**self.base(), "name": "v", **self.at.json()})
        equal(status, 200, r)
        self.lid = r["lid"]
        if not self.dynamic:
            equal(self.lid, self.at.own, "LID of the VM: its VF's")

    def lid_at(self, _place):
        return self.lid


class PortVM(SharedVM):
    dynamic = False

    def bind(self):
        equal(super().bind(), (200, {"lid": self.at.lid}), "LID of the VM: its host's")

    def lid_at(self, place):
        return place.lid


class Pair:
    """The two nodes: a leads first, whose OpenSM has the higher priority."""

    def __init__(self, name, poll_ms=400):
        self.net = Net(sms=2)
        self.poll_ms = poll_ms  # a master that misses three is dead for the standby
        self.a = shared(Lab)(name, self.net)
        self.b = shared(Lab)(f"{name}_b", self.net)
        a, b = self.a, self.b
        b.sim_name, b.console, b.tables_file = a.sim_name, a.console, a.tables_file
        b.sm_host, b.smd_host = "smhost2", "spare2"
        a.other, b.other = b, a
        a.priority = HIGHEST
        for lab in (a, b):
            lab.preload = f"{BUILD}/lib/umad_timeouts.so {BUILD}/lib/umad_guids.so {UMAD2SIM}"
        self.vf, self.port, self.vms = {}, {}, []  # port: entries of GUID tables
        self.first = {}  # LIDs before any VM
        self.took = []  # seconds until a standby is master
        self.missed = []  # standbys that the master found by a sweep only

    # ---- programs ----

    def peers(self, lab):
        return {"peer": f"unix:{lab.other.sock}"}

    def start_opensm(self, lab, higher=False):
        """Starts an OpenSM. Beside a master it stays standby, or is the higher one, which is master after the
        other's next sweep. Of equal ones the first is the higher, so every second end of a master takes one
        from the priority. Where none is left, the new one is a high one, and is handed over to."""
        other = lab.other.osm
        beside = other is not None and other.poll() is None
        if beside:
            lab.priority = lab.other.priority + (1 if higher else -(lab is self.a))
        used_up = lab.priority < 0
        if used_up:
            lab.priority = HIGHEST - 1
        lab.opensm_conf = {**CONF, "sminfo_polling_timeout": self.poll_ms, "sm_priority": lab.priority}
        self.die_file(lab).unlink(missing_ok=True)
        lab.start_opensm("die-at")
        if lab.smd is not None and lab.smd.poll() is None:
            wait_for("OpenSM has found its place", lambda: lab.status()["sm"].get("state") in ("master", "standby"))
        if beside and used_up:
            self.wait_handover(lab)

    def die_file(self, lab):
        return lab.dir / "cache/ibvmig-die-at"

    def start(self):
        a, b = self.a, self.b
        a.start_sim()
        b.make_dir()
        for n, (name, _, _) in enumerate(self.net.hca):  # holes
            a.console(f'Baselid "{name}"[1] {50 + 3 * n}')
        for lab in (a, b):
            self.start_opensm(lab)
            lab.start_sm(**self.peers(lab), addresses="dynamic")
            wait_for("its OpenSM", lambda: lab.status()["sm"].get("state") in ("master", "standby"))
        wait_for("the first is master", lambda: self.is_master(a))
        equal(self.master(), a, "who leads")
        equal(b.status()["sm"]["state"], "standby")
        v = a.view()
        equal(v.broken(), [])
        equal(sorted(v.lid[i] for i in v.cas()), [50 + 3 * n for n in range(len(self.net.hca))], "LIDs")
        self.first = {v.ports[i][1]: lid for i, lid in v.lid.items()}
        self.vf = {name: Place(a, v, name) for name in self.first if re.match("hv.*-vf", name)}
        for n in range(3):
            for index in (1, 2):
                self.port[f"hv{n}-{index}"] = SharedVF(v, f"hv{n}", index)

    def addresses(self, lab, mode):
        """Sets the kind of addresses of what is bound from now on."""
        lab.stop_sm()
        lab.start_sm(**self.peers(lab), addresses=mode)
        equal(self.master(), lab, "who leads")

    def bind(self, *vms):
        for vm in vms:
            vm.bind()
            self.vms.append(vm)

    def stop(self, keep=False):
        self.b.stop(keep)
        self.a.stop(keep)

    def bind_all(self):
        """A VM with a dynamic LID, two with those of VFs, two that share those of ports."""
        vf, port, a = self.vf, self.port, self.a
        self.bind(OwnVM(a, 0, vf["hv0-vf1"], dynamic=True))
        self.addresses(a, "shared-port")
        self.bind(PortVM(a, 1, port["hv0-1"]), PortVM(a, 2, port["hv1-1"]))
        self.addresses(a, "prepopulated")
        self.bind(OwnVM(a, 3, vf["hv1-vf1"]), OwnVM(a, 4, vf["hv2-vf1"]))
        self.settled(a)

    def batch(self, kind, n=0):
        """Moves of one of KINDS, to places that are free, others with each n."""
        dynamic, first, second, one, two = self.vms
        if kind == "entries of GUID tables":
            return PortMoves((first, self.free_port(n)), (second, self.free_port(n + 1)))
        chain = {"a VF's LID": [one], "VFs' LIDs in a chain": [one, two], "a dynamic LID": [dynamic],
                 "both in a chain": [dynamic, one]}[kind]
        return Moves(*zip(chain, [vm.at for vm in chain[1:]] + [self.free_vf(n)]))

    def free_vf(self, n):
        free = [f for f in self.vf.values() if f not in [vm.at for vm in self.vms]]
        return free[5 * n % len(free)]

    def free_port(self, n):
        free = [f for f in self.port.values() if f not in [vm.at for vm in self.vms]]
        return free[n % len(free)]

    # ---- who leads ----

    def is_master(self, lab):
        """And may change something: in_sync(), or nobody else is there."""
        s = lab.status()
        return s["sm"].get("ready") and not s["sm"]["sweeping"] and s["peer"]["role"] == "leader"

    def in_sync(self, lab):
        s = lab.status()
        peer = s["peer"]
        return self.is_master(lab) and peer["in_sync"] and s["sm"]["others"] == 1 and peer["sm"]["plugin"]

    def master(self):
        """Returns the master, with a standby in sync. ibsim sends the trap that tells of an SM once, where
        hardware repeats it: a sweep finds what the master has missed."""
        def synced():
            return next((lab for lab in (self.a, self.b) if lab.osm.poll() is None and self.in_sync(lab)), None)

        def leader():
            return next((lab for lab in (self.a, self.b) if lab.osm.poll() is None and self.is_master(lab)), None)
        try:
            lab = wait_for("a master and a standby in sync", synced, 15)
        except TimeoutError:
            lab = wait_for("a master", leader)
            self.missed.append(lab.sm_host)
            lab.sweep()
            lab = wait_for("a standby in sync after a sweep", synced)
        for vm in self.vms:
            vm.lab = lab
        return lab

    def wait_handover(self, lab):
        """A live master has heard of the higher one (master()), or finds it by a sweep."""
        try:
            self.wait_master(lab, 15)
        except TimeoutError:
            self.missed.append(lab.other.sm_host)
            lab.other.sweep()
            self.wait_master(lab)

    def wait_master(self, lab, seconds=WAIT_S):
        wait_for("the standby is master", lambda: self.is_master(lab), seconds)
        for vm in self.vms:
            vm.lab = lab

    # ---- what must be so ----

    def lids(self):
        """By name of the CA or switch: the LID that it has when nothing is under way."""
        lids = dict(self.first) | {name: f.own for name, f in self.vf.items()}
        return lids | {vm.at.name: vm.lid for vm in self.vms if vm.dynamic}

    def whole(self, lab, *states):
        """Everybody reaches everybody; each port has the LID that it has in one of these states, none twice."""
        v = lab.view()
        equal(v.broken_why(lab), [], "who is not reached")
        equal(len(set(v.lid.values())), len(v.lid), "number of different LIDs")
        wrong = {v.ports[i][1]: (lid, [s[v.ports[i][1]] for s in states]) for i, lid in v.lid.items()
                 if lid not in [s[v.ports[i][1]] for s in states]}
        equal(wrong, {}, "LIDs in a third place")
        return v

    def settled(self, lab):
        """The fabric is as the moves that were carried out want it; and LIDs that wait are reached."""
        v = self.whole(lab, self.lids())
        for vm in self.vms:
            if vm.dynamic:
                at = v.by_guid(vm.guid)
                lost = [v.ports[s][1] for s in v.cas() if s != at and v.walk(s, vm.at.own) != at]
                equal(lost, [], f"who does not reach LID {vm.at.own}, which waits at {vm.at.name}")
        known = {x["vguid"]: (x["vf"], x["lid"]) for x in lab.call("GET", "/v1/vguids")[1]["vguids"]}
        equal(known, {f"0x{vm.guid:016x}": (vm.at.name, vm.lid_at(vm.at)) for vm in self.vms}, "the registry")
        for vm in self.vms:
            if isinstance(vm, PortVM):
                equal(lab.shown(vm.guid), [(vm.at.port, vm.at.index)], f"entries that show {vm.guid:#x}")
        equal(lab.duplicates(), [], "GUIDs that two entries showed at once")

    def kill_in_batch(self, moves, step, back):
        """The master dies after so many SMPs of the batch ("store": after it); the hosts put the GUIDs back, or
        leave them and repeat the call. Then it is started as the standby."""
        old = self.master()
        new, before = old.other, self.lids()
        moves.show()
        self.die_file(old).write_text(f"{step}\n")
        status, r = moves.call(old)
        began = time.monotonic()
        equal(status // 100, 5, r)
        equal(old.osm.wait(WAIT_S), -signal.SIGKILL, "how OpenSM ended")
        if back:
            moves.show(back)
        self.wait_master(new)
        seconds = time.monotonic() - began
        self.took.append(seconds)
        self.whole(new, before, moves.after(before))
        moves.carry_out(new, back)
        if not back:
            moves.done()
        self.settled(new)
        self.start_opensm(old)
        mended = re.findall(r"becomes master: ([^;]*);", (new.dir / "opensm.log").read_text())
        return f"{seconds:.1f} s, {mended[-1]}"

    def t_errors(self):
        self.master()
        for lab in (self.a, self.b):
            equal(lab.smd.poll(), None, "ibvmig-sm's exit status")
            equal([x for x in lab.errors() if "ibvmig" in x and "FAULT" not in x or "uplicate" in x], [])
        return f"take-over within {max(self.took):.1f} s, {len(self.took)} times; standbys found by a sweep: " \
               f"{len(self.missed)}"

    def show_logs(self):
        for lab in (self.a, self.b):
            for name in ("sm.out", "opensm.log"):
                path = lab.dir / name
                if path.exists():
                    print(f"# --- {lab.sm_host} {name}")
                    lines = [x for x in path.read_text(errors="replace").splitlines() if re.match(r"\d|\w+ \d+ .* -> \S+ .*\w", x)]
                    print("\n".join("# " + x for x in lines[-40:]))
