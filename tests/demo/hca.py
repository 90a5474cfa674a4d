#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Plays the HCA: writes into a guest's registered pages behind QEMU's dirty log.

hca.py RAM-FILE PAGES-JSON VM STOP-MIB: maps the file that is the guest's RAM (memory-backend-file,
share=on) and writes a growing number into the first 8 bytes of each page listed in PAGES-JSON
({"pages":[guest physical addresses],...}), a pass every 50 ms, until VM's migration has no more than
STOP-MIB left to send: most pages have been sent by then with an old number. Prints the last number.
A write through this mapping is what DMA of a VF is to QEMU: no dirty bit tells of it."""
import json
import mmap
import struct
import sys
import time

import libvirt

RAM_BELOW_4G = 2 << 30  # q35 puts what is above into another range; the lab's guests are smaller


DEADLINE_S = 90


def remaining_mib(domain):
    """What the migration has still to send; None while none runs."""
    try:
        left = domain.jobStats().get("memory_remaining")
    except libvirt.libvirtError:
        return None
    return None if left is None else left / 2**20


def main():
    ram_file, pages_file, vm, stop_mib = sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])
    libvirt.registerErrorHandler(lambda *_: None, None)
    domain = libvirt.open("qemu:///system").lookupByName(vm)
    with open(pages_file) as f:
        pages = json.load(f)["pages"]
    with open(ram_file, "r+b") as f:
        ram = mmap.mmap(f.fileno(), 0)
    for gpa in pages:
        if gpa % 4096 or gpa + 4096 > min(len(ram), RAM_BELOW_4G):
            sys.exit(f"page {gpa:#x} is not in the guest's RAM of {len(ram)} bytes")
    newest = 0
    end = time.monotonic() + DEADLINE_S
    print("writing", flush=True)
    while time.monotonic() < end:
        left = remaining_mib(domain)
        if left and left <= stop_mib:
            print(newest)
            return
        newest += 1
        for gpa in pages:
            struct.pack_into("<Q", ram, gpa, newest)
        time.sleep(0.05)
    sys.exit(f"no migration of {vm} came down to {stop_mib} MiB in {DEADLINE_S} s")


main()
