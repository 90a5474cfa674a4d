# SPDX-License-Identifier: GPL-2.0-or-later
"""Two plain QEMU guests, joined by an AF_UNIX stream, and a host for both that speaks the guest
channel (docs/wire.md) and relays. No libvirt, no network of this machine. For the guest_* tests."""
import asyncio
import base64
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import traceback

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ.get("BUILD", ROOT / "build")).resolve()
IMAGE = pathlib.Path(os.environ.get("LAB_IMAGE", ROOT / "build/lab-image/initrd.gz"))
RESET = b"\xff"
# Only what is broken takes that long: a loaded machine must not fail these tests.
BOOT_S = 600 # 4 s where nothing else runs
WAIT_S = 120 # for an answer, a command, a state
QUERY_MS = 60000 # for the processes to answer a query; the agent would leave out who is slower than 3 s
ACCEPTS = "00010000" # a socket's flags in /proc/net/unix: __SO_ACCEPTCON


def lab_env():
    """Returns the finds of tests/lab/deps; None where it has not run."""
    try:
        text = (ROOT / "build/cache/lab.env").read_text()
    except FileNotFoundError:
        return None
    pairs = (line.split("=", 1) for line in text.splitlines() if not line.startswith("#"))
    return {k: v for k, v in pairs}


def make_image():
    if "LAB_IMAGE" not in os.environ:
        subprocess.run([ROOT / "tests/lab/guest/mkimage"], check=True,
                       stdout=subprocess.DEVNULL)


def gid_of(vguid):
    return "fe80:0000:0000:0000:" + ":".join(f"{vguid:016x}"[i:i + 4] for i in (0, 4, 8, 12))


def mac_of(vguid):
    b = vguid.to_bytes(8, "big")
    return ":".join(f"{x:02x}" for x in (b[0] ^ 2, b[1], b[2], b[5], b[6], b[7]))


def ipv4_of(vguid):
    """Returns the VF's address, where the lab gives it one."""
    return f"10.78.{vguid >> 8 & 255}.{vguid & 255}"


def ipv4_vguid_of(vguid):
    """Programs that know no IPv6 connect by the GID ::ffff:10.78.N.N that RoCE makes of it: to the
    guest's agent that is one more vGUID of the same VF. (On InfiniBand a port has one GID.)"""
    return 0x0000ffff0a4e0000 | vguid & 0xffff


def text_of(vguid):
    return f"0x{vguid:016x}"


class GuestError(Exception):
    pass


class Refused(GuestError):
    """A suspend has failed, and all goes on where it was."""


