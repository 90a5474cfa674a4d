# SPDX-License-Identifier: GPL-2.0-or-later
"""Neutron itself for the small OpenStack (cloud.py): neutron-server with ML2 and our mechanism driver. No agents: the
management network's ports, which a driver of the lab's binds (neutron_lab.py), need none."""
import ast
import configparser
import re

from cloud import AUTH, CACHE, INSIDE, IP, PORTS, PYTHON, TOP, database, entry, ini

PROJECT = TOP / "openstack/neutron"
DRIVERS = "neutron.ml2.mechanism_drivers"

NEUTRON = {"DEFAULT": {"core_plugin": "ml2", "bind_host": IP, "bind_port": PORTS["neutron"], "api_workers": 1,
                       "rpc_workers": 1, "transport_url": f"rabbit://guest:guest@{IP}:5672/",
                       "state_path": f"{INSIDE}/neutron",
                       "base_mac": "52:54:00:78:00:00",  # by 52:54:00 the guest knows its management NIC
                       "api_paste_config": f"{CACHE}/neutron/usr/share/neutron-common/api-paste.ini"},
           "database": {"connection": database("neutron")}, "keystone_authtoken": AUTH, "nova": AUTH,
           "oslo_concurrency": {"lock_path": f"{INSIDE}/locks"},
           "ml2": {"type_drivers": "vlan,flat", "tenant_network_types": "vlan",
                   "mechanism_drivers": "ibvmig,lab_bridge", "extension_drivers": "port_security"},
           "ml2_type_vlan": {"network_vlan_ranges": "ib0net:1:4094"}, "ml2_type_flat": {"flat_networks": "br0"},
           "ml2_ibvmig": {"physical_networks": "ib0net", "hosts": "hosta,hostb"}}

# in the lab's own namespace of processes
MEMORY = """
import os, pathlib, re
pss = []
for p in pathlib.Path("/proc").glob("[0-9]*"):
    try:
        if b"neutron-server" in (p / "cmdline").read_bytes() and int(p.name) != os.getpid():
            pss.append(int(re.search(r"^Pss: *([0-9]+)", (p / "smaps_rollup").read_text(), re.M)[1]))
    except OSError:
        continue
print(len(pss), sum(pss) // 1024)
"""


class NeutronServer:
    """Stands where cloud.StandIn does."""
    name = "neutron-server"

    def __init__(self, cloud):
        self.cloud = cloud

    def write_files(self):
        self.cloud.write("neutron.conf", ini(NEUTRON))
        site = self.cloud.dir / "site"
        (site / "neutron_ibvmig").symlink_to(PROJECT / "neutron_ibvmig")
        (site / "neutron_lab.py").symlink_to(TOP / "openstack/check/neutron_lab.py")
        installed = "site/neutron_ibvmig-0.dist-info"
        self.cloud.write(f"{installed}/METADATA", "Metadata-Version: 2.1\nName: neutron_ibvmig\nVersion: 0\n")
        self.cloud.write(f"{installed}/entry_points.txt", entry_points())

    def sync(self):
        self.cloud.run(*entry("neutron.db.migration.cli", "neutron-db-manage", "--config-file",
                              f"{INSIDE}/neutron.conf"), "upgrade", "heads")

    def start(self):
        self.cloud.service("neutron", "sm", entry("neutron.cmd.eventlet.server", "neutron-server", "--config-file",
                                                  f"{INSIDE}/neutron.conf"), {"PYTHONPATH": f"{INSIDE}/site"})

    def fill(self):
        self.cloud.run(PYTHON, TOP / "openstack/check/networks.py")

    def memory(self):
        """Of its processes: how many, and their memory in MiB, what they share divided among them."""
        processes, mib = self.cloud.lab.sh("sm", PYTHON, "-c", MEMORY).stdout.split()
        return {"processes": int(processes), "pss_mib": int(mib)}

    def told_nova(self, port):
        """Names of the events about that port that Nova has taken, in order."""
        log = (self.cloud.lab.dir / "log/neutron@sm.log").read_text()
        events = [ast.literal_eval(e) for e in re.findall(r"Nova event .*?response: (\{[^{}]*\})", log)]
        return [e["name"] for e in events if e["tag"] == port and e["code"] == 200]


def entry_points():
    """As an installed package has them: the driver's own, and beside it the lab's."""
    setup = configparser.ConfigParser()
    setup.read(PROJECT / "setup.cfg")
    groups = {group: lines.strip() for group, lines in setup["entry_points"].items()}
    groups[DRIVERS] += "\nlab_bridge = neutron_lab:LabMechanismDriver"
    return "".join(f"[{group}]\n{lines}\n" for group, lines in groups.items())
