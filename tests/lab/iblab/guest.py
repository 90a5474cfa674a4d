# SPDX-License-Identifier: GPL-2.0-or-later
"""Commands for guests, over the virtio-serial port that guest/execd.c serves.

A request may be cut anywhere by a migration. It is then sent again, with the same number, to where
the VM runs by then; the guest runs it once and answers again.
"""

import base64
import glob
import os
import shlex
import socket
import time

from . import conf, ns
from .conf import LabError

PORT = "org.ibvmig.lab.0"
RETRY_S = 1.0  # at first, then each time twice that: a guest may need longer for an answer
RETRY_MAX_S = 4.0  # the socket may be that of a QEMU that waits for the VM

quote = shlex.quote


def sockets(vm):
    """The port's sockets of this VM on all hosts: two while it migrates."""
    found = []
    for host in ns.host_names():
        # libvirt cuts long names in its paths
        found += glob.glob(conf.path("hosts", host, "var-lib-libvirt", "qemu", "channel", "target",
                                     f"domain-*-{vm[:20]}", PORT))
        found += glob.glob(conf.path("hosts", host, "run-libvirt", "qemu", "channel",
                                     f"*-{vm[:20]}", PORT))
    return found


def exchange(s, request, number, deadline, patience):
    """Sends the request and reads up to its answer. None when the stream ended or stayed silent."""
    have = b""
    try:
        s.settimeout(patience)
        s.sendall(b"\n" + request)
        while time.monotonic() < deadline:
            try:
                data = s.recv(65536)
            except socket.timeout:
                return None
            if not data:
                return None
            *lines, have = (have + data).split(b"\n")
            for line in lines:
                words = line.split(b" ")
                if len(words) == 3 and words[0] == number:
                    return int(words[1]), base64.b64decode(words[2])
    except OSError:
        pass
    return None


def run(vm, command, timeout=60):
    """(exit code, output) of a shell command in a guest."""
    number = f"{os.getpid()}.{time.monotonic_ns():x}"[-31:].encode()
    request = number + b" " + base64.b64encode(command.encode()) + b"\n"
    deadline, patience = time.monotonic() + timeout, RETRY_S
    while time.monotonic() < deadline:
        paths = sockets(vm)
        if not paths and not ns.inside():
            ns.need_lab()
        for path in paths:
            s = ns.connect(path)
            if not s:
                continue
            asked = time.monotonic()
            with s:
                answer = exchange(s, request, number, deadline, patience)
            if answer:
                return answer
            if time.monotonic() - asked >= patience:
                patience = min(2 * patience, RETRY_MAX_S)
        time.sleep(0.02)
    raise LabError(f"guest {vm}: no answer within {timeout:g} s to: {command}")
