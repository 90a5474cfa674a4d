# SPDX-License-Identifier: GPL-2.0-or-later
"""IPoIB in guests that boot with lab.ipoib=1."""
import re

from labtest import WAIT_S, wait_for

MODULES = ("--cmdline", "lab.ipoib=1")
USES_VF = "IPoIB (on rxe0) uses the VF"  # how a dry run tells why the VM goes early
RUN_S = 90  # a program in a guest without KVM; only a fault takes so long


def configure(lab, vm, address):
    """IPoIB's interface comes with the RDMA device; a network manager would do this."""
    wait_for(f"{vm}: ib0", WAIT_S, lambda: not lab.guest(vm, "test -e /sys/class/net/ib0", check=False).returncode)
    lab.guest(vm, f"/usr/bin/ip addr add {address}/24 dev ib0; /usr/bin/ip link set ib0 up")


def pings(lab, vm, address):
    """How many of 3 came back, after a first one. ARP tries for 3 s only, and drops then what waits for it; a busy guest
    may need longer to join ARP's group."""
    lab.guest(vm, "/usr/bin/ip neigh flush dev ib0", check=False)
    wait_for("IPoIB reaches the other guest", WAIT_S, lambda: not lab.guest(
        vm, f"ping -c 1 -w 5 {address}", check=False).returncode, 0.2)
    out = lab.guest(vm, f"ping -c 3 -w {RUN_S // 2} {address}", check=False).stdout
    found = re.search(r"(\d+) packets received", out)
    return int(found[1]) if found else out
