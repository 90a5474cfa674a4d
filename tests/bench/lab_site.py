# SPDX-License-Identifier: GPL-2.0-or-later
"""The lab's processes, sockets and links as its owner sees them from outside: a fault must strike within
milliseconds, and a command that enters the lab takes a hundred."""
import http.client
import json
import os
import socket
import subprocess
import threading
import time
from pathlib import Path
from queue import Empty, Queue

from labtest import Failure

ANSWER_S = 120  # for an answer: only a fault takes so long
LOOK_S = 2


class Unix(http.client.HTTPConnection):
    """HTTP over an AF_UNIX socket whose path may be too long for an address: it is reached by its folder."""

    def __init__(self, path):
        super().__init__("localhost", timeout=ANSWER_S)
        self.path = Path(path)

    def connect(self):
        folder = os.open(self.path.parent, os.O_PATH | os.O_DIRECTORY)
        try:
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.settimeout(self.timeout)
            self.sock.connect(f"/proc/self/fd/{folder}/{self.path.name}")
        finally:
            os.close(folder)


class Site:
    def __init__(self, lab):
        self.lab = lab
        self.init = json.loads((lab.dir / "init.json").read_text())["pid"]

    # -- processes
    def processes(self):
        """{number inside the lab: number here} of all of the lab."""
        space, found = os.readlink(f"/proc/{self.init}/ns/pid"), {}
        for p in Path("/proc").glob("[0-9]*"):
            try:
                if os.readlink(p / "ns/pid") == space:
                    line = next(x for x in (p / "status").read_text().splitlines() if x.startswith("NSpid:"))
                    found[int(line.split()[-1])] = int(p.name)
            except (OSError, StopIteration):
                continue  # the process has just ended
        return found

    def service(self, name):
        """The number here of a service as ibvmigd@hosta. KeyError when it does not run."""
        return self.processes()[int((self.lab.dir / f"services/{name}.pid").read_text())]

    def qemus(self, vm):
        """{host: number here} of all QEMUs of the VM, running or not."""
        homes = {os.readlink(f"/proc/{self.anchor(h)}/ns/net"): h for h in self.hosts()}
        found = {}
        for pid in self.processes().values():
            try:
                if f"guest={vm},".encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found[homes[os.readlink(f"/proc/{pid}/ns/net")]] = pid
            except (OSError, KeyError):
                continue
        return found

    def hosts(self):
        return json.loads((self.lab.dir / "lab.json").read_text())["hosts"]

    def anchor(self, host):
        """A process whose namespaces are the host's."""
        inner = int((self.lab.dir / f"hosts/{host}/pid").read_text())
        return self.processes()[inner]

    # -- sockets
    def call(self, host, method, path, body=None):
        """REST of the host's ibvmigd, or of ibvmig-sm for "sm": (status, answer). OSError while it is dead."""
        c = Unix(self.socket(host))
        try:
            c.request(method, path, None if body is None else json.dumps(body))
            r = c.getresponse()
            return r.status, json.loads(r.read() or b"{}")
        except http.client.HTTPException as e:
            raise OSError(f"{host}: {e!r}") from e
        finally:
            c.close()

    def get(self, host, path):
        return self.call(host, "GET", path)[1]

    def socket(self, host):
        if host == "sm":
            return f"/proc/{self.init}/root/run/ibvmig/ibvmig-sm.sock"
        return self.lab.dir / f"hosts/{host}/run-ibvmig/ibvmigd.sock"

    # -- links
    def net(self, host, *cmd):
        """A command in the network of a host, or of the lab's own node."""
        pid = self.init if host == "sm" else self.anchor(host)
        p = subprocess.run(["nsenter", f"--net=/proc/{pid}/ns/net", "--", *cmd], capture_output=True, text=True,
                           stdin=subprocess.DEVNULL, timeout=ANSWER_S, check=False)
        if p.returncode:
            raise Failure(f"{host}: {' '.join(cmd)}: {p.stderr.strip()}")
        return p.stdout

    def cut(self, hosts, on):
        """Frames between these hosts are dropped, in silence; all others go on."""
        for h in hosts:
            self.net("sm", "ip", "link", "set", f"x-{h}", "type", "bridge_slave", "isolated", "on" if on else "off")

    def leases(self):
        """Names of all lease files that keep a migration's driver, of all hosts."""
        return [f"{h}/{f.name}" for h in self.hosts() for f in (self.lab.dir / f"hosts/{h}/run-ibvmig/leases").iterdir()]


class Watch:
    """The events that a host's ibvmigd publishes, from now on."""

    def __init__(self, site, host):
        since = site.get(host, "/v1/events")["next"]
        self.queue = Queue()
        self.connection = Unix(site.socket(host))
        self.connection.request("GET", f"/v1/events?since={since}", headers={"Accept": "text/event-stream"})
        self.stream = self.connection.getresponse()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        try:
            while line := self.stream.readline():
                if line.startswith(b"data: "):
                    self.queue.put(json.loads(line[6:]))
        except (OSError, ValueError, AttributeError, http.client.HTTPException):
            pass  # the daemon was killed, or close() was called
        self.queue.put(None)

    def wait(self, what, deadline_s, wanted, over):
        """The first event that is wanted(), or None once over() and nothing comes any more. Failure at the stream's end
        and after the deadline."""
        end = time.monotonic() + deadline_s
        while time.monotonic() < end:
            try:
                e = self.queue.get(timeout=LOOK_S)
            except Empty:
                if over():
                    return None
                continue
            if not e:
                raise Failure(f"{what}: not seen before the daemon's stream of events ended")
            if wanted(e):
                return e
        raise Failure(f"{what}: not within {deadline_s} s")

    def close(self):
        if self.connection.sock:
            self.connection.sock.shutdown(socket.SHUT_RDWR)
