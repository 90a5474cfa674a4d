# SPDX-License-Identifier: GPL-2.0-or-later
"""The lanes of a mesh: SLs as the subnet manager answers, and as packets on the wire have them."""
import json
import re
import subprocess

from labtest import Failure, wait_for

# For each line of its input: counts packets at a VF's tap for half a second, {"SLID SERVICE SL": count}.
SNIFF = """
import json, socket, sys, time
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.settimeout(0.1)
s.bind((sys.argv[1], 3))  # all packets: the bridge takes them before those who want one kind
def received():
    try:
        p = s.recv(8192)
    except TimeoutError:
        return b''
    return p[14:] if p[12:14] == b'\\x88\\xb5' else b''
for line in sys.stdin:
    begin, seen = time.monotonic(), {}
    while (now := time.monotonic()) < begin + 0.7:
        p = received()
        grh = len(p) > 60 and p[1] & 3 == 3
        bth = p[48 if grh else 8:]
        # the first ones have waited for us; QP1 is the SA's
        if now < begin + 0.2 or len(bth) < 12 or int.from_bytes(bth[5:8], 'big') < 2:
            continue
        kind = {0: 'rc', 1: 'uc', 3: 'ud'}.get(bth[0] >> 5, '?')
        kind += ('' if kind == 'ud' else ' with a GRH' if grh else ' by LID')
        key = f"{int.from_bytes(p[6:8], 'big')} {kind} {p[1] >> 4}"
        seen[key] = seen.get(key, 0) + 1
    print(json.dumps(seen), flush=True)
"""


class Wire:
    """Listens at the tap of a VM's VF, on the host where it runs."""

    def __init__(self, lab, vm):
        self.p = lab.popen(lab.where[vm], "/usr/bin/python3", "-c", SNIFF, f"tap-{lab.vf_of(vm)}", stdin=subprocess.PIPE)

    def listen(self):
        """The packets of half a second: {(sender's LID, service, SL): count}."""
        self.p.stdin.write("\n")
        self.p.stdin.flush()
        line = self.p.stdout.readline()
        if not line.startswith("{"):
            raise Failure(f"the listener at the tap has ended: {line}{self.p.stdout.read()}")
        found = {}
        for key, n in json.loads(line).items():
            lid, service, sl = re.fullmatch(r"(\d+) (.*) (\d+)", key).groups()
            found[int(lid), service, int(sl)] = n
        return found

    def stop(self):
        self.p.stdin.close()
        self.p.wait()


class Lanes:
    """Two VMs on a mesh: the SLs of their paths, and links that are cut."""

    def __init__(self, lab, vguids):
        self.lab, self.vguids = lab, vguids

    def lids(self):
        return {vm: self.lab.fabric_lid(guid) for vm, guid in self.vguids.items()}

    def sl(self, a, b):
        gids = [f"fe80::{int(self.vguids[vm], 16) >> 48:x}:" + ":".join(
            f"{int(self.vguids[vm], 16) >> s & 0xffff:x}" for s in (32, 16, 0)) for vm in (a, b)]
        return self.lab.sm_get(f"/v1/paths?sgid={gids[0]}&dgid={gids[1]}")["sl"]

    def reroutes(self):
        return self.lab.sm_get("/v1/reroutes")["number"]

    def cut(self, switch, port):
        """Cuts a link, and waits until the subnet manager has routed anew, and has told who holds which records."""
        before = self.reroutes()
        self.lab.sh("sm", "sh", "-c", f"echo 'Unlink \"{switch}\"[{port}]' >/run/lab/sm/console; kill -HUP $(pidof opensm)")
        wait_for(f"{switch}[{port}] is cut: new routes", 60, lambda: self.reroutes() > before, 0.1)
