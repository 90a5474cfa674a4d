# SPDX-License-Identifier: GPL-2.0-or-later
"""Places of things, how hosts and addresses are named, and the small state that outlives a command."""

import fcntl
import json
import os
import time
from contextlib import contextmanager

TOP = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
BUILD = os.environ.get("BUILD") or os.path.join(TOP, "build")
CACHE = os.path.join(TOP, "build", "cache")
IMAGE = os.environ.get("LAB_IMAGE") or os.path.join(TOP, "build", "lab-image", "initrd.gz")
KERNEL = os.path.join(TOP, "build", "lab-image", "vmlinux")
LAB_DIR = os.path.realpath(os.environ.get("LAB_DIR") or os.path.join(TOP, "build", "lab"))

# Inside the lab LAB_DIR is mounted here, so that paths of sockets stay short.
INSIDE = "/run/lab"
TLS_DIR = INSIDE + "/sm/tls"  # the site's CA and everybody's certificates
DEFAULT_HOSTS = "hosta hostb hostc"
HOSTS_MAX = 6
LINKS = ["ib", "roce"]
NETS = ["tree", "mesh"]
LINK = os.environ.get("LAB_LINK") or "ib"
ADDRESSES = ["prepopulated", "dynamic", "shared-port"]
VFS_PER_PF = 4
PKEYS = ["0xffff", "0x8001"]
READY_S = 120  # for a program to start or end: only a fault takes so long
PEER_PORT = 7611
SM_PORT = 7612
SM_IP = "10.77.0.254"
DATA_MTU = 4200  # room for the IB MTU of 4096 and rxe's headers


# A host's own: directories of LAB_DIR/hosts/HOST that are mounted over these.
HOST_DIRS = ["etc/libvirt", "var/lib/libvirt", "var/log/libvirt", "var/cache/libvirt", "run/libvirt",
             "etc/ibvmig", "run/ibvmig", "var/lib/ibvmig"]


class LabError(Exception):
    """Shown to the user as one line."""


def say(text):
    """Prints; a reader who has gone away (lab up | head) is no reason to fail."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def host_ip(index):
    return f"10.77.0.{index + 1}"


def tls_lines(name, hosts):
    """Returns the lines on TLS in the configuration of a daemon on this node."""
    return [f"tls-cert = {TLS_DIR}/{name}.pem", f"tls-key = {TLS_DIR}/{name}.key", f"tls-ca = {TLS_DIR}/ca.pem",
            "role = peer sm"] + [f"role = peer {h}" for h in hosts]


def vm_ip(number):
    return f"10.77.1.{number}"


def parked_guid(host, vf):
    """The GUID of a VF that no VM has: 0x00fab0fffe00HHVV; vf 0 is the PF."""
    return 0x00FAB0FFFE000000 | (host + 1) << 8 | vf


def guid_text(guid):
    return f"0x{guid:016x}"


def guid_to_mac(guid):
    """The MAC whose modified EUI-64 is guid; None if its middle is not ff:fe."""
    b = guid.to_bytes(8, "big")
    if b[3:5] != b"\xff\xfe":
        return None
    return ":".join(f"{x:02x}" for x in (b[0] ^ 2, b[1], b[2], b[5], b[6], b[7]))


def path(*parts):
    return os.path.join(LAB_DIR, *parts)


def load(name, fallback=None):
    try:
        with open(path(name), encoding="utf-8") as f:
            return json.load(f)
    except FileNotFoundError:
        return fallback


def save(name, value):
    tmp = path(name + ".new")
    with open(tmp, "w", encoding="utf-8") as f:
        json.dump(value, f, indent=1)
        f.write("\n")
    os.rename(tmp, path(name))


@contextmanager
def locked(name):
    """Lets one command at a time change what is behind this name, in LAB_DIR or an absolute path."""
    with open(path(name + ".lock"), "w", encoding="utf-8") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield


def lab_env():
    """Returns what tests/lab/deps found out: QEMU, kernel, accelerator. LAB_QEMU_ROOT of the
    environment is another QEMU than that (`make qemu`)."""
    env = {}
    try:
        with open(os.path.join(CACHE, "lab.env"), encoding="utf-8") as f:
            for line in f:
                key, eq, value = line.strip().partition("=")
                if eq and not key.startswith("#"):
                    env[key] = value
    except FileNotFoundError:
        raise LabError("the lab's QEMU and kernel are not there: run tests/lab/deps") from None
    env["LAB_QEMU_ROOT"] = os.environ.get("LAB_QEMU_ROOT", env.get("LAB_QEMU_ROOT", ""))
    return env


def wait_until(condition, seconds, what, interval=0.02):
    """Polls condition until it is true; LabError after the deadline, naming what."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise LabError(f"{what}: not within {seconds} s")
        time.sleep(interval)