class Guest:
    """A VM: its VF is a virtio-net NIC with the MAC of the vGUID, in a hot-plug slot."""

    def __init__(self, lab, name, number, vguid):
        self.lab, self.name, self.number, self.vguid = lab, name, number, vguid
        self.dir = lab.dir
        self.process = None
        self.plugged = 0
        self.answers, self.jobs, self.last_id = {}, {}, 0
        self.logs, self.agent_up = [], asyncio.Event()
        self.deleted = asyncio.Event()
        self.path_queries = 0
        self.vguids = [vguid] + ([ipv4_vguid_of(vguid)] if lab.ipv4 else [])
        self.gids = {gid_of(vguid), "0000:" * 4 + gid_of(ipv4_vguid_of(vguid))[20:]}
        self.is_server = name == "peer" # the server of the cables, which stays

    def path(self, what):
        return str(self.dir / f"{self.name}.{what}")

    def command(self, env, append):
        def chan(name, port):
            return ["-chardev", f"socket,id={name},path={self.path(name)},server=on,wait=off",
                    "-device", f"virtserialport,chardev={name},name={port}"]

        qemu = env.get("LAB_QEMU_ROOT")
        binary = f"{qemu}/usr/bin/qemu-system-x86_64" if qemu else "qemu-system-x86_64"
        extra = ["-L", f"{qemu}/usr/share/qemu", "-L", f"{qemu}/usr/share/seabios"] if qemu else []
        accel = "kvm" if env.get("LAB_ACCEL") == "kvm" else "tcg,thread=multi"
        return [binary, *extra, "-accel", accel, "-cpu", "max", "-smp", str(self.lab.cpus),
                "-M", "q35", "-m", str(self.lab.memory_mib),
                "-nodefaults", "-display", "none", "-no-reboot",
                "-serial", f"file:{self.path('log')}",
                "-qmp", f"unix:{self.path('qmp')},server=on,wait=off",
                "-kernel", env["LAB_KERNEL"], "-initrd", str(self.lab.image),
                # on a loaded host a guest's timer seems not to tick when the kernel tests it
                "-append", "console=ttyS0 panic=-1 quiet no_timer_check "
                f"lab.ip=10.77.0.{self.number}/24 lab.name={self.name} {append}",
                "-device", "virtio-serial-pci",
                *chan("agent", "org.ibvmig.0"), *chan("exec", "org.ibvmig.lab.0"),
                "-netdev", json.dumps({"type": "stream", "id": "mgmt", **self.wire("mgmt")}),
                "-device",
                f"virtio-net-pci,netdev=mgmt,mac=52:54:00:00:00:{self.number:02x},romfile=",
                "-device", "pcie-root-port,id=vfslot,chassis=1,slot=1"]

    def wire(self, name):
        """A cable to the other guest. A stream: datagrams are dropped when a guest is slow, and
        rxe's way of repeating packets is not what these tests are about."""
        return {"addr": {"type": "unix", "path": f"{self.dir}/{name}.sock"},
                "server": self.is_server}

    async def listens(self, name):
        """Until the other guest can connect to our cable: QEMU listens in a thread of its own, later than
        it answers, and the other one's tries once."""
        path, end = f"{self.dir}/{name}.sock", time.monotonic() + WAIT_S
        while self.is_server and not any(
                words[-1] == path and words[3] == ACCEPTS for words in
                map(str.split, pathlib.Path("/proc/net/unix").read_text().splitlines())):
            if time.monotonic() > end:
                raise GuestError(f"{self.name}: QEMU does not listen at {path}")
            await asyncio.sleep(0.02)

    async def start(self, env, append):
        env_vars = dict(os.environ)
        if env.get("LAB_QEMU_ROOT"):
            env_vars["QEMU_MODULE_DIR"] = \
                env["LAB_QEMU_ROOT"] + "/usr/lib/x86_64-linux-gnu/qemu"
        self.process = await asyncio.create_subprocess_exec(
            *self.command(env, append), env=env_vars, stdin=subprocess.DEVNULL,
            stderr=open(self.path("err"), "wb"))
        self.qmp_reader, self.qmp_writer = await self.open("qmp")
        while "QMP" not in await self.qmp_line():
            pass # an event may come before the greeting
        self.qmp_waits = asyncio.Queue()
        self.tasks = [asyncio.create_task(self.qmp_loop())]
        await self.qmp("qmp_capabilities")
        self.exec_reader, self.exec_writer = await self.open("exec")
        self.tasks.append(asyncio.create_task(self.exec_loop()))
        self.host_reader, self.host_writer = await self.open("agent")
        self.tasks.append(asyncio.create_task(self.host_loop()))

    async def open(self, what):
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            if self.process.returncode is not None:
                raise GuestError(f"QEMU of {self.name} ended: "
                                 + pathlib.Path(self.path("err")).read_text()[-400:])
            try:
                return await asyncio.open_unix_connection(self.path(what), limit=4 << 20)
            except (FileNotFoundError, ConnectionRefusedError):
                await asyncio.sleep(0.02)
        raise GuestError(f"{self.name}: QEMU has not opened {what}")

    # QMP
    async def qmp_line(self):
        line = await self.qmp_reader.readline()
        if not line:
            raise GuestError(f"{self.name}: QEMU has gone")
        return json.loads(line)

    async def qmp_loop(self):
        while True:
            msg = await self.qmp_line()
            if msg.get("event") == "DEVICE_DELETED" and msg["data"].get("device") == "vf":
                self.deleted.set()
            elif "event" not in msg:
                await self.qmp_waits.put(msg)

    async def qmp(self, command, **arguments):
        self.qmp_writer.write(json.dumps({"execute": command, "arguments": arguments}).encode())
        answer = await asyncio.wait_for(self.qmp_waits.get(), WAIT_S)
        if "error" in answer:
            raise GuestError(f"{command}: {answer['error']['desc']}")
        return answer["return"]

    async def plug(self, alone=False, **more):
        """A new NIC in the place of the VF, with the VF's MAC; alone: nobody is at its cable. more:
        further options of the device."""
        self.plugged += 1
        self.lab.met = False
        netdev = {"type": "hubport", "hubid": 1} if alone else {"type": "stream", **self.wire("vf")}
        await self.qmp("netdev_add", id=f"vf{self.plugged}", **netdev)
        if not alone:
            await self.listens("vf")
        await self.qmp("device_add", driver="virtio-net-pci", id="vf", bus="vfslot",
                       netdev=f"vf{self.plugged}", mac=mac_of(self.vguid), rombar=0, romfile="",
                       **more)

    async def unplug(self):
        self.deleted.clear()
        await self.qmp("device_del", id="vf")
        await asyncio.wait_for(self.deleted.wait(), WAIT_S)
        await self.qmp("netdev_del", id=f"vf{self.plugged}")

    # commands in the guest
    async def exec_loop(self):
        while True:
            line = await self.exec_reader.readline()
            if not line:
                return
            words = line.decode(errors="replace").split()
            if len(words) >= 2 and words[0] in self.jobs:
                out = base64.b64decode(words[2]) if len(words) > 2 else b""
                future = self.jobs[words[0]]
                if not future.done():
                    future.set_result((int(words[1]), out.decode(errors="replace")))

    async def ping(self, seconds=BOOT_S):
        """The guest is up when it answers."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.last_id += 1
            name = f"p{self.last_id}"
            self.jobs[name] = asyncio.get_running_loop().create_future()
            self.exec_writer.write(f"\n{name}\n".encode())
            try:
                await asyncio.wait_for(asyncio.shield(self.jobs[name]), 0.5)
                return
            except asyncio.TimeoutError:
                continue
        raise GuestError(f"{self.name} has not come up within {seconds} s")

    def begin(self, command):
        """A command that runs on: a future of (exit code, output)."""
        self.last_id += 1
        name = f"c{self.last_id}"
        self.jobs[name] = asyncio.get_running_loop().create_future()
        data = base64.b64encode(command.encode()).decode()
        self.exec_writer.write(f"{name} {data}\n".encode())
        return self.jobs[name]

    async def sh(self, command, seconds=WAIT_S, check=True):
        code, out = await asyncio.wait_for(self.begin(command), seconds)
        if check and code:
            raise GuestError(f"{self.name}: {command}: exit {code}: {out[-500:]}")
        return out

    async def until(self, command, seconds=WAIT_S):
        """Until the command succeeds; a guest has no better event for files and devices."""
        end = time.monotonic() + seconds
        while True:
            code, out = await asyncio.wait_for(self.begin(command), seconds)
            if not code:
                return out
            if time.monotonic() > end:
                raise GuestError(f"{self.name}: not within {seconds} s: {command}: {out[-300:]}")
            await asyncio.sleep(0.05)

    # the guest channel
    def host_send(self, msg):
        text = json.dumps(msg).encode()
        self.host_writer.write(b"%08x\n" % len(text) + text)

    async def host_loop(self):
        data = b""
        while True:
            more = await self.host_reader.read(1 << 16)
            if not more:
                return
            data += more
            if RESET in data:
                data = data[data.rindex(RESET) + 1:]
            while len(data) >= 9:
                n = int(data[:8], 16)
                if len(data) < 9 + n:
                    break
                msg, data = json.loads(data[9:9 + n]), data[9 + n:]
                self.on_message(msg)

    def on_message(self, msg):
        op = msg.get("op")
        if op == "relay":
            self.lab.relay(self, msg)
        elif op == "log":
            self.logs.append(msg["text"])
        elif op == "path":
            self.path_queries += 1
            self.host_send({"id": msg["id"], "ok": True, "dlid": 7, "slid": 8, "sl": 0,
                            "mtu": 4096, "rate": 16, "pkey": "0xffff", "cacheable": True})
        elif msg.get("id") in self.answers:
            future = self.answers[msg["id"]]
            if not future.done():
                future.set_result(msg)

    async def call(self, op, seconds=WAIT_S, **fields):
        self.last_id += 1
        n = self.last_id
        self.answers[n] = asyncio.get_running_loop().create_future()
        self.host_send({"op": op, "id": n, **fields})
        try:
            return await asyncio.wait_for(self.answers[n], seconds)
        finally:
            del self.answers[n]

    async def ask(self, op, seconds=WAIT_S, **fields):
        if op == "query":
            fields.setdefault("deadline_ms", QUERY_MS)
        answer = await self.call(op, seconds, **fields)
        if not answer.get("ok"):
            raise GuestError(f"{self.name}: {op}: {answer.get('error')}")
        return answer

    async def hello(self, path_cache=True):
        """The agent may start later than the host: the reset and hello are said again."""
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            self.host_writer.write(RESET)
            try:
                return await self.ask("hello", 3, version=1, path_cache=path_cache,
                                      vfs=[{"vguid": text_of(v), "pkey": "0xffff"}
                                           for v in self.vguids])
            except asyncio.TimeoutError:
                continue
        raise GuestError(f"{self.name}: the agent does not answer hello")

    async def rdma_up(self):
        """The VF is up when an RDMA device shows its GID and is ACTIVE."""
        await self.until("for d in /sys/class/infiniband/*; do "
                         f"grep -q {gid_of(self.vguid)} $d/ports/1/gids/* 2>/dev/null && "
                         "grep -q ACTIVE $d/ports/1/state && exit 0; done; exit 1")

    async def meet(self, other):
        """The kernel gives the other's address one second to be resolved when a QP is connected."""
        await self.until("for n in $(cat /sys/class/infiniband/*/ports/1/gid_attrs/ndevs/0); do "
                         f"ping6 -c 1 -W 1 {gid_of(other.vguid)}%$n && exit 0; done; exit 1")
        if self.lab.ipv4:
            await self.until(f"ping -c 1 -W 1 {ipv4_of(other.vguid)}")

    def tail(self, lines):
        try:
            text = pathlib.Path(self.path("log")).read_text(errors="replace")
        except FileNotFoundError:
            return []
        return text.splitlines()[-lines:]

    async def stop(self):
        if self.process and self.process.returncode is None:
            self.process.terminate()
            await self.process.wait()
        for t in getattr(self, "tasks", []):
            t.cancel()


