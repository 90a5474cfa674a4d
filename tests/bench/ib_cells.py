# SPDX-License-Identifier: GPL-2.0-or-later
"""The cells of tests/bench/infiniband: a service, how peers are named, and a partition.

All cells of a group run at once between the same two VMs, and these VMs migrate for all of them. Beside them a third
VM sends into their QPs from partitions that are foreign to them."""
import json
import re
from dataclasses import dataclass, field

from demo import RUN
from labtest import WAIT_S, Failure, wait_for

MOVER, PEER, STRANGER = "g1", "g2", "g3"
VGUIDS = {MOVER: "0x00a1b2fffe000211", PEER: "0x00a1b2fffe000212", STRANGER: "0x00a1b2fffe000213"}
PKEY = "0x8001"
# Members beside those of PKEY, which `lab vm define` enters: a partition more, two with one limited end, and what only
# the stranger has. In the last but one it is limited as the mover is, and limited members do not talk to each other.
MEMBERS = {"0x0002": {MOVER: "full", PEER: "full"},
           "0x0003": {MOVER: "full", PEER: "limited"},
           "0x0004": {MOVER: "limited", PEER: "full", STRANGER: "limited"},
           "0x0005": {STRANGER: "full"}}
# {kind: (P_Keys of the mover's QPs, of the peer's)}
PARTITIONS = {"one": (["0x8001"], ["0x8001"]), "two": (["0x8001", "0x8002"], ["0x8001", "0x8002"]),
              "full to limited": (["0x8003"], ["0x0003"]), "limited to full": (["0x0004"], ["0x8004"])}
FOREIGN = ("0x8005", "0x0004")
RATE = 3  # messages a second of a QP: the guests have no KVM
STATUS_MS = 1000
FIRST_PORT = 18700
FIRST_QPN, QPNS = 16, 48  # rxe gives QPNs from 17 on
STRANGER_RATE = 40
ENDS_S = 120


@dataclass
class Program:
    """A program at either end. Its files in the guests are /tmp/NAME.json, .log and .pid."""
    name: str
    at_peer: str
    at_mover: str
    start: dict = field(default_factory=dict)  # {VM: counts before the first migration}


@dataclass
class Cell:
    """Some of the QPs of one program, or all of several. What is lost or doubled is told of a program as a whole."""
    service: str
    address: str
    partition: str
    programs: list
    qps: tuple = ()  # places in received_by_qp; (): all

    @property
    def name(self):
        return f"{self.service}, {self.address}, {self.partition}"


def connected(service, address, port):
    """RC and UC: one rdma_check with the QPs of all partitions."""
    name = re.sub(r"\W", "", service + address).lower()
    how = ("-u " if service == "UC" else "") + ("-L " if address == "by LID" else "")
    keys = [[k for kind in PARTITIONS.values() for k in kind[end]] for end in (0, 1)]

    def command(end):
        return f"rdma_check {how}-e -i {STATUS_MS} -q {len(keys[end])} -w 8 -r {RATE} -m 2048 -P {','.join(keys[end])} -p {port} -o /tmp/{name}.json"
    program, first = Program(name, command(1), f"{command(0)} @PEER"), 0
    for kind, (mine, _) in PARTITIONS.items():
        yield Cell(service, address, kind, [program], tuple(range(first, first + len(mine))))
        first += len(mine)


def separate(service, address, port):
    """UD and rdma_cm: a program for each QP."""
    how = "-L " if address == "by LID" else ""
    for kind, keys in PARTITIONS.items():
        programs = []
        for mine, theirs in zip(*keys):
            name = re.sub(r"\W", "", f"{service}{address}{port}").lower()
            if service == "UD":
                command = f"rdma_ud {how}-e -i {STATUS_MS} -r {2 * RATE} -P %s -p {port} -o /tmp/{name}.json"
                programs.append(Program(name, command % theirs, f"{command % mine} @PEER"))
            else:
                command = f"rdma_cm -G -P %s -p {port} -o /tmp/{name}.json"
                programs.append(Program(name, f"{command % theirs} -b @PEERGID",
                                        f"{command % mine} -w {1000 // RATE} -S /tmp/{name}.stop @PEERGID"))
            port += 1
        yield Cell(service, address, kind, programs)


