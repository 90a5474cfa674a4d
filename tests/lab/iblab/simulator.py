# SPDX-License-Identifier: GPL-2.0-or-later
"""The ibsim that labs and tests use: the one of tests/lab/ibsim/build where it was built, else the distribution's.

Programs on the fabric are its clients by UMAD2SIM, preloaded; both are of one build."""

import os

TOP = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
BUILT = os.path.join(TOP, "build", "cache", "ibsim")
NO_INFINIBAND = os.path.join(TOP, "build", "cache", "no-infiniband")
IS_BUILT = os.path.exists(os.path.join(BUILT, "key"))
IBSIM = os.path.join(BUILT, "ibsim") if IS_BUILT else "ibsim"
UMAD2SIM = (os.path.join(BUILT, "libumad2sim.so") if IS_BUILT
            else "/usr/lib/x86_64-linux-gnu/umad2sim/libumad2sim.so")


def no_infiniband():
    """Why labs and tests of InfiniBand cannot be, by tests/lab/infiniband; None: they can."""
    try:
        with open(NO_INFINIBAND, encoding="utf-8") as f:
            return f.read().strip()
    except FileNotFoundError:
        return None
