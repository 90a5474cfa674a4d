# SPDX-License-Identifier: GPL-2.0-or-later
"""A simulated subnet (ibsim, OpenSM with our plugin, ibvmig-sm) for the fabric_* tests.

Everything lives below one scratch directory in build/; nothing of it outlives Lab.stop(). The fabric
is looked at with independent tools: ibnetdiscover, dump_fts, smpquery.
"""
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ.get("BUILD", ROOT / "build")).resolve()
sys.path.insert(0, str(ROOT / "tests/lab"))
from iblab.simulator import IBSIM, UMAD2SIM  # noqa: E402

NO_PATH = 255
WAIT_S = 60.0  # only a fault takes so long
# Programs of infiniband-diags. They wait for one second, and retransmit then: on a loaded machine ibsim
# answers later.
DIAGS = ("dump_fts", "ibnetdiscover", "perfquery", "saquery", "smpdump", "smpquery")


def wait_for(what, check, seconds=WAIT_S, every_s=0.02):
    """Polls check() until it is true; the value of check(), or TimeoutError that names what."""
    end = time.monotonic() + seconds
    while True:
        value = check()
        if value:
            return value
        if time.monotonic() > end:
            raise TimeoutError(f"not within {seconds} s: {what}")
        time.sleep(every_s)


class Heard:
    """Messages that played hosts were sent."""

    def __init__(self):
        self.here, self.earlier = [], []

    def add(self, message):
        self.here.append(message)

    def forget(self):
        """Forgets what was heard until now, and does not look at it again when it comes late. A host that has
        acknowledged the second attempt may hear the first one after that."""
        self.earlier, self.here = self.here, []

    def news(self):
        return [m for m in self.here if m not in self.earlier]


class Net:
    """Hypervisors as small switches (vSwitch) with a PF and VFs, on leaves and spines."""

    def __init__(self, hypervisors=3, vfs=4, leaves=2, spines=2, slow=(), sms=1):
        self.switch, self.hca = {}, []
        self.slow = set(slow)
        for i in range(leaves):
            self.switch[f"leaf{i}"] = (16, {})
        for i in range(spines):
            self.switch[f"spine{i}"] = (16, {})
        for i in range(leaves):
            for s in range(spines):
                self.link(f"leaf{i}", 10 + s, f"spine{s}", 1 + i)
        # the first two hypervisors share leaf0, so that a move can stay on one leaf
        for n in range(hypervisors):
            name, leaf = f"hv{n}-vsw", f"leaf{0 if n < 2 else n % leaves if leaves > 2 else 1}"
            self.switch[name] = (2 + vfs, {})
            self.link(leaf, 1 + n, name, 1)
            for k in range(vfs + 1):
                self.attach(f"hv{n}-pf" if k == 0 else f"hv{n}-vf{k}", name, 2 + k)
        self.attach("smhost", "leaf0", 8)
        self.attach("spare", f"leaf{leaves - 1}", 9)
        if sms > 1:  # a second OpenSM and what is beside it
            self.attach("smhost2", f"leaf{leaves - 1}", 12)
            self.attach("spare2", "leaf0", 9 if leaves > 1 else 13)

    def link(self, a, pa, b, pb):
        self.switch[a][1][pa] = (b, pb)
        self.switch[b][1][pb] = (a, pa)

    def attach(self, hca, sw, port):
        self.switch[sw][1][port] = (hca, 1)
        self.hca.append((hca, sw, port))

    def roots(self):
        """Node GUIDs of the spines: ibsim numbers the switches in the order of the file."""
        return [0x200000 + i for i, n in enumerate(self.switch) if n.startswith("spine")]

    def text(self):
        def width(a, b):
            return "1xSDR" if a in self.slow or b in self.slow else "4xEDR"

        out = []
        for name, sw, port in self.hca[:1]:
            out.append(f'Hca 1 "{name}"\n[1] "{sw}"[{port}] # lid 0 {width(name, sw)}\n')
        for name, (ports, links) in self.switch.items():
            lines = [f'[{p}] "{peer}"[{pp}] # lid 0 {width(name, peer)}'
                     for p, (peer, pp) in sorted(links.items())]
            out.append(f'Switch {ports} "{name}"\n' + "\n".join(lines) + "\n")
        for name, sw, port in self.hca[1:]:
            out.append(f'Hca 1 "{name}"\n[1] "{sw}"[{port}] # lid 0 {width(name, sw)}\n')
        return "\n".join(out)