class Lab:
    def __init__(self, names=("mover", "peer"), image=IMAGE, memory_mib=160, ipv4=False, cpus=1):
        self.image, self.memory_mib, self.ipv4, self.cpus = image, memory_mib, ipv4, cpus
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="ibvmig-guest-"))
        self.guests = [Guest(self, n, i + 1, 0x00a1b2fffe000001 + i)
                       for i, n in enumerate(names)]
        self.mover, self.peer = self.guests
        self.migrations = 0
        self.met = False
        self.drop_relays_to = set()

    def relay(self, sender, msg):
        for g in self.guests:
            if msg["to"] in g.gids and g.process.returncode is None:
                if g.name not in self.drop_relays_to:
                    g.host_send(msg)
                return
        sender.host_send({"op": "relay-failed", "to": msg["to"], "error": "no VM has this GID"})

    async def start(self, append="", path_cache=True):
        env = lab_env()
        append += " lab.vf=ipv4" if self.ipv4 else ""
        await self.peer.start(env, append) # the cables' server first
        await self.peer.listens("mgmt")
        await self.mover.start(env, append)
        await asyncio.gather(*(g.ping() for g in self.guests))
        await self.peer.plug()
        await self.mover.plug()
        await asyncio.gather(*(g.hello(path_cache) for g in self.guests))
        await asyncio.gather(*(g.rdma_up() for g in self.guests))
        await self.meet()

    async def meet(self):
        """Before a program starts: behind a NIC that is new the kernel knows nobody yet."""
        if not self.met:
            await asyncio.gather(self.mover.meet(self.peer), self.peer.meet(self.mover))
            self.met = True

    async def stop(self):
        await asyncio.gather(*(g.stop() for g in self.guests), return_exceptions=True)
        if os.environ.get("KEEP"):
            print(f"# logs are in {self.dir}")
        else:
            shutil.rmtree(self.dir, ignore_errors=True)

    async def both(self, op, seconds=WAIT_S, **fields):
        """The same request to mover and peer at the same time; both answers."""
        fields["vguids"] = [text_of(v) for v in self.mover.vguids]
        return await asyncio.gather(
            self.mover.call(op, seconds, role="mover", **fields),
            self.peer.call(op, seconds, role="peer", **fields))

    async def swap(self, deadline_ms=40000):
        """Suspend, another NIC in the place of the VF, resume. The answers and the times in ms. Refused:
        the suspend has failed, and was walked back as a host does."""
        self.migrations += 1
        name = f"00000000-0000-4000-8000-{self.migrations:012x}"
        t = [time.monotonic()]
        suspended = await self.both("suspend", migration=name, deadline_ms=deadline_ms)
        t.append(time.monotonic())
        bad = [a["error"] for a in suspended if not a["ok"]]
        if bad:
            back = await self.both("resume", migration=name, deadline_ms=deadline_ms, moved=False)
            if not all(a["ok"] for a in back):
                raise GuestError(f"suspend: {bad}, and then: {back}")
            raise Refused(f"suspend: {bad}")
        await self.mover.unplug()
        await self.mover.plug()
        t.append(time.monotonic())
        resumed = await self.both("resume", migration=name, deadline_ms=deadline_ms, moved=True)
        t.append(time.monotonic())
        bad = [a["error"] for a in resumed if not a["ok"]]
        if bad:
            raise GuestError(f"resume: {bad}")
        return suspended, resumed, [round((b - a) * 1000) for a, b in zip(t, t[1:])]


