#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Plays the HCA: writes into a guest's registered pages behind QEMU's dirty log.

hca.py RAM-FILE PAGES-JSON VM STOP-MIB: RAM-FILE is the guest's RAM, PAGES-JSON what rdma_hcawrite
says of its pages ({"runs":[[guest physical address, pages],...]}). Fills them with the number of
the pass, one every 50 ms, until VM's migration has no more than STOP-MIB left to send. Most pages
have been sent by then with an old number. Prints the last number."""
import json
import pathlib
import sys
import time

import libvirt

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "guest"))
from hca_pages import HcaPages, map_ram  # noqa: E402

DEADLINE_S = 300


def remaining_mib(domain):
    """Returns the rest that the migration has still to send; None while none runs."""
    try:
        left = domain.jobStats().get("memory_remaining")
    except libvirt.libvirtError:
        return None
    return None if left is None else left / 2**20


def main():
    ram_file, pages_file, vm, stop_mib = sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])
    libvirt.registerErrorHandler(lambda *_: None, None)
    domain = libvirt.open("qemu:///system").lookupByName(vm)
    ram = map_ram(ram_file)
    with open(pages_file) as f:
        pages = HcaPages(json.load(f)["runs"], len(ram))
    newest = 0
    end = time.monotonic() + DEADLINE_S
    print("writing", flush=True)
    while time.monotonic() < end:
        left = remaining_mib(domain)
        if left and left <= stop_mib:
            print(newest)
            return
        newest += 1
        pages.write(ram, newest)
        time.sleep(0.05)
    sys.exit(f"no migration of {vm} came down to {stop_mib} MiB in {DEADLINE_S} s")


main()