class Generated:
    """A net that ibvmig-vswitch generates; its last two PFs are the hosts that Lab needs."""

    def __init__(self, spec):
        r = subprocess.run([BUILD / "bin/ibvmig-vswitch", "gen", "--net", spec, "--topology", "/dev/stdout"],
                           check=True, capture_output=True, text=True)
        name = dict(re.findall(r'^Ca.*"(H-[0-9a-f]+)"\t\t# "([^"]+)"', r.stdout, re.M))
        pfs = [ident for ident, desc in name.items() if desc.endswith("-pf")]
        text = r.stdout[r.stdout.index("Ca\t"):]
        for ident, new in zip(pfs[-2:], ("spare", "smhost")):  # and so they are called in the fabric
            text = text.replace(f'"{name[ident]}"', f'"{new}"')
            name[ident] = new
        self.topology = re.sub(r'"(H-[0-9a-f]+)"', lambda m: f'"{name[m[1]]}"', text)
        self.topology = re.sub(r"lid \d+", "lid 0", self.topology)

    def roots(self):
        """Node GUIDs of the switches of the highest level; without levels, of the first switch."""
        level = {int(g, 16): int(n) for g, n in re.findall(r'"S-([0-9a-f]+)"\t\t# "s(\d+)-', self.topology)}
        return [g for g, n in level.items() if n == max(level.values())] or [0x200000]

    def text(self):
        return self.topology


class UnixHTTP(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=2 * WAIT_S)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Paths:
    """A client of ibvmig-sm's path record service (docs/wire.md, "Path records")."""

    def __init__(self, path):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(2 * WAIT_S)
        self.sock.connect(path)
        self.serial = 0

    def close(self):
        self.sock.close()

    def read(self, n):
        data = b""
        while len(data) < n:
            more = self.sock.recv(n - len(data))
            if not more:
                raise ConnectionError("closed by the service")
            data += more
        return data

    @staticmethod
    def question(serial, pairs, prefix=0xfe80000000000000, magic=0x69627071, count=None):
        head = struct.pack(">IHHIHH", magic, 1, len(pairs) if count is None else count, serial, 0, 0)
        return head + b"".join(struct.pack(">QQQQH6x", prefix, s, prefix, d, *(k or [0]))
                               for s, d, *k in pairs)

    def ask(self, pairs, **more):
        """pairs: (source GUID, destination GUID[, pkey]); a list of dicts, None for no path."""
        self.serial += 1
        self.sock.sendall(self.question(self.serial, pairs, **more))
        magic, version, count, serial, flags, _ = struct.unpack(">IHHIHH", self.read(16))
        if (magic, version, count, serial) != (0x69627071, 1, len(pairs), self.serial):
            raise AssertionError(f"head {magic:x} {version} {count} {serial}")
        self.cacheable = bool(flags & 1)
        out = []
        for _ in pairs:
            status, sl, mtu, rate, dlid, slid, pkey, _ = struct.unpack(">BBBBHHHH", self.read(12))
            if status > 1:
                raise TimeoutError("the service cannot tell now")
            out.append(None if status else {"sl": sl, "mtu": mtu, "rate": rate, "dlid": dlid,
                                            "slid": slid, "pkey": pkey})
        return out