COUNTS = ("lost", "duplicated", "corrupt")


class Pair:
    """A program in both guests, the peer's as the server. It runs in the background of the guest:
    exit code and output are in files there."""

    def __init__(self, lab, name, port, command, env="", mover_env="", same_guest=False):
        self.lab, self.name, self.port = lab, name, port
        command = command.replace("@PORT", str(port))
        # the client first: (guest, name of its files, host to connect to, environment)
        server = lab.mover if same_guest else lab.peer
        self.sides = [(lab.mover, name, "127.0.0.1" if same_guest else "10.77.0.2",
                       f"{env} {mover_env}"),
                      (server, f"{name}-server", "", env)]
        self.command = command

    async def begin(self, side):
        guest, name, host, env = side
        command = self.command.replace("@OUT", f"/tmp/{name}.json")
        await self.lab.meet()
        await guest.sh(f"({env} ibvmig-run {command} {host} >/tmp/{name}.out 2>&1; "
                       f"echo $? >/tmp/{name}.rc) </dev/null >/dev/null 2>&1 &")

    async def start(self):
        await self.begin(self.sides[1])
        await self.sides[1][0].until(f"netstat -tln | grep -q ':{self.port} '")
        await self.begin(self.sides[0])

    async def running(self):
        return not any([await g.sh(f"cat /tmp/{name}.rc 2>/dev/null; true")
                        for g, name, _, _ in self.sides])

    async def end(self, seconds=WAIT_S):
        """Exit codes and outputs, client and server."""
        for g, name, _, _ in self.sides:
            await g.until(f"test -s /tmp/{name}.rc", seconds)
        return [(int(await g.sh(f"cat /tmp/{name}.rc")), await g.sh(f"tail -c 600 /tmp/{name}.out"))
                for g, name, _, _ in self.sides]

    async def status(self, side):
        text = await side[0].sh(f"cat /tmp/{side[1]}.json 2>/dev/null || echo '{{}}'")
        return json.loads(text or "{}")

    async def kill(self, guest, signal="KILL"):
        """The program of this pair in that guest; it has an output file (@OUT)."""
        for g, name, _, _ in self.sides:
            if g is guest:
                await g.sh(f"for p in $(pidof {self.command.split()[0]}); do grep -q /tmp/{name}.json "
                           f"/proc/$p/cmdline && kill -{signal} $p; done; true", 20)

    async def until_sent(self, more):
        """Until both sides have sent that many messages more than now."""
        for side in self.sides:
            start = (await self.status(side)).get("sent", 0)
            end = time.monotonic() + WAIT_S
            while await self.running():
                if time.monotonic() > end:
                    raise GuestError(f"{self.name}: no {more} messages in {WAIT_S} s: "
                                     f"{await self.status(side)}")
                if (await self.status(side)).get("sent", 0) >= start + more:
                    break
                await asyncio.sleep(0.1)

    async def stop(self):
        """Exit codes and outputs, and the results of both sides."""
        await self.kill(self.sides[0][0], "TERM")
        ends = await self.end()
        return ends, [await self.status(side) for side in self.sides]


