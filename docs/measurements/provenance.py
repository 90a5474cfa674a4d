# SPDX-License-Identifier: GPL-2.0-or-later
"""Of a measurement that has just been made: code, day, machine and load."""
import os
import subprocess
import time
from pathlib import Path

PROBED = "build/cache/kvm"  # tests/lab/deps has booted a kernel: its last line is yes or no


def git(top, *args):
    return subprocess.run(["git", "-C", top, *args], capture_output=True, text=True, check=False).stdout.strip()


def field(path, name):
    """Of a file of "name : value" lines, or None."""
    for line in Path(path).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return None


def commit(top):
    """A + is behind it where the tree has changes; snapshots and what is made of them are none."""
    changes = git(top, "status", "--porcelain", "-uno", "--", ".", ":!docs/measurements", ":!docs/measurements.md")
    head = git(top, "rev-parse", "--short=7", "HEAD")
    return head + "+" * bool(changes) if head else None


def kvm(top):
    """Whether guests run on KVM here, or None."""
    try:
        return (Path(top) / PROBED).read_text().split()[-1] == "yes"
    except (OSError, IndexError):
        return None


def machine(top):
    kib = int(field("/proc/meminfo", "MemTotal").split()[0])
    return {"cpus": os.cpu_count(), "cpu": field("/proc/cpuinfo", "model name"), "memory_gib": round(kib / 2**20),
            "kvm": kvm(top)}


def provenance(top, load=None):
    """The fields of a snapshot that say so; load: averages while it ran, where the report has them."""
    load = load or os.getloadavg()
    return {"commit": commit(top), "date": time.strftime("%Y-%m-%d"), "recorded": None, "machine": machine(top),
            "load": [round(min(load), 1), round(max(load), 1)]}
