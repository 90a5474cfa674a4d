# SPDX-License-Identifier: GPL-2.0-or-later
"""The common part of `make demo` and `make soak`: two guests with checked RDMA traffic, and migrations
of one of them that are measured from outside."""
import json
import os
import re
import sys
import time
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(TOP / "tests/e2e"))
sys.dont_write_bytecode = True
from labtest import BUILD, WAIT_S, Failure, Lab, wait_for  # noqa: E402

MOVER, PEER = "g1", "g2"
MOVER_VGUID, PEER_VGUID = "0x00a1b2fffe000101", "0x00a1b2fffe000102"
PKEY = "0x8001"
# Pre-copy of the mover takes at least 3 s by these: that much memory with contents that do not
# compress, and the bandwidth that the user gives libvirt. They are the same for both ways.
MOVER_MIB, FILLED_MIB, DIRTY_MIB_S, BANDWIDTH_MIB_S = 512, 288, 8, 80
PEER_MIB = 256
HCA_MIB, HCA_STOP_MIB = 8, 128
RUN = "IBVMIG_LOG=info ibvmig-run"
DONE_S, TRAFFIC_S = 60, 20  # times where traffic is broken on purpose
DEADLY = {"no-swap", "no-pkey", "no-lid"}  # faults after which there is no traffic


class Traffic:
    """The applications: rdma_check in both guests and unmodified ones beside it. name: of rdma_check's files in
    /tmp; a second rdma_check needs one of its own."""

    def __init__(self, lab, name="check", mover=MOVER, peer=PEER):
        self.lab, self.name, self.mover, self.peer = lab, name, mover, peer
        self.peer_ip = lab.vm_ip(peer)

    def start_check(self, *options, filled_mib=FILLED_MIB, device=None, own=None, env=""):
        """device: {VM: its RDMA device}; without it each end takes its first. filled_mib: 0 for a mover that dirties
        nothing. own: {VM: options of that end alone}. env: variables of both ends."""
        extra = " ".join(map(str, options))
        dirty = f"-D {filled_mib},{DIRTY_MIB_S} " if filled_mib else ""
        on = {vm: f"-d {name}" for vm, name in (device or {}).items()} | (own or {})
        # on InfiniBand in the tenant's own partition
        pkey = f"-P {PKEY} " if self.lab.link == "ib" else ""
        check = f"{env} {RUN} rdma_check -e -r 300 -m 4096 {pkey}{extra}"
        said = f"-o /tmp/{self.name}.json", f">/tmp/{self.name}.log 2>&1 & echo $! >/tmp/{self.name}.pid"
        for vm in (self.peer, self.mover):  # counts of an earlier one
            self.lab.guest(vm, f"rm -f /tmp/{self.name}.json")
        self.lab.guest(self.peer, f"{check} {on.get(self.peer, '')} {said[0]} {said[1]}")
        self.lab.guest(self.mover, f"{check} {on.get(self.mover, '')} {dirty}{said[0]} {self.peer_ip} {said[1]}")
        self.wait_progress("checked traffic starts", WAIT_S)

    def counts(self, vm):
        c = self.lab.guest_json(vm, f"/tmp/{self.name}.json")
        if not c:
            log = self.lab.guest(vm, f"cat /tmp/{self.name}.log", check=False).stdout
            raise Failure(f"{vm}: rdma_check has no result: {log.strip()[-400:]}")
        return c

    def wait_progress(self, what, deadline_s):
        """Until each QP of both ends receives messages that it had not before."""
        def received(vm):
            c = self.lab.guest_json(vm, f"/tmp/{self.name}.json")
            return c["received_least"] if c else 0
        before = {vm: received(vm) for vm in (self.mover, self.peer)}
        wait_for(what, deadline_s, lambda: all(received(vm) > before[vm] + 20 for vm in before), 0.2)

    def stop_check(self, deadline_s=WAIT_S):
        """The final counts of both ends, exact; of a program that does not end, what it had so far."""
        self.lab.guest(self.mover, f"kill -TERM $(cat /tmp/{self.name}.pid)", check=False)
        out = {}
        for vm in (self.mover, self.peer):
            try:
                out[vm] = wait_for(f"{vm}: rdma_check ends", deadline_s, lambda vm=vm: (
                    lambda c: c if c and c["ended"] else None)(
                        self.lab.guest_json(vm, f"/tmp/{self.name}.json")), 0.3)
            except Failure:
                out[vm] = dict(self.counts(vm), died=self.lab.guest(
                    vm, f"tail -c 400 /tmp/{self.name}.log", check=False).stdout)
        return out

    def start_app(self, name, server, client):
        """An unmodified program at both ends; its log is /tmp/NAME.log, its exit code in NAME.rc."""
        for vm, cmd in ((self.peer, server), (self.mover, client)):
            self.lab.guest(vm, f"rm -f /tmp/{name}.rc; ({RUN} {cmd} >/tmp/{name}.log 2>&1; "
                               f"echo $? >/tmp/{name}.rc) & echo started")
            if vm == self.peer:
                wait_for(f"{name} listens", WAIT_S, lambda: self.lab.guest(
                    vm, f"cat /tmp/{name}.log; netstat -ltn", check=False).stdout.count(
                        PORTS[name]) or None, 0.2)

    def app_result(self, name, deadline_s):
        """Exit codes of both ends, or None for one that does not end."""
        codes = {}
        for vm in (self.peer, self.mover):
            try:
                codes[vm] = int(wait_for(f"{name} ends on {vm}", deadline_s, lambda vm=vm: self.lab.guest(
                    vm, f"cat /tmp/{name}.rc 2>/dev/null", check=False).stdout.strip(), 0.5))
            except Failure:
                codes[vm] = None
        return codes


