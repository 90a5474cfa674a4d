# SPDX-License-Identifier: GPL-2.0-or-later
"""Meshes under lash with one host at each switch, and hosts' daemons as far as path records go. These ask with their
names, hold what may be kept, and take notices (docs/wire.md, "POST /v1/subscriptions")."""
import concurrent.futures
import http.server
import json
import re
import threading
import time

from fabric_lab import BUILD, Generated, Lab, UnixHTTP, wait_for


def gid(guid):
    return f"fe80::{guid >> 48:x}:{guid >> 32 & 0xffff:x}:{guid >> 16 & 0xffff:x}:{guid & 0xffff:x}"


def text_of(guid):
    return f"0x{guid:016x}"


class Mesh:
    """GUIDs of ports and switches as text; a host's number is its switch's."""

    def __init__(self, name, size, seconds=60.0):
        net = Generated(f"mesh:{size}")
        self.seconds = seconds
        self.lab = Lab(name, net)
        self.lab.routing = "lash"
        if net.text().count("\nSwitch") > 200:
            self.lab.sim_args, self.lab.sim_seconds = ["-N", "20000", "-S", "2000", "-P", "100000"], 300.0
        self.ports, self.name_of, self.port_of_switch, self.host_of_switch = [], {}, {}, {}

    def start(self, **conf):
        self.lab.start(**conf)
        self.lab.wait_ready(self.seconds)
        wait_for("the first comparison", lambda: self.reroutes()["number"], self.seconds)
        text = self.lab.tool("ibnetdiscover")
        for m in re.finditer(r'^Ca\s+\d+ "[^"]+"\s+# "([^"]+)"\n\[1\]\((\w+)\)\s+"S-(\w+)"', text, re.M):
            port, sw = text_of(int(m[2], 16)), text_of(int(m[3], 16))
            self.host_of_switch[sw] = f"h{len(self.ports)}"
            self.port_of_switch[sw] = port
            self.name_of[port] = m[1]
            self.ports.append(port)

    def reroutes(self, first=0):
        return self.lab.call("GET", f"/v1/reroutes?first={first}")[1]

    def changes(self, r):
        """The whole list of a comparison."""
        out = list(r["changes"])
        while len(out) < r["listed"]:
            more = self.reroutes(len(out))["changes"]
            if not more:
                break
            out += more
        return out

    def cut(self, switch, port):
        return f'Unlink "S-{0x200000 + int(switch[1:]):016x}"[{port}]'

    def mend(self, switch, port):
        return self.cut(switch, port).replace("Unlink", "ReLink")


class Hosts:
    """A host for each port. All are one server; the URL's path says who is meant. As ibvmigd they acknowledge a message
    that bids them ask anew, and then ask."""

    def __init__(self, lab):
        self.lab, self.lock = lab, threading.Lock()
        self.ports, self.records, self.told = [], {}, []
        self.questions = self.message_bytes = self.answer_bytes = 0
        self.asking = 0  # hosts that have been bidden, and have no answer yet
        self.last_told = 0.0  # of time.monotonic(): when a host has last had all that it was told
        self.server = None

    def start(self, ports):
        self.ports = ports
        hosts = self

        class Daemon(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                text = self.rfile.read(int(self.headers["Content-Length"]))
                host = self.path.split("/")[1]
                asks = hosts.hear(host, json.loads(text), len(text))
                try:
                    self.send_response(200)
                    self.send_header("Content-Length", "2")
                    self.end_headers()
                    self.wfile.write(b"{}")
                finally:
                    if asks:
                        hosts.ask_held(host)

            def log_message(self, *args):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

        self.server = Server(("127.0.0.1", 0), Daemon)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.subscribe()

    def stop(self):
        if self.server:
            self.server.shutdown()
            self.server.server_close()

    def subscribe(self):
        for i, _ in enumerate(self.ports):
            url = f"http://127.0.0.1:{self.server.server_port}/h{i}"
            status, answer = self.lab.call("POST", "/v1/subscriptions", {"host": f"h{i}", "url": url})
            if status != 200:
                raise AssertionError(answer)

    def ask(self, source, destination, host, connection=None):
        c = connection or UnixHTTP(self.lab.sock)
        name = f"&host={host}" if host else ""
        c.request("GET", f"/v1/paths?sgid={gid(int(source, 16))}&dgid={gid(int(destination, 16))}{name}")
        r = c.getresponse()
        answer = json.loads(r.read())
        if r.status != 200:
            raise AssertionError(answer)
        return answer

    def hold(self, host, destination, connection=None):
        """Asks again where a comparison has begun meanwhile: that answer must not be kept."""
        source = self.ports[int(host[1:])]
        answer = wait_for("a record that may be kept",
                          lambda: (a := self.ask(source, destination, host, connection))["cacheable"] and a)
        del answer["cacheable"], answer["pkey"]
        with self.lock:
            self.records[(source, destination)] = answer

    def hold_to_all(self, number):
        connection = UnixHTTP(self.lab.sock)
        for destination in self.ports:
            if destination != self.ports[number]:
                self.hold(f"h{number}", destination, connection)
        connection.close()

    def hold_all(self):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(self.hold_to_all, range(len(self.ports))))

    def held(self):
        with self.lock:
            return dict(self.records)

    def take(self, records):
        for r in records:
            key = (r["sguid"], r["dguid"])
            if r.get("gone"):
                self.records[key] = None  # known to be none; a guest asks again
            else:
                self.records[key] = {k: r[k] for k in ("dlid", "slid", "sl", "mtu", "rate")}

    def hear(self, host, message, size):
        """True: the host has to ask anew for what it holds."""
        with self.lock:
            self.told.append((host, message))
            self.message_bytes += size
            if message.get("forget"):
                port = self.ports[int(host[1:])]
                self.records = {k: v for k, v in self.records.items() if k[0] != port}
            elif "records" in message:
                self.take(message["records"])
            asks = bool(message.get("all") and not message.get("forget"))
            self.asking += asks
            self.last_told = time.monotonic()
            return asks

    def ask_held(self, host):
        try:
            _, answer = self.lab.call("POST", "/v1/paths/held", {"vguids": [self.ports[int(host[1:])]]})
            with self.lock:
                self.questions += 1
                self.answer_bytes += len(json.dumps(answer))
                self.take(answer["paths"])
        finally:
            with self.lock:
                self.asking -= 1
                self.last_told = time.monotonic()

    def messages(self):
        with self.lock:
            return list(self.told)

    def forget(self):
        with self.lock:
            self.told = []
            self.questions = self.message_bytes = self.answer_bytes = 0


def sa_records(lab, pairs, host="hv0-pf"):
    """OpenSM's own SA, asked from a host by tests/integration/fabric/sa.c; None: no path. ibsim drops what goes over
    many hops, so on a large mesh the host must be near OpenSM's."""
    lid = lab.status()["sm"]["lid"]
    text = lab.tool(str(BUILD / "tests/fabric_sa"), "paths", str(lid), *(g for p in pairs for g in p), host=host)
    out = {}
    for pair, line in zip(pairs, text.splitlines(), strict=True):
        v = line.split()
        out[pair] = None if v == ["none"] else dict(zip(("dlid", "slid", "sl", "mtu", "rate"), map(int, v)))
        if out[pair]:
            out[pair]["mtu"] = 128 << out[pair]["mtu"]
    return out