class View:
    """The fabric as independent tools see it: nodes, links, LIDs, LFTs."""

    def __init__(self, lab):
        self.ports, self.links, self.lid, self.guid, self.lft = {}, {}, {}, {}, {}
        self.lmc = {}  # a CA port's LIDs are 2^lmc, from lid on
        self.read_topology(lab.tool("ibnetdiscover"))
        self.read_lfts(lab, lab.tool("dump_fts"))

    def read_topology(self, text):
        kind = name = ident = None
        for line in text.splitlines():
            m = re.match(r'(Switch|Ca)\s+(\d+) "([^"]+)"\s+# "([^"]+)"(.*)', line)
            if m:
                kind, ident, name = m[1], m[3], m[4]
                self.ports[ident] = (kind, name)
                if kind == "Switch":
                    self.lid[ident] = int(re.search(r"lid (\d+)", m[5])[1])
                continue
            m = re.match(r'\[(\d+)\](?:\(([0-9a-f]+)\))?\s+"([^"]+)"\[(\d+)\](.*)', line)
            if m and kind:
                self.links[(ident, int(m[1]))] = (m[3], int(m[4]))
                if kind == "Ca":
                    lid = re.search(r"# lid (\d+) lmc (\d)", m[5])
                    self.lid[ident], self.lmc[ident] = int(lid[1]), int(lid[2])
                    self.guid[ident] = int(m[2], 16)

    def read_lfts(self, lab, text):
        table = None
        for line in text.splitlines():
            m = re.search(r"Unicast lids \[0x0-0x([0-9a-f]+)\] of switch .*[Ll]id \d+.*guid (0x[0-9a-f]+)",
                          line)
            if m:
                ident, top = f"S-{int(m[2], 16):016x}", int(m[1], 16)
                table = self.lft.setdefault(ident, {})
                if top % 64 == 0:  # dump_fts leaves out the last LID of such a table
                    self.read_entry(lab, ident, top)
                continue
            m = re.match(r"0x([0-9a-f]+) (\d+)", line)
            if m and table is not None:
                table[int(m[1], 16)] = int(m[2])

    def read_entry(self, lab, ident, lid):
        block = lab.tool("smpdump", str(self.lid[ident]), "0x19", str(lid // 64))
        port = bytes.fromhex("".join(block.split()))[lid % 64]
        if port != NO_PATH:
            self.lft[ident][lid] = port

    def lids(self, ident):
        return range(self.lid[ident], self.lid[ident] + (1 << self.lmc.get(ident, 0)))

    def top(self):
        """The highest LID that a port has."""
        return max(lid for ident in self.lid for lid in self.lids(ident))

    def cas(self):
        return [i for i, (kind, _) in self.ports.items() if kind == "Ca"]

    def by_guid(self, guid):
        return next((i for i, g in self.guid.items() if g == guid), None)

    def walk(self, source, lid):
        """The CA or switch at which a packet from this CA to lid ends, or None."""
        node, hops = self.links[(source, 1)][0], 0
        while self.ports[node][0] == "Switch":
            port = self.lft.get(node, {}).get(lid, NO_PATH)
            if port == 0:
                return node
            hops += 1
            if (node, port) not in self.links or hops > len(self.ports):
                return None
            node = self.links[(node, port)][0]
        return node

    def broken(self):
        """(source, destination) names of all pairs of CAs that do not reach each other's LIDs."""
        return [(self.ports[a][1], self.ports[b][1]) for a in self.cas() for b in self.cas()
                if a != b and any(self.walk(a, lid) != b for lid in self.lids(b))]

    def broken_why(self, lab):
        """Returns a line for each CA that somebody does not reach: what it shows, what the switches
        hold, what OpenSM's file says."""
        bad = {}
        for source, destination in self.broken():
            bad.setdefault(destination, []).append(source)
        if not bad:
            return []
        known = lab.lids_file().split("\n")
        out = []
        for a in self.cas():
            name, lid = self.ports[a][1], self.lid[a]
            if name not in bad:
                continue
            entries = {self.ports[s][1]: t.get(lid) for s, t in self.lft.items()}
            guid = f"0x{self.guid[a]:016x}"
            at = self.links.get((a, 1))
            out.append(f"{name} (GUID {guid}, LID {lid}, at {at and (self.ports[at[0]][1], at[1])}) "
                       f"from {len(bad[name])} CAs; LID {lid}: {entries}; same LID: "
                       f"{[self.ports[b][1] for b in self.cas() if b != a and self.lid[b] == lid]}; "
                       f"file: {[x for x in known if guid in x or f'{lid:#06x}' in x]}")
        return out

    def tables(self):
        return {s: dict(t) for s, t in self.lft.items()}

    def not_copied(self, lid, vf, pf):
        """(switch, LID) of a VF, from this one on, that has not the entry of the PF's, or at the VF's own
        switch its port."""
        at = next((n, p) for (n, p), (peer, _) in self.links.items() if peer == vf)
        return {(s, lid + k): (t.get(lid + k), t.get(like)) for s, t in self.lft.items()
                for k, like in enumerate(self.lids(pf))
                if t.get(lid + k) != (at[1] if s == at[0] else t.get(like))}


class Lab:
    def __init__(self, name, net=None):
        self.dir = BUILD / "tests" / f"{name}.{os.getpid()}"
        self.net = net or Net()
        self.build = BUILD  # with the plugin and ibvmig-sm
        self.routing = os.environ.get("ROUTING", "minhop")
        self.partitions = None  # text of OpenSM's partition file
        self.opensm_conf = {}  # more of OpenSM's configuration file
        self.plugin = True  # OpenSM has ours
        self.sm_host, self.smd_host = "smhost", "spare"  # the hosts where OpenSM and ibvmig-sm run
        self.preload = UMAD2SIM  # the stand-in for the kernel in all programs on the fabric
        self.sim_args, self.sim_seconds = [], WAIT_S  # ibsim's, for nets beyond its defaults
        self.processes = []
        self.osm_killed = False
        self.console_lock, self.commands = threading.Lock(), 0
        self.sim = self.osm = self.smd = None
        self.sock = str(self.dir / "sm.sock")
        self.paths_sock = str(self.dir / "p.sock")
        self.plugin_sock = str(self.dir / "plugin.sock")
        if len(self.plugin_sock) > 100:  # sun_path
            self.plugin_sock = os.path.relpath(self.plugin_sock, self.dir)
        self.sim_name = f"ibvmig-{name}-{os.getpid()}"

    def env(self, host=None, **more):
        e = dict(os.environ, IBSIM_SOCKNAME=self.sim_name, **more)
        if host:
            e.update(SIM_HOST=host, LD_PRELOAD=self.preload)
        return e

    def spawn(self, argv, out, **kw):
        with open(self.dir / out, "ab") as f:
            p = subprocess.Popen(argv, cwd=self.dir, stdout=f, stderr=f, **kw)
        self.processes.append(p)
        return p

    def make_dir(self):
        shutil.rmtree(self.dir, ignore_errors=True)
        (self.dir / "cache").mkdir(parents=True)

    def start_sim(self):
        self.make_dir()
        self.commands = 0
        (self.dir / "net").write_text(self.net.text())
        self.sim = self.spawn([IBSIM, *self.sim_args, "-s", "net"], "ibsim.out", env=self.env(),
                              stdin=subprocess.PIPE)
        wait_for("ibsim's first prompt", self.prompts, self.sim_seconds)

    def start(self, **conf):
        self.start_sim()
        self.start_opensm()
        self.start_sm(**conf)

    def start_opensm(self, fault=""):
        partitions = "/nonexistent"
        if self.partitions:
            partitions = self.dir / "partitions.conf"
            partitions.write_text(self.partitions)
        roots = getattr(self.net, "roots", list)()
        (self.dir / "roots").write_text("".join(f"0x{g:016x}\n" for g in roots))
        (self.dir / "opensm.conf").write_text(
            ("event_plugin_name ibvmigsm\n"
             f"event_plugin_options ibvmig-socket={self.plugin_sock}\n" if self.plugin else "") +
            f"routing_engine {self.routing}\n"
            + (f"root_guid_file {self.dir}/roots\n" if roots and self.routing in ("updn", "dnup") else "") +
            f"dump_files_dir {self.dir}/\n"
            f"partition_config_file {partitions}\nqos_policy_file /nonexistent\n"
            "log_flags 0x03\nforce_log_flush TRUE\n"
            # no sweep by the clock: its SMPs over a link that a test has just cut are errors in the log
            "sweep_interval 0\n"
            + "".join(f"{k} {v}\n" for k, v in self.opensm_conf.items()))
        env = self.env(self.sm_host, IBVMIG_FAULT=fault, LD_LIBRARY_PATH=str(self.build / "lib"),
                       OSM_CACHE_DIR=str(self.dir / "cache"), OSM_TMP_DIR=str(self.dir))
        self.osm = self.spawn(["opensm", "-F", "opensm.conf", "-f", "opensm.log"], "opensm.out",
                              env=env, stdin=subprocess.DEVNULL)

    def start_sm(self, fault="", **conf):
        lines = [f"listen = {self.sock}", f"plugin-socket = {self.plugin_sock}",
                 f"paths-listen = {self.paths_sock}",
                 f"state-dir = {self.dir}/state"]
        lines += [f"{k.replace('_', '-')} = {v}" for k, v in conf.items()]
        (self.dir / "sm.conf").write_text("\n".join(lines) + "\n")
        self.smd = self.spawn([str(self.build / "bin/ibvmig-sm"), "-c", "sm.conf"], "sm.out",
                              env=self.env(self.smd_host, IBVMIG_FAULT=fault), stdin=subprocess.DEVNULL)
        wait_for("ibvmig-sm", self.sm_listens)

    def sm_listens(self):
        try:
            return self.status()
        except OSError:
            if self.smd.poll() is not None:
                raise RuntimeError(f"ibvmig-sm has ended: {self.smd.poll()}")
            return None

    def wait_ready(self, seconds=WAIT_S):
        return wait_for("OpenSM ready",
                        lambda: (s := self.status()["sm"]).get("ready") and not s["sweeping"], seconds)

    def end(self, p, sig=signal.SIGTERM):
        self.osm_killed = self.osm_killed or (p is self.osm and sig == signal.SIGKILL)
        if p and p.poll() is None:
            p.send_signal(sig)
            try:
                p.wait(WAIT_S)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()
        if p in self.processes:
            self.processes.remove(p)

    def stop_sm(self, sig=signal.SIGTERM):
        self.end(self.smd, sig)
        for path in (self.sock, self.paths_sock):
            if os.path.exists(path):
                os.unlink(path)

    def stop(self, keep=False):
        for p in reversed(list(self.processes)):
            self.end(p)
        if not keep:
            shutil.rmtree(self.dir, ignore_errors=True)

    def console(self, command):
        """ibsim has done it when this returns: it asks for the next command then."""
        with self.console_lock:
            self.sim.stdin.write(command.encode() + b"\n")
            self.sim.stdin.flush()
            self.commands += 1
            wait_for(f"ibsim's prompt after {command}", lambda: self.prompts() > self.commands, every_s=0.001)

    def prompts(self):
        return (self.dir / "ibsim.out").read_bytes().count(b"sim> ")

    def tool(self, *argv, host="hv0-pf", check=True, seconds=2 * WAIT_S):
        """Returns the output of a diagnostic program. These programs give up, or leave something out
        and end with 0, or wait for ever, when one answer is lost or late. So, with check, they are
        run up to three times."""
        if argv[0] in DIAGS:
            argv = (argv[0], "--timeout", "5000", *argv[1:])
        for tries_left in (2, 1, 0):
            try:
                r = subprocess.run(argv, cwd=self.dir, env=self.env(host), capture_output=True,
                                   text=True, timeout=seconds)
            except subprocess.TimeoutExpired:
                if check and tries_left:
                    continue
                raise
            lost = "timed out" in r.stderr or "madrpc failed" in r.stderr
            if not (check and lost and tries_left):
                break
        if check and (r.returncode or lost):
            raise RuntimeError(f"{argv}: {r.stdout[-500:]}{r.stderr}")
        return r.stdout

    def view(self):
        return View(self)

    def call(self, method, path, body=None):
        c = UnixHTTP(self.sock)
        c.request(method, path, json.dumps(body) if body is not None else None)
        r = c.getresponse()
        answer = json.loads(r.read())
        c.close()
        return r.status, answer

    def status_as_told(self):
        """While OpenSM does not answer at once this is what it said before, sm.age_ms ago."""
        return self.call("GET", "/v1/status")[1]

    def status(self):
        """Returns the status of now, not that from before the caller's last request."""
        return wait_for("a status of now", lambda: not (s := self.status_as_told())["sm"].get("age_ms") and s)

    def counters(self):
        return self.status()["counters"]

    def sweep(self):
        """Waits for a heavy sweep that begins from now on, to its end. A SIGHUP asks for it where none runs,
        and again after a second without one. OpenSM forgets a SIGHUP that comes while a sweep starts, and
        begins anew with one that comes while it discovers, without counting that as another sweep."""
        before, again = self.counters()["heavy_sweeps"], 0

        def swept():
            nonlocal again
            s, now = self.status(), time.monotonic()
            if s["sm"]["sweeping"]:
                again = now + 1
            elif s["counters"]["heavy_sweeps"] > before:
                return True
            elif now >= again:
                self.osm.send_signal(signal.SIGHUP)
                again = now + 1
            return False
        wait_for("a heavy sweep", swept, 5 * WAIT_S)

    def change(self, command):
        """A change of links on ibsim's console, to the end of a heavy sweep that knows of it."""
        self.console(command)
        self.sweep()

    def subnet_up(self):
        """OpenSM has ended a sweep: before that the switches have no LFTs, and smpdump by LID fails."""
        path = self.dir / "opensm.log"
        return path.exists() and "SUBNET UP" in path.read_text(errors="replace")

    def lids_file_now(self):
        """Text of OpenSM's file of LIDs by GUID; None: OpenSM just replaces it, or has not written it yet."""
        try:
            return (self.dir / "cache/guid2lid").read_text()
        except FileNotFoundError:
            return None

    def lids_file(self):
        return wait_for("OpenSM's file of LIDs", self.lids_file_now)

    def known_lids(self):
        """LIDs by GUID, of OpenSM's file as far as it is there."""
        text = self.lids_file_now() or ""
        return {int(g, 16): int(lid, 16) for g, lid in re.findall(r"^(0x\w+) (0x\w+) ", text, re.M)}

    def remember(self, lids):
        """LIDs by GUID into that file, for the next OpenSM."""
        lids = self.known_lids() | lids
        (self.dir / "cache/guid2lid").write_text("".join(f"0x{g:016x} 0x{lid:04x} 0x{lid:04x}\n\n" for g, lid in lids.items()))

    def errors(self):
        """Lines of OpenSM's log; not what it says of its file of neighbours after it was killed, perhaps
        before that was written."""
        return [x for x in (self.dir / "opensm.log").read_text(errors="replace").splitlines()
                if " ERR " in x and not (self.osm_killed and "subn_validate_neighbor" in x)]


class VF:
    """A VF of the simulated fabric; set_guid() is what a provider program does."""

    def __init__(self, lab, view, name, ident=None):
        self.lab, self.name = lab, name
        self.host = name.split("-")[0]
        self.ident = ident or next(i for i, (_, n) in view.ports.items() if n == name)
        self.parked = view.guid[self.ident]
        self.lid = view.lid[self.ident]

    def set_guid(self, port_guid):
        """ibsim sets the node GUID; the port GUID is the next number."""
        self.lab.console(f'Guid "{self.name}" 0x{port_guid - 1:016x}')

    def shown(self, view):
        return next((view.guid[i] for i, (_, n) in view.ports.items()
                     if n == self.name and i in view.guid), None)

    def json(self, url=True):
        d = {"host": self.host, "vf": self.name, "parked_guid": f"0x{self.parked:016x}"}
        if url:
            d["url"] = f"http://127.0.0.1:1/{self.host}"
        return d


class VM:
    """A VM with a vGUID, and what two daemons do for it."""

    def __init__(self, lab, n, at):
        self.lab, self.at, self.lid = lab, at, at.lid
        # above all GUIDs of VFs: an engine that goes by GUIDs finds another order on that leaf
        self.guid = 0x0002C90300000701 + 2 * n
        self.uuid = f"7f3c1a52-0000-4000-8000-0000000007{n:02}"

    def base(self):
        return {"vguid": f"0x{self.guid:016x}", "vm": self.uuid, "pkey": "0xffff"}

    def call(self, path, body):
        return self.lab.call("POST", path, body)

    def bind(self):
        """Status and answer; the VM's LID is what is answered."""
        self.at.set_guid(self.guid)
        status, r = self.call("/v1/bind", {**self.base(), "name": "v", **self.at.json()})
        self.lid = r.get("lid")
        return status, r

    def body(self, to):
        return {**self.base(), "from": self.at.json(False), "to": to.json()}

    def move(self, to):
        """The answer of a move that must succeed."""
        self.at.set_guid(self.at.parked)
        to.set_guid(self.guid)
        status, r = self.call("/v1/moves", self.body(to))
        equal((status, r.get("lid_after"), r.get("verified")), (200, self.lid, True), r)
        self.at = to
        return r

    def unbind(self):
        equal(self.lab.call("POST", "/v1/unbind", {"vguid": f"0x{self.guid:016x}", "vm": self.uuid})[0], 200)
        self.at.set_guid(self.at.parked)


def ended(signum, _frame):
    """Lab.stop() must run when the test is told to end."""
    sys.exit(128 + signum)


signal.signal(signal.SIGTERM, ended)


class Tap:
    """Test Anything Protocol on stdout; a test function that returns has passed."""

    def __init__(self):
        self.count = self.failed = 0

    def run(self, name, fn):
        self.count += 1
        try:
            note = fn()
            print(f"ok {self.count} - {name}" + (f" # {note}" if note else ""), flush=True)
            return True
        except Exception as e:  # a failing check must not hide the later ones
            self.failed += 1
            print(f"not ok {self.count} - {name}", flush=True)
            for line in f"{type(e).__name__}: {e}".splitlines():
                print(f"# {line}", flush=True)
            return False

    def done(self):
        print(f"1..{self.count}", flush=True)
        sys.exit(1 if self.failed else 0)


def equal(got, want, what="value"):
    if got != want:
        raise AssertionError(f"{what} is {got!r}, expected {want!r}")
