# SPDX-License-Identifier: GPL-2.0-or-later
"""Nets of any size for the fabric benches: made by ibvmig-vswitch, read by umad_lfts, and a model of
their LFTs that says the least number of SMPs of a batch."""
import collections
import random
import re
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(TOP / "tests/integration/fabric"))
from fabric_lab import BUILD, NO_PATH, VM, Generated, Lab, VF, View  # noqa: E402

BLOCK = 64


class Table(bytearray):
    """A switch's LFT."""

    def get(self, lid, default=NO_PATH):
        return self[lid] if lid < len(self) and self[lid] != NO_PATH else default


class BigView(View):
    """As View, with the LFTs read by one program in a pipeline and kept as bytes."""

    def read_lfts(self, lab, _text):
        self.blocks = max(self.lid.values()) // BLOCK + 1
        routes = lab.dir / "routes"
        order = self.routes(self.cas_by_name()[lab.tool_host])
        routes.write_text("".join(f"{self.blocks} {' '.join(map(str, path))}\n" for _, path in order))
        lab.tool(BUILD / "tests/umad_lfts", routes, "read", lab.dir / "lfts")
        data = (lab.dir / "lfts").read_bytes()
        size = self.blocks * BLOCK
        self.lft = {s: Table(data[i * size:(i + 1) * size]) for i, (s, _) in enumerate(order)}

    def cas_by_name(self):
        return {n: i for i, (k, n) in self.ports.items() if k == "Ca"}

    def routes(self, source):
        """(switch, ports of the directed route) of all switches, breadth first."""
        near = collections.defaultdict(list)
        for (node, port), (peer, _) in self.links.items():
            if node[0] == "S" and peer[0] == "S":
                near[node].append((port, peer))
        first = self.links[(source, 1)][0]
        path, queue = {first: [1]}, collections.deque([first])
        while queue:
            s = queue.popleft()
            for port, peer in near[s]:
                if peer not in path:
                    path[peer] = path[s] + [port]
                    queue.append(peer)
        return list(path.items())

    def tables(self):
        return {s: Table(t) for s, t in self.lft.items()}


class BigLab(Lab):
    tool_host = "hv0-pf"

    def __init__(self, name, net, **conf):
        super().__init__(name, net)
        self.opensm_conf = conf
        if len(re.findall(r"^(?:Ca|Switch)", net.text(), re.M)) > 1500:
            self.sim_args, self.sim_seconds = ["-N", "20000", "-S", "2000", "-P", "100000"], 300.0

    def view(self):
        return BigView(self)

    def status(self):
        """OpenSM answers nobody while it computes routes, which takes long on a large net."""
        for tries_left in reversed(range(10)):
            try:
                return super().status()
            except TimeoutError:
                if not tries_left:
                    raise

    def tool(self, *argv, seconds=300, **kw):
        return super().tool(*argv, seconds=seconds, **kw) if argv[0] != "dump_fts" else ""


