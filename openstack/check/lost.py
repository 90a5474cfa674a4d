# SPDX-License-Identifier: GPL-2.0-or-later
"""A host of the lab whose power fails, and comes back."""
import json

from check import DONE_S, MOVER
from cloud import BUILD, labconf, wait_for

SERVICES = ("nova-compute", "ibvmigd", "ibvmig-lease", "libvirtd")  # as they end
# What is in a host's memory: its VM, what libvirt and ibvmigd have noted below /run, its VFs' taps.
FORGET = f"""
kill -9 $(cat /run/libvirt/qemu/{MOVER}.pid)
rm -rf /run/libvirt/qemu /run/ibvmig/leases
for n in 1 2 3 4; do ! ip link show tap-pf0vf$n >/dev/null 2>&1 || ip link del tap-pf0vf$n; done
"""


class LostHost:
    def __init__(self, check, name):
        self.check, self.lab, self.name = check, check.lab, name
        number = check.cloud.hosts.index(name)
        self.uplink = f'"leaf{number % 2}"[{1 + number // 2}]'  # tests/lab/iblab/fabric.py

    def service(self, action, name):
        self.lab.lab("service", action, f"{name}@{self.name}")

    def tell_nova(self, word):
        self.check.cloud.openstack("compute", "service", "set", word, self.name, "nova-compute")

    def lose_nova(self):
        """nova-compute ends, and an operator says that the host is lost."""
        self.service("kill", "nova-compute")
        self.tell_nova("--down")

    def off(self):
        """All at once, as far as that can be: nobody on it is to notice that another one has ended."""
        for name in SERVICES[1:]:
            self.service("kill", name)
        self.lab.sh(self.name, "sh", "-ec", FORGET)
        self.link("Unlink", False)
        for vf in self.guids():
            self.lab.sh(self.name, "sh", "-c", 'echo "$0" | "$1" set-guid', json.dumps(vf),
                        BUILD / "tests/lab_provider")

    def guids(self):
        """A card that has power again knows of no vGUID."""
        number = self.check.cloud.hosts.index(self.name)
        return [{"vf": f"pf0vf{n}", "guid": f"{labconf.parked_guid(number, n):#018x}"}
                for n in range(1, 1 + labconf.VFS_PER_PF)]

    def on(self):
        self.link("ReLink", True)
        for name in reversed(SERVICES):
            self.service("start", name)
            if name == "libvirtd":
                wait_for(f"libvirtd of {self.name}", DONE_S, lambda: self.lab.virsh(
                    self.name, "version", check=False).returncode == 0, 0.3)

    # -- its uplink

    def link(self, command, up):
        """And OpenSM knows of it."""
        with open(self.lab.dir / "sm/console", "w", encoding="utf-8") as console:
            console.write(f"{command} {self.uplink}\n")
        wait_for(f"the uplink of {self.name}", DONE_S, lambda: up == any(
            name.startswith(f"{self.name}-") for name, _ in self.lab.fabric_ports().values()), 0.1)
        self.sweep()

    def sweep(self):
        """A heavy sweep from now on, to its end: OpenSM may miss a SIGHUP that comes while another begins."""
        opensm = (self.lab.dir / "services/opensm@sm.pid").read_text().strip()
        before = self.lab.sm_status()["counters"]["heavy_sweeps"]

        def swept():
            now = self.lab.sm_status()
            if now["sm"]["sweeping"]:
                return False
            if now["counters"]["heavy_sweeps"] == before:
                self.lab.sh("sm", "kill", "-HUP", opensm)
                return False
            return now["sm"]["ready"]
        wait_for("a heavy sweep", DONE_S, swept, 1)