def check_counts(ends, sides):
    clean = all(code == 0 for code, _ in ends) and \
        all(s.get("ended") and not any(s[k] for k in COUNTS) for s in sides)
    return clean and sides[0]["sent"] == sides[1]["received"] \
        and sides[1]["sent"] == sides[0]["received"]


def brief(ends, sides):
    return f"{ends}\n{[{k: v for k, v in s.items() if k != 'gaps'} for s in sides]}"


class Results:
    """TAP on stdout."""

    def __init__(self):
        self.all = []

    def result(self, ok, what, detail=""):
        self.all.append(bool(ok))
        print(f"{'ok' if ok else 'not ok'} {len(self.all)} - {what}", flush=True)
        for line in str(detail).splitlines() if not ok else ():
            print(f"# {line}")


def came_to_its_end(test, error):
    """The name of a result: what ended the program, and where."""
    here = [f for f in traceback.extract_tb(error.__traceback__)
            if pathlib.Path(f.filename).parent == pathlib.Path(__file__).parent]
    where = f"{pathlib.Path(here[-1].filename).name}:{here[-1].lineno}" if here else "?"
    text = " ".join(f"{type(error).__name__}: {error}".split()).replace("#", "")[:300]
    return f"{pathlib.Path(sys.argv[0]).name} {test}: came to its end ({text}, {where})"


