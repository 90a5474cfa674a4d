# SPDX-License-Identifier: GPL-2.0-or-later
"""The common part of the scenarios: TAP, waiting with deadlines, and the lab as Python calls."""
import atexit
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent.parent
BUILD = TOP / os.environ.get("BUILD", "build")
LAB = TOP / "tests/lab/lab"
sys.path.insert(0, str(LAB.parent))
from iblab.simulator import UMAD2SIM, no_infiniband  # noqa: E402

WAIT_S = 180  # only a fault takes so long


class Failure(Exception):
    """A scenario cannot go on; its text is the reason."""


class Tap:
    """The results of a scenario. finish() prints the plan and gives the exit status."""

    def __init__(self):
        self.count = self.bad = 0

    def check(self, name, ok, detail=""):
        self.count += 1
        self.bad += not ok
        print(f"{'ok' if ok else 'not ok'} {self.count} - {name}", flush=True)
        if not ok and detail != "":
            for line in str(detail).splitlines()[-40:]:
                print(f"# {line}", flush=True)
        return ok

    def equal(self, name, got, want):
        return self.check(name, got == want, f"got {got!r}, want {want!r}")

    def finish(self):
        print(f"1..{self.count}", flush=True)
        return 1 if self.bad or not self.count else 0


def needs_infiniband():
    """Ends a scenario as skipped where the lab has no InfiniBand."""
    why = no_infiniband()
    if why:
        print(f"1..0 # SKIP no InfiniBand in the lab: {why}")
        sys.exit(0)


def scenario(body, **lab_options):
    """Runs body(tap, lab) in a lab of its own that is taken down whatever happens."""
    tap = Tap()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    lab = Lab(BUILD / "check" / f"lab-{Path(sys.argv[0]).name}", **lab_options)
    if lab.link == "ib":
        needs_infiniband()
    try:
        lab.up()
        body(tap, lab)
    except Failure as e:
        tap.check(f"scenario runs to its end: {e}", False, lab.tail())
    finally:
        lab.down()
    sys.exit(tap.finish())


def wait_for(what, deadline_s, probe, every_s=0.05):
    """The first true value of probe(); Failure after the deadline. Polls because what is waited for
    is on the other side of a virtual machine or a process that has no event for us."""
    end = time.monotonic() + deadline_s
    while True:
        value = probe()
        if value:
            return value
        if time.monotonic() > end:
            raise Failure(f"{what}: not within {deadline_s} s")
        time.sleep(every_s)