def group(address):
    """The cells that run side by side. rdma_cm asks the SA for paths, and its packets have a GRH or not as these say."""
    if address == "by path":
        return list(separate("rdma_cm AF_IB", address, FIRST_PORT))
    return [*connected("RC", address, FIRST_PORT), *connected("UC", address, FIRST_PORT + 1),
            *separate("UD", address, FIRST_PORT + 2)]


class Group:
    """The programs of all cells of a group, while they run."""

    def __init__(self, lab, cells):
        self.lab, self.cells = lab, cells
        self.programs = list({p.name: p for c in cells for p in c.programs}.values())

    def fill(self, command):
        gid = ":".join(re.findall("....", VGUIDS[PEER][2:]))
        return command.replace("@PEERGID", f"fe80::{gid}").replace("@PEER", self.lab.vm_ip(PEER))

    def start(self):
        for vm, which in ((PEER, "at_peer"), (MOVER, "at_mover")):
            script = "".join(
                f"rm -f /tmp/{p.name}.json; {RUN} {self.fill(getattr(p, which))} >/tmp/{p.name}.log 2>&1 & echo $! >/tmp/{p.name}.pid; "
                for p in self.programs)
            self.lab.guest(vm, script)
            if vm == PEER:
                wait_for("the programs listen", WAIT_S, self.listen)
        self.progress("traffic starts")

    def listen(self):
        """rdma_cm says so; the others have a TCP port."""
        said = self.lab.guest(PEER, "netstat -ltn; grep -l listening /tmp/*.log", check=False).stdout
        ports = {p.name: re.search(r"-p (\d+)", p.at_peer)[1] for p in self.programs}
        return all(f":{port} " in said or f"/tmp/{name}.log" in said for name, port in ports.items())

    def counts(self, vm):
        """{program: what its file says}, read in one call: a call takes long on a busy machine."""
        out = self.lab.guest(vm, "cd /tmp; for f in " + " ".join(f"{p.name}.json" for p in self.programs)
                             + "; do echo \"$(cat $f 2>/dev/null || echo null)\"; done").stdout.splitlines()
        return {p.name: json.loads(line) for p, line in zip(self.programs, out)}

    def progress(self, what, more=4):
        """Until each program at either end has received that many messages more, on each of its QPs."""
        before = {vm: {n: c["received_least"] if c else 0 for n, c in self.counts(vm).items()} for vm in (MOVER, PEER)}

        def behind():
            return [f"{vm}: {n}" for vm in before for n, c in self.counts(vm).items()
                    if not c or c["received_least"] < before[vm][n] + more]
        left = []

        def done():
            left[:] = behind()
            return not left
        try:
            wait_for(what, WAIT_S, done, 0.5)
        except Failure as e:
            raise Failure(f"{e}; no progress: {', '.join(left)}") from None

    def gaps(self):
        """{program: {VM: number of gaps until now}}"""
        now = {vm: self.counts(vm) for vm in (MOVER, PEER)}
        return {p.name: {vm: now[vm][p.name]["gap_count"] for vm in now} for p in self.programs}

    def silences(self, before):
        """{program: longest gap at either end since then, ms}"""
        now, out = {vm: self.counts(vm) for vm in (MOVER, PEER)}, {}
        for p in self.programs:
            new = [g["ms"] for vm in now for c in [now[vm][p.name]]
                   for g in c["gaps"][len(c["gaps"]) - min(len(c["gaps"]), c["gap_count"] - before[p.name][vm]):]]
            out[p.name] = max(new, default=0.0)
        return out

    def stop(self):
        """{VM: {program: its final counts}}; those of a program that has not ended have "died"."""
        script = ("touch {0}.stop" if "-S" in p.at_mover.split() else "kill -TERM $(cat {0}.pid)" for p in self.programs)
        self.lab.guest(MOVER, "cd /tmp; " + "; ".join(s.format(p.name) for s, p in zip(script, self.programs)), check=False)
        ends = {}
        for vm in (MOVER, PEER):
            def all_ended(vm=vm):
                ends[vm] = self.counts(vm)
                return all(c and c["ended"] for c in ends[vm].values())
            try:
                wait_for(f"{vm}: programs end", ENDS_S, all_ended, 0.5)
            except Failure:
                for name, c in ends[vm].items():
                    if not c or not c["ended"]:
                        ends[vm][name] = dict(c or {}, died=self.lab.guest(vm, f"tail -c 300 /tmp/{name}.log", check=False).stdout)
        return ends