async def said(guest):
    """The ends of what the programs in the guest have written, and with which status they have ended."""
    try:
        return await guest.sh("cd /tmp; for f in $(ls -t *.out *.rc | head -n 8); do echo \"-- $f\"; tail -n 6 $f; done; true", 20)
    except Exception as e: # the guest may be what has failed
        return f"{guest.name} does not tell what its programs have written: {e}"


async def run_in_lab(results, tests, ipv4):
    lab = Lab(ipv4=ipv4)
    at = "start of the lab"
    try:
        await lab.start()
        for test in tests:
            if sys.argv[1:] and test.__name__ not in sys.argv[1:]:
                continue
            at = test.__name__
            await test(lab)
    except Exception as e: # whatever it is, its name is all that a log may show
        results.result(False, came_to_its_end(at, e), "".join(traceback.format_exception(e)))
    finally:
        for g in lab.guests if not results.all or not all(results.all) else ():
            print(f"# --- {g.name}, log of the guest")
            for line in g.tail(40) + (await said(g)).splitlines():
                print(f"# {line}")
        await lab.stop()


def run_tests(results, *tests, ipv4=False):
    """Exit status. Words on the command line choose tests by name."""
    if not lab_env():
        print("1..0 # skip tests/lab/deps has not been run")
        return 0
    make_image()
    asyncio.run(run_in_lab(results, tests, ipv4))
    print(f"1..{len(results.all)}")
    return 0 if results.all and all(results.all) else 1