def exchange(tables, pairs):
    """Changes the model; the (switch, block) that differ afterwards."""
    touched = set()
    for s, t in tables.items():
        for a, b in pairs:
            if t[a] != t[b]:
                touched |= {(s, a // BLOCK), (s, b // BLOCK)}
                t[a], t[b] = t[b], t[a]
    return touched


def one_by_one(tables, pairs):
    n = 0
    for a, b in pairs:
        n += len({a // BLOCK, b // BLOCK}) * sum(t[a] != t[b] for t in tables.values())
    return n


class Fleet:
    """VMs on the VFs of a lab, and the model of its LFTs."""

    def __init__(self, lab, view, rng, vms=64, most=None):
        self.lab, self.rng, self.tables = lab, rng, view.tables()
        names = [n for k, n in view.ports.values() if k == "Ca" and n not in ("smhost", "spare", lab.tool_host)]
        if any("-vf" in n for n in names):
            names = [n for n in names if "-vf" in n]
        rng.shuffle(names)
        vf = [VF(lab, view, n, view.cas_by_name()[n]) for n in names[:most or len(names)]]
        self.lid = {f.name: f.lid for f in vf}
        vms = min(vms, len(vf) // 2)
        self.vms, self.free = [VM(lab, n, f) for n, f in enumerate(vf[:vms])], vf[vms:]

    def bind(self):
        for vm in self.vms:
            lid = vm.lid
            status, r = vm.bind()
            if (status, vm.lid) != (200, lid):
                raise AssertionError(f"{status} {r}")

    def change(self, who, to):
        """Changes the model; the (switch, block) that differ afterwards, and the SMPs one by one."""
        pairs = [(vm.lid, self.lid[f.name]) for vm, f in zip(who, to)]
        single = one_by_one(self.tables, pairs) if len(who) > 1 else None
        return exchange(self.tables, pairs), single

    def move(self, k, **more):
        """k moves in one call; what the call says, with the model's `single`: the SMPs one by one. more: fields of each."""
        who, to = self.rng.sample(self.vms, k), self.rng.sample(self.free, k)
        least, single = self.change(who, to)
        for vm, f in zip(who, to):
            vm.at.set_guid(vm.at.parked)
            f.set_guid(vm.guid)
        status, r = self.lab.call("POST", "/v1/moves", {"moves": [vm.body(f) | more for vm, f in zip(who, to)]})
        if status != 200 or not r["verified"]:
            raise AssertionError(f"{status} {r}")
        smps = min(r["lft_smps"], len(least)) if more.get("senders_alive") else r["lft_smps"]  # a block may go in two waves
        if (smps, r["switches_updated"]) != (len(least), len({s for s, _ in least})):
            raise AssertionError(f"{r['lft_smps']} SMPs to {r['switches_updated']} switches; {len(least)} were needed")
        for vm, f in zip(who, to):
            self.free[self.free.index(f)] = vm.at
            self.arrive(vm, f)
            vm.at = f
        return {**r, "single": r["lft_smps"] if single is None else single}

    def arrive(self, vm, f):
        self.lid[vm.at.name], self.lid[f.name] = self.lid[f.name], vm.lid

    def again(self, view):
        """Routes may be others now: the model is what the switches hold."""
        self.tables = view.tables()
        self.lid = {n: view.lid[i] for n, i in view.cas_by_name().items()}

    def wrong(self, view):
        """How many entries of the switches are not as in the model."""
        return sum(x != y for s, t in view.lft.items() for x, y in zip(t, self.tables[s])
                   ) if view.tables() != self.tables else 0


class DynamicFleet(Fleet):
    """VMs with LIDs of their own, whose entries are copies of those of the PF of the host where they are."""

    def bind(self):
        known = set(self.lid.values())
        for vm in self.vms:
            status, r = vm.bind()
            if status != 200 or vm.lid in known:
                raise AssertionError(f"{status} {r}")
            known.add(vm.lid)
        view = self.lab.view()
        self.link = {n: next(x for x, (peer, _) in view.links.items() if peer == i)
                     for n, i in view.cas_by_name().items()}
        pf = {}  # a vSwitch's PF: the lowest port of those with CAs leads to it
        for (s, _), (peer, _) in sorted(view.links.items()):
            if view.ports[peer][0] == "Ca":
                pf.setdefault(s, view.lid[peer])
        self.pf = {n: pf[s] for n, (s, _) in self.link.items()}
        self.again(view)

    def copy(self, vm, f):
        """The VM's LID gets the entries of its place; (switch, block) that differ afterwards."""
        touched, (own, port) = set(), self.link[f.name]
        for s, t in self.tables.items():
            entry = port if s == own else t[self.pf[f.name]]
            if t[vm.lid] != entry:
                touched.add((s, vm.lid // BLOCK))
                t[vm.lid] = entry
        return touched

    def change(self, who, to):
        each = [self.copy(vm, f) for vm, f in zip(who, to)]
        return set().union(*each), sum(map(len, each))

    def arrive(self, vm, f):
        """LIDs stay: the VM's goes along, the VF's waits."""

    def again(self, view):
        self.tables, cas = view.tables(), view.cas_by_name()
        for vm in self.vms:
            at = cas[vm.at.name]
            if self.copy(vm, vm.at):
                raise AssertionError(f"entries of LID {vm.lid} are not those of {vm.at.host}'s PF")
            lost = [s for s in view.cas() if s != at and view.walk(s, vm.at.lid) != at]
            if lost:
                raise AssertionError(f"{len(lost)} CAs do not reach LID {vm.at.lid}, which waits at {vm.at.name}")


def cpu_us(process):
    return sum(int(p.read_text().split()[0]) for p in Path(f"/proc/{process.pid}/task").glob("*/schedstat")) / 1e3


class BuildLab(BigLab):
    """With the programs and the plugin of one build."""

    def __init__(self, name, net, build, **conf):
        super().__init__(name, net, **conf)
        self.build, self.rows = Path(build).resolve(), []

    def begin(self):
        self.start()
        self.wait_ready(1200)
        self.fleet = Fleet(self, self.view(), random.Random(1), most=400)
        self.fleet.bind()

    def move(self, k, **more):
        processes = {"osm_cpu_us": self.osm, "smd_cpu_us": self.smd, "sim_cpu_us": self.sim}
        before = {key: cpu_us(p) for key, p in processes.items()}
        row = self.fleet.move(k, **more)
        self.rows.append(row | {key: cpu_us(p) - before[key] for key, p in processes.items()})
        return self.rows[-1]