class Lab:
    """The lab in a state folder of its own; see tests/lab/lab and docs/lab.md."""

    def __init__(self, folder, hosts="a b c", up_options=(), link=None):
        self.dir = Path(folder)
        self.env = dict(os.environ, LAB_DIR=str(self.dir), HOSTS=hosts)
        self.link = link or os.environ.get("LAB_LINK") or "ib"
        self.env["LAB_LINK"] = self.link
        self.up_options = up_options
        self.where, self.came_from = {}, {}
        atexit.register(self.down)
        self.is_up = False

    # -- the lab itself
    def lab(self, *args, deadline_s=WAIT_S, check=True, **kw):
        p = subprocess.run([str(LAB), *map(str, args)], env=self.env, capture_output=True, text=True,
                           timeout=deadline_s, stdin=subprocess.DEVNULL, **kw)
        if check and p.returncode:
            raise Failure(f"lab {' '.join(map(str, args))}: exit {p.returncode}: "
                          f"{(p.stdout + p.stderr).strip()[-2000:]}")
        return p

    def up(self):
        # the lab ends with this process, also when that is killed
        self.lab("up", "--owner", os.getpid(), *self.up_options, deadline_s=3 * WAIT_S)
        self.is_up = True # only now: a lab of another is not ours to take down

    def down(self):
        if self.is_up:
            self.is_up = False
            self.lab("down", check=False)

    def tail(self):
        """The ends of all logs, for a failed scenario."""
        text = []
        # a scenario shows the last lines of this: the port agents, which are many and say little, come first
        for f in sorted(self.dir.rglob("*.log"), key=lambda f: (not f.name.startswith("port-"), f)):
            try:
                lines = f.read_text(errors="replace").splitlines()[-8:]
            except OSError:
                continue
            text += [f"== {f.relative_to(self.dir)}", *lines]
        return "\n".join(text)

    # -- hosts
    def sh(self, host, *cmd, deadline_s=WAIT_S, check=True):
        return self.lab("sh", host, *cmd, deadline_s=deadline_s, check=check)

    def virsh(self, host, *cmd, deadline_s=WAIT_S, check=True):
        return self.sh(host, "virsh", *cmd, deadline_s=deadline_s, check=check)

    def popen(self, host, *cmd, **kw):
        """A command on a host that goes on beside the scenario."""
        return subprocess.Popen([str(LAB), "sh", host, *map(str, cmd)], env=self.env, text=True,
                                **{"stdin": subprocess.DEVNULL, **kw}, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT)

    def status(self, host):
        return json.loads(self.sh(host, BUILD / "bin/ibvmig", "status", "--json").stdout)

    def rest(self, host, path):
        return json.loads(self.sh(host, "/usr/bin/python3", "-c", REST_GET, path).stdout)

    def vm_status(self, host, vm):
        return next((v for v in self.status(host)["vms"] if v["name"] == vm), None)

    def migrations(self, host):
        return self.rest(host, "/v1/migrations")["migrations"]

    # -- the fabric
    def sm_get(self, path):
        """GET of ibvmig-sm's REST, through its AF_UNIX socket."""
        return json.loads(self.sh("sm", "/usr/bin/python3", "-c", REST_GET, path,
                                  "/run/ibvmig/ibvmig-sm.sock").stdout)

    def sm_status(self):
        return self.sm_get("/v1/status")

    def sim(self, *cmd, check=True):
        """A tool of infiniband-diags on the simulated fabric, attached where nobody else measures."""
        return self.sh("sm", "sh", "-c", 'cd /run/lab/sm && SIM_HOST=tools LD_PRELOAD="$0" exec "$@"',
                       UMAD2SIM, *cmd, check=check)

    def fabric_port_list(self, out=None):
        """Returns all CA ports as the switches' side shows them now: [(port GUID, node name, LID)]. out: what
        ibnetdiscover has just said."""
        out = out or self.sim("ibnetdiscover").stdout
        found = re.findall(r'^Ca\s.*?# "([^"]*)"\n\[1\]\(([0-9a-f]+)\).*?# lid (\d+)', out, re.M)
        return [(int(guid, 16), name, int(lid)) for name, guid, lid in found]

    def fabric_ports(self):
        """The same as {port GUID: (node name, LID)}."""
        return {guid: (name, lid) for guid, name, lid in self.fabric_port_list()}

    def vf_pkeys(self, host):
        """The P_Keys of this host's VFs, as the subnet has them: {VF: (the port's, those that its vSwitch enforces)}."""
        out = self.sim("ibnetdiscover").stdout
        lids = {name: int(lid) for _, name, lid in self.fabric_port_list(out)}
        switch = int(re.search(rf'^Switch\s.*?# "{host}-vsw".*? lid (\d+)', out, re.M)[1])
        found = {}
        for n in range(1, 5):
            vf = f"pf0vf{n}"
            found[vf] = (self.pkeys_of(lids[f"{host}-{vf}"]), self.pkeys_of(switch, 2 + n))
        return found

    def pkeys_of(self, lid, *port):
        """The P_Key table of the port with this LID, or of a switch's port, sorted."""
        words = self.sim("smpquery", "pkeys", str(lid), *map(str, port)).stdout.split()
        return sorted(w for w in words if re.fullmatch("0x[0-9a-f]{4}", w) and int(w, 16) & 0x7fff)

    def vf_of(self, vm):
        """The VF that the VM has, where it runs."""
        return next(v["name"] for v in self.status(self.where[vm])["vfs"] if v.get("vm") == vm)

    def fabric_lid(self, vguid):
        """The LID of the port that shows this vGUID, or None."""
        return self.fabric_ports().get(int(vguid, 16), (None, None))[1]

    # -- VMs
    def vm(self, name, host, *options):
        self.lab("vm", "define", name, host, *options)
        self.lab("vm", "start", name, deadline_s=3 * WAIT_S)
        self.where[name] = host

    def vm_ip(self, vm):
        """Address on the management network."""
        return json.loads((self.dir / "vms/vms.json").read_text())[vm]["ip"]

    def vm_gid_guid(self, vm):
        """The GUID half of the GID that the guest's RDMA device shows, as 0x… ; None without one."""
        out = self.guest(vm, "cat /sys/class/infiniband/*/ports/1/gids/0", check=False).stdout.split()
        return "0x" + out[0].replace(":", "")[16:] if out and ":" in out[0] else None

    def guest(self, vm, command, deadline_s=WAIT_S, check=True):
        return self.lab("guest", "--timeout", deadline_s, vm, command, deadline_s=deadline_s + 5, check=check)

    def guest_port(self, vm):
        """What the guest's first RDMA port shows: {"link_layer", "lid", "sm_lid", "state", "pkeys": [...]}."""
        lines = self.guest(vm, GUEST_PORT).stdout.split("\n")
        port = dict(line.split("=", 1) for line in lines if "=" in line)
        return {"link_layer": port["link_layer"], "state": port["state"], "lid": int(port["lid"], 16),
                "sm_lid": int(port["sm_lid"], 16), "pkeys": [k for k in port["pkeys"].split() if int(k, 16)]}

    def guest_json(self, vm, path):
        p = self.guest(vm, f"cat {shlex.quote(path)}", check=False)
        try:
            return json.loads(p.stdout)
        except ValueError:
            return None

    def wait_vf(self, vm, deadline_s=2 * WAIT_S):
        """Until the daemon has attached the VF, the agent has answered it, and the guest can use it, which each of
        them tells by itself."""
        def ready():
            v = self.vm_status(self.where[vm], vm)
            return v if v and v["state"] == "attached" and v["agent"]["state"] == "up" else None

        def usable():
            ports = self.guest(vm, GUEST_PORTS, check=False).stdout.split("\n")
            return all(f"{guid[2:]} ACTIVE" in ports for guid in guids)
        v = wait_for(f"{vm}: VF and agent on {self.where[vm]}", deadline_s, ready, 0.2)
        guids = [f["vguid"] for f in v["vfs"]]
        wait_for(f"{vm}: {' '.join(guids)} in the guest", deadline_s, usable, 0.2)
        return v

    def await_migration(self, vm, host, old, states, abort=False):
        """Until host's migration of vm, another one than old, is in one of the states; with abort, it is aborted at
        once. Seen and done by one process beside the daemon: some states last a second only. Failure when a later
        one than all of them is seen."""
        p = self.sh(host, "/usr/bin/python3", "-c", AWAIT_MIGRATION, vm, old or "", ",".join(states), WAIT_S,
                    "abort" if abort else "", deadline_s=WAIT_S + 30, check=False)
        if p.returncode:
            raise Failure(f"{vm}: {' or '.join(states)} was not seen: {p.stdout}{p.stderr}")

    def migrate_start(self, vm, to, *options):
        return self.popen(self.where[vm], "virsh", "migrate", "--live", "--p2p", *options, vm,
                          f"qemu+tcp://{to}/system")

    def migrate(self, vm, to, *options, deadline_s=3 * WAIT_S):
        """Plain `virsh migrate --live`; returns the seconds and libvirt's output, Failure if it failed."""
        start = time.monotonic()
        p = self.migrate_start(vm, to, *options)
        try:
            out, _ = p.communicate(timeout=deadline_s)
        except subprocess.TimeoutExpired:
            p.kill()
            raise Failure(f"virsh migrate {vm} {to}: not within {deadline_s} s") from None
        if p.returncode:
            raise Failure(f"virsh migrate {vm} {to}: {out.strip()}")
        self.came_from[vm], self.where[vm] = self.where[vm], to
        return time.monotonic() - start, out

    def migrate_by_daemon(self, vm, to, *options, deadline_s=3 * WAIT_S):
        """The same by `ibvmig migrate`; returns what it shows."""
        out = self.sh(self.where[vm], BUILD / "bin/ibvmig", "migrate", vm, to, *options, deadline_s=deadline_s).stdout
        self.came_from[vm], self.where[vm] = self.where[vm], to
        return out

    def wait_done(self, vm, host, deadline_s=WAIT_S, state="DONE"):
        """The record of the latest migration of vm that host knows, once it is in this state. What both
        sides measured is in its "data"; names that both have are the source's."""
        def done():
            m = next((m for m in self.migrations(host) if m["name"] == vm), None)
            return m if m and m["state"] == state else None
        m = wait_for(f"{vm}: migration is {state} on {host}", deadline_s, done, 0.1)
        m["data"] = {**m["data"].get("destination", {}), **m["data"]}
        return m


