# SPDX-License-Identifier: GPL-2.0-or-later
"""Plays an HCA that writes into a guest's registered pages: through a mapping of the file that is the
guest's RAM (memory-backend-file, share=on). To QEMU that is what DMA of a VF is: no dirty bit tells
of it. The other half is rdma_hcawrite.c."""
import mmap
import struct

PAGE = 4096
WORDS = PAGE // 8
RAM_BELOW_4G = 2 << 30 # q35 puts what is above into another range; these guests are smaller


def page_bytes(number, index):
    """Returns the content that pass `number` (1 to 2^32 - 1) leaves in the page of that index."""
    return struct.pack("<Q", number << 32 | index) * WORDS


class HcaPages:
    """The pages of one region, runs: [[guest physical address, pages], ...]. A RAM file that does not
    hold them all is refused with a ValueError."""

    def __init__(self, runs, ram_bytes):
        self.addresses = [gpa + i * PAGE for gpa, n in runs for i in range(n)]
        for gpa in self.addresses:
            if gpa % PAGE or gpa + PAGE > min(ram_bytes, RAM_BELOW_4G):
                raise ValueError(f"page {gpa:#x} is not in the guest's RAM of {ram_bytes} bytes")

    def write(self, ram, number):
        for index, gpa in enumerate(self.addresses):
            ram[gpa:gpa + PAGE] = page_bytes(number, index)

    def arrived(self, ram):
        """Returns whether each page has been sent with something of the HCA's in it."""
        return all(ram[gpa + 4:gpa + 8] != b"\0\0\0\0" for gpa in self.addresses)

    def stale(self, ram, number):
        """Pages that differ, in any byte, from what pass `number` has left."""
        return sum(ram[gpa:gpa + PAGE] != page_bytes(number, index)
                   for index, gpa in enumerate(self.addresses))


def map_ram(path):
    with open(path, "r+b") as f:
        return mmap.mmap(f.fileno(), 0)
