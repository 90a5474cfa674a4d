# SPDX-License-Identifier: GPL-2.0-or-later
"""Random moves of VMs with shared-port addresses, for bench-moves: the vGUID goes from one port's GUID table
to another's, and no LFT may change."""
import collections
import random
import sys

sys.dont_write_bytecode = True
from fabric_nets import BigLab, Generated  # noqa: E402
from fabric_lab import Paths, wait_for  # noqa: E402
from shared_lab import SharedVF, SharedVM, shared  # noqa: E402

ENTRIES, IN_BLOCK = 12, 8  # VFs of a host, in two blocks of its table


class SharedRun:
    """As moves.Run, whose tools it is given: must, VMS, BATCH, SWEEP, FLAP, RESTART, HANG_S."""

    def __init__(self, spec, engine, seed, tools):
        self.lab = shared(BigLab)("bench_moves", Generated(spec))
        self.lab.routing = engine
        self.rng, self.done, self.t = random.Random(seed), collections.Counter(), tools

    def start(self):
        self.lab.start(addresses="shared-port")
        self.lab.wait_ready(self.t.HANG_S)
        self.view = v = self.lab.view()
        self.source = next(v.guid[i] for i in v.cas() if v.ports[i][1] == "spare")
        hosts = [n for n in v.cas_by_name() if n not in ("smhost", "spare", self.lab.tool_host)]
        free = [SharedVF(v, n.removesuffix("-pf"), i) for n in hosts for i in range(1, ENTRIES + 1)]
        self.rng.shuffle(free)
        self.vms = [SharedVM(self.lab, n, free.pop()) for n in range(self.t.VMS)]
        self.free = free
        for vm in self.vms:
            answer = vm.bind()
            self.t.must(answer == (200, {"lid": vm.at.lid}), answer)
        self.look()

    def look(self):
        """Every vGUID is in the entry of its VF and in no other, and the path service says so; now and
        then OpenSM's SA is asked, too."""
        tables = self.lab.tables()
        shown = collections.defaultdict(list)
        for port, t in tables.items():
            for i, g in enumerate(t):
                shown[g].append((port, i))
        service = Paths(self.lab.paths_sock)
        records = service.ask([(self.source, vm.guid) for vm in self.vms])
        service.close()
        for vm, r in zip(self.vms, records):
            self.t.must(shown[vm.guid] == [(vm.at.port, vm.at.index)], f"{vm.guid:#x} is shown by {shown[vm.guid]}")
            self.t.must(r and r["dlid"] == vm.at.lid, f"the path to {vm.guid:#x} is {r}, its LID {vm.at.lid}")
        vm = self.rng.choice(self.vms)
        lid = self.lab.sa_lid(self.source, vm.guid)
        self.t.must(lid == vm.at.lid, f"the SA says LID {lid} for {vm.guid:#x}, not {vm.at.lid}")
        self.t.must(not self.lab.duplicates(), self.lab.duplicates()[:3])
        self.done["entries looked at"] += sum(len(t) for t in tables.values())

    def move(self, count):
        who, to = self.rng.sample(self.vms, count), self.rng.sample(self.free, count)
        least = len({(vm.at.port, vm.at.index // IN_BLOCK) for vm in who}) + len({(f.port, f.index // IN_BLOCK) for f in to})
        status, r = self.lab.call("POST", "/v1/moves", {"moves": [vm.body(f) for vm, f in zip(who, to)]})
        self.t.must(status == 200 and r["verified"], f"{status} {r}")
        others = sum(vm.at.port != f.port for vm, f in zip(who, to))
        got = (r["lft_smps"], r["port_info_smps"], r["guid_smps"], r["repath_notices"])
        self.t.must(got == (0, 0, least, others), f"LFT, PortInfo, GUIDInfo SMPs, notices: {got}, not {(0, 0, least, others)}")
        self.free = [f for f in self.free if f not in to] + [vm.at for vm in who]
        for vm, f in zip(who, to):
            vm.at = f
        self.done.update(moves=count, batches=1, smps=r["guid_smps"], single=2 * count, told=others)
        self.look()

    def quiet_sweep(self):
        before = self.lab.counters()["lft_changes"]
        self.lab.sweep()
        self.done["quiet sweeps"] += 1
        written = self.lab.counters()["lft_changes"] - before
        self.t.must(not written, f"a quiet sweep has written {written} LFT blocks")
        self.look()

    def known_again(self):
        for vm in self.vms:
            wait_for(f"OpenSM is told where {vm.guid:#x} is",
                     lambda vm=vm: self.lab.sa_lid(self.source, vm.guid) == vm.at.lid, self.t.HANG_S)
        self.look()

    def flap(self):
        """A host's link goes down and comes back."""
        at = self.rng.choice(self.vms).at.port
        leaf, port = self.view.links[(self.view.by_guid(at), 1)]
        for command in ("Unlink", "ReLink"):
            self.lab.change(f'{command} "{leaf}"[{port}]')  # ibsim knows generated switches by this
        self.done["flaps"] += 1
        self.known_again()

    def restart(self):
        self.lab.end(self.lab.osm)
        self.lab.start_opensm()
        self.lab.wait_ready(self.t.HANG_S)
        self.done["restarts"] += 1
        self.known_again()

    def all(self, moves):
        while self.done["moves"] < moves:
            self.move(self.rng.randint(1, self.t.BATCH))
            x = self.rng.random()
            if x < self.t.RESTART:
                self.restart()
            elif x < self.t.RESTART + self.t.FLAP:
                self.flap()
            elif x < self.t.RESTART + self.t.FLAP + self.t.SWEEP:
                self.quiet_sweep()
        self.quiet_sweep()
        ours = [x for x in self.lab.errors() if "ibvmig" in x or "uplicate" in x]
        self.t.must(not ours, ours[:3])
        self.done["errors of OpenSM"] = len(self.lab.errors())
        self.done["pairs"] = 0  # LFTs do not change: none is walked
        self.used = self.lab.status()["sm"].get("routing_engine")