# GUID of the GID, and state.
GUEST_PORTS = """
cd /sys/class/infiniband || exit
for port in */ports/1; do
    gid=$(tr -d : <$port/gids/0 | cut -c 17-) && echo $gid $(cut -d " " -f 2 $port/state)
done
"""

GUEST_PORT = """
cd /sys/class/infiniband/*/ports/1 || exit
for file in link_layer lid sm_lid; do echo $file=$(cat $file); done
echo state=$(cut -d " " -f 2 state)
echo pkeys=$(cat pkeys/*)
"""

REST_GET = """
import http.client, socket, sys, time
end = time.monotonic() + 60
class C(http.client.HTTPConnection):
    def connect(self):
        while True:
            self.sock = socket.socket(socket.AF_UNIX); self.sock.settimeout(120)
            try:
                return self.sock.connect(path)
            except (FileNotFoundError, ConnectionRefusedError): # the daemon has just been started
                if time.monotonic() > end:
                    raise
            time.sleep(0.05)
path = sys.argv[2] if len(sys.argv) > 2 else '/run/ibvmig/ibvmigd.sock'
c = C('localhost'); c.request('GET', sys.argv[1]); print(c.getresponse().read().decode())
"""

AWAIT_MIGRATION = """
import http.client, json, socket, sys, time
ORDER = ['PREPARE', 'HOLD', 'QUIESCE', 'DETACH', 'SWITCH', 'ATTACH', 'RESUME', 'DONE', 'CANCEL', 'ABORTED', 'PARKED']
class C(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX); self.sock.settimeout(120)
        self.sock.connect('/run/ibvmig/ibvmigd.sock')
def ask(method, path):
    c.request(method, path, '{}' if method == 'POST' else None); r = c.getresponse()
    return r.status, json.loads(r.read())
vm, old, states, seconds, abort = sys.argv[1], sys.argv[2], sys.argv[3].split(','), float(sys.argv[4]), sys.argv[5]
c, end = C('localhost'), time.monotonic() + seconds
while True:
    m = next((v for v in ask('GET', '/v1/status')[1]['vms'] if v['name'] == vm), {}).get('migration') or {}
    new = m.get('id') not in (None, old)
    if new and m['state'] in states:
        break
    if new and ORDER.index(m['state']) > ORDER.index(states[-1]) or time.monotonic() > end:
        sys.exit(str(m))
    time.sleep(0.005)
if abort:
    status, answer = ask('POST', f'/v1/vms/{vm}/abort')
    sys.exit(str(answer) if status >= 300 else 0)
"""