PORTS = {"pingpong": ":18515 ", "send_bw": ":18516 "}


class Gaps:
    """Longest silences that the RDMA application sees, per migration, at either end."""

    def __init__(self, traffic):
        self.traffic = traffic
        self.seen = {vm: traffic.counts(vm)["gap_count"] for vm in (MOVER, PEER)}

    def longest_ms(self):
        longest = 0.0
        for vm, seen in self.seen.items():
            c = self.traffic.counts(vm)
            new = c["gap_count"] - seen  # the file holds the latest ones
            if new > len(c["gaps"]):
                raise Failure(f"{vm}: {new} gaps, {len(c['gaps'])} kept: nothing can be said of the longest")
            longest = max([longest, c["idle_ms"], *(g["ms"] for g in c["gaps"][len(c["gaps"]) - new:])])
        return longest


class Demo:
    def __init__(self, folder, fault=None, link=None):
        self.fault = fault
        self.dir = Path(folder)
        guest_faults = {"no-marker", "no-dirtying", "cache-off"}
        os.environ.pop("IBVMIG_FAULT", None)
        if fault and fault not in guest_faults:
            os.environ["IBVMIG_FAULT"] = fault
        # ibvmig-sm has a cache of its own, which would answer all that the agents ask
        os.environ["IBVMIG_LAB_CACHING"] = "no" if fault == "cache-off" else "yes"
        self.cmdline = ["--cmdline", f"lab.fault={fault}"] if fault in guest_faults else []
        self.lab = Lab(self.dir / "lab", link=link)
        self.traffic, self.dead = None, False

    def up(self):
        self.lab.up()
        self.lab.vm(MOVER, "hosta", "--mem", MOVER_MIB, "--vguid", MOVER_VGUID, "--shared-mem",
                    *self.cmdline)
        self.lab.vm(PEER, "hostc", "--mem", PEER_MIB, "--vguid", PEER_VGUID, *self.cmdline)
        self.lab.wait_vf(MOVER)
        self.lab.wait_vf(PEER)
        self.traffic = Traffic(self.lab)

    # -- what others say than our daemons: the switches' side, and the guest
    def address(self):
        vguid = self.lab.vm_gid_guid(MOVER)
        port = self.lab.guest_port(MOVER)
        return {"vguid": vguid, "lid": self.lab.fabric_lid(MOVER_VGUID), "guest_lid": port["lid"],
                "guest_pkeys": port["pkeys"], "link_layer": port["link_layer"]}

    def pkeys(self, hosts):
        """{host: the P_Keys of its VFs}; RoCE has none."""
        return {h: self.lab.vf_pkeys(h) for h in hosts} if self.lab.link == "ib" else {}

    def sm_counters(self):
        return self.lab.sm_status()["counters"]

    # -- the HCA that writes behind QEMU's back
    def start_hca_region(self):
        self.lab.guest(MOVER, f"{RUN} rdma_hcawrite {HCA_MIB} /tmp/hca.pages /tmp/hca.json "
                              ">/tmp/hca.log 2>&1 & echo $! >/tmp/hca.pid")
        pages = wait_for("the region for the HCA", WAIT_S, lambda: self.lab.guest_json(MOVER, "/tmp/hca.pages"))
        (self.dir / "hca.pages").write_text(json.dumps(pages))

    def start_hca(self):
        host = self.lab.where[MOVER]
        ram = self.lab.sh(host, "sh", "-c", "find /var/lib/libvirt/qemu/ram -type f | head -n1").stdout.strip()
        if not ram:
            raise Failure(f"{MOVER} has no RAM file on {host}")
        p = self.lab.popen(host, "/usr/bin/python3", TOP / "tests/demo/hca.py", ram, self.dir / "hca.pages",
                           MOVER, HCA_STOP_MIB)
        if p.stdout.readline() != "writing\n":
            raise Failure(f"the HCA does not write: {p.communicate()[0]}")
        return p

    def stale_pages(self, newest):
        """Pages of the region that do not hold what the HCA wrote last."""
        self.lab.guest(MOVER, "rm -f /tmp/hca.json; kill -USR1 $(cat /tmp/hca.pid)")
        r = wait_for("the region is checked", WAIT_S, lambda: self.lab.guest_json(MOVER, "/tmp/hca.json"))
        if r["newest"] != newest:
            return r["pages"]
        return r["stale"]

    def moved_pkeys(self, before, left, address_before, address_after):
        """What the migration has made of LID and P_Keys, in the guest and at the two ports that the VM has left and
        entered. Each port has its own table and that of its vSwitch's port."""
        entered, now = (self.lab.where[MOVER], self.lab.vf_of(MOVER)), self.pkeys(before)
        tables = {when: {what: dict(zip(("port", "switch_port"), t[host][vf]))
                         for what, (host, vf) in (("left", left), ("entered", entered))}
                  for when, t in (("before", before), ("after", now))}
        return {"guest_lid": address_after["guest_lid"], "guest_pkeys_before": address_before["guest_pkeys"],
                "guest_pkeys_after": address_after["guest_pkeys"], "pkey_tables": tables}

    # -- one migration
    def set_strategy(self, strategy):
        host = self.lab.where[MOVER]
        self.lab.virsh(host, "metadata", MOVER, "--uri", "urn:ibvmig:1", "--key", "ibvmig", "--live",
                       "--set", f'<vf pf="pf0" vguid="{MOVER_VGUID}" pkey="{PKEY}" index="0" '
                                f'strategy="{strategy}"/>')

    def migrate(self, to, strategy="late", hca=False):
        """Makes one `virsh migrate --live`; returns all that was seen of it, as a flat dict."""
        self.set_strategy(strategy)
        before, counters, gaps = self.address(), self.sm_counters(), Gaps(self.traffic)
        source = self.lab.where[MOVER]
        vf, tables = self.lab.vf_of(MOVER), self.pkeys((source, to))
        writer = self.start_hca() if hca else None
        start = time.monotonic()
        self.lab.migrate(MOVER, to, "--bandwidth", BANDWIDTH_MIB_S)
        total_ms = (time.monotonic() - start) * 1000
        alive, record = True, {"data": {}}
        done_s, traffic_s = (DONE_S, TRAFFIC_S) if self.fault in DEADLY else (WAIT_S, WAIT_S)
        try:
            record = self.lab.wait_done(MOVER, self.lab.came_from[MOVER], done_s)
            total_ms = (time.monotonic() - start) * 1000
            self.traffic.wait_progress("traffic goes on", traffic_s)
        except Failure as e:
            # a VM that runs at the destination is not enough: told as red, not as a crash
            print(f"  {e}", flush=True)
            alive, self.dead = False, True
        after, then = self.address(), self.sm_counters()
        m = {"strategy": record.get("strategy", strategy), "to": to, "total_ms": round(total_ms), "record": record,
             "outage_ms": round(gaps.longest_ms(), 1), "traffic_alive": alive,
             "lid_before": before["lid"], "lid_after": after["lid"],
             "vguid_before": before["vguid"], "vguid_after": after["vguid"], "link_layer": after["link_layer"],
             "heavy_sweeps_caused": then["heavy_sweeps"] - counters["heavy_sweeps"],
             "sa_queries": then["sa_path_requests"] - counters["sa_path_requests"]}
        if tables:
            m.update(self.moved_pkeys(tables, (source, vf), before, after))
        if writer:
            out, _ = writer.communicate(timeout=WAIT_S)
            if writer.returncode:
                raise Failure(f"the HCA: {out.strip()}")
            m["stale_pages"] = self.stale_pages(int(out.strip().splitlines()[-1]))
        return m


def data(m, key, scale=1.0):
    """A measurement of the daemons' record; None where there is none."""
    v = m["record"]["data"].get(key)
    return None if v is None else round(v * scale, 1)


def qemu_version(lab, host):
    out = lab.sh(host, "qemu-system-x86_64", "--version").stdout
    return re.search(r"version (\S+)", out)[1]
