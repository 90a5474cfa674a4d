# SPDX-License-Identifier: GPL-2.0-or-later
"""Traces that a lab could leave on the machine outside its folder."""
import contextlib
import os
from pathlib import Path

from labtest import WAIT_S, Failure, wait_for

PLACES = ("/run/netns", "/dev/shm", "/run/ibvmig", "/etc/ibvmig", "/var/lib/ibvmig", "/run/lab")


def processes_of(folder):
    """Processes that have the lab's folder in their environment or command line."""
    needle = str(folder).encode()
    found = set()
    for p in Path("/proc").iterdir():
        if not p.name.isdigit() or int(p.name) == os.getpid():
            continue
        try:
            if needle in (p / "environ").read_bytes() or needle in (p / "cmdline").read_bytes():
                found.add(int(p.name))
        except OSError:
            continue
    return found - {os.getppid()}


def traces(folder):
    """{kind: what there is now}, to be handed to nothing_left() later."""
    mounts = [m for m in Path("/proc/self/mounts").read_text().splitlines() if str(folder) in m]
    names = {str(p) for top in PLACES for p in [Path(top), *Path(top).glob("*")] if p.exists()}
    return {"processes": processes_of(folder), "mounts": mounts, "names": names}


def gone(before, folder):
    now = traces(folder)
    left = {"processes": now["processes"], "mounts": now["mounts"], "names": now["names"] - before["names"]}
    return left if any(left.values()) else None


def nothing_left(tap, name, before, folder):
    """Checks that no process, mount or name of the lab in this folder stays, but those that were there before. Names
    of other tests come and go: a moment without any is enough."""
    left = []

    def nothing():
        left[:] = [gone(before, folder)]
        return left == [None]
    with contextlib.suppress(Failure):
        wait_for(name, WAIT_S, nothing)
    tap.check(name, left == [None], left)
