# SPDX-License-Identifier: GPL-2.0-or-later
"""The lab's process tree: finding it, entering its namespaces, its services, ending it.

One process, the lab's init, is process 1 of a PID namespace of its own. Whatever an interrupted run
left, killing that process removes every process, mount and network of the lab.
"""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys

from . import conf
from .conf import HOST_DIRS, INSIDE, LabError


def start_time(pid):
    """Field 22 of /proc/PID/stat: tells a process from a later one with the same number. None when
    it has ended, even if nobody has reaped it."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
            fields = f.read().rpartition(")")[2].split()
            return None if fields[0] in "ZX" else int(fields[19])
    except (OSError, IndexError):
        return None


def init_pid():
    """The lab's init as seen from here, or None without a lab."""
    state = conf.load("init.json")
    if not state or start_time(state["pid"]) != state["start"]:
        return None
    return state["pid"]


def owner_alive():
    """The process that the lab lives for, or None: without one, without a lab, and once it has ended."""
    owner = (conf.load("lab.json") or {}).get("owner")
    return owner["pid"] if owner and init_pid() and start_time(owner["pid"]) == owner["start"] else None


def inside():
    """Returns whether this process runs in the lab already."""
    return os.environ.get("IBVMIG_LAB") == conf.LAB_DIR


def need_lab():
    pid = None if inside() else init_pid()
    if not pid and not inside():
        raise LabError(f"no lab is up in {conf.LAB_DIR}: run tests/lab/lab up")
    return pid


def host_names():
    return conf.load("lab.json", {}).get("hosts", [])


def prefix(node, cwd=None):
    """The command prefix that runs a program on a node: a host's name, or "sm"."""
    cmd = []
    if not inside():
        cmd += ["nsenter", "-t", str(need_lab()), "--mount", "--pid", "--uts", "--ipc", "--net", "--"]
    elif node == "sm" and os.getpid() != 1:
        cmd += ["nsenter", "-t", "1", "--mount", "--uts", "--net", "--"]
    if node != "sm":
        if node not in host_names():
            known = " ".join(host_names() + ["sm"])
            raise LabError(f"no host {node!r} in this lab; there are: {known}")
        with open(conf.path("hosts", node, "pid"), encoding="utf-8") as f:
            cmd += ["nsenter", "-t", f.read().strip(), "--mount", "--uts", "--net", "--"]
    if cwd:
        cmd += ["env", "-C", cwd]
    return cmd


def environment(extra=None):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("XDG_", "SUDO_", "PYENV"))}
    env.update(
        IBVMIG_LAB=conf.LAB_DIR,
        LAB_DIR=conf.LAB_DIR,
        BUILD=conf.BUILD,
        HOME=f"{INSIDE}/home",
        LC_ALL="C",
        LIBVIRT_DEFAULT_URI="qemu:///system",
        IBSIM_SOCKNAME="lab",
        PATH=f"{conf.BUILD}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    )
    env.update(extra or {})
    return env


def run(node, argv, check=True, timeout=conf.READY_S, **kwargs):
    """Runs a program on a node and returns the CompletedProcess with its text output."""
    try:
        p = subprocess.run(
            prefix(node) + argv, env=environment(), text=True, capture_output=True,
            stdin=kwargs.pop("stdin", subprocess.DEVNULL) if "input" not in kwargs else None,
            timeout=timeout, check=False, **kwargs)
    except subprocess.TimeoutExpired:
        raise LabError(f"{node}: {' '.join(argv)}: no answer within {timeout} s") from None
    if check and p.returncode:
        why = (p.stderr or p.stdout).strip().replace("\n", "; ")
        raise LabError(f"{node}: {' '.join(argv)}: {why or p.returncode}")
    return p


# Services. Each has a file services/NAME@NODE.json, so that a test can kill one and start it again.

def service_define(name, node, argv, env=None, cwd=INSIDE, ready=None):
    """Defines a service. ready says how to see that it is, and service_start() waits for that. The forms are
    {"listens": its AF_UNIX socket on the node} and {"says": a text, "in": a file of LAB_DIR, its log without that}."""
    conf.save(f"services/{name}@{node}.json",
              {"node": node, "argv": argv, "env": env or {}, "cwd": cwd,
               "log": f"log/{name}@{node}.log", "ready": ready or {}})


def service_names():
    return sorted(f[:-5] for f in os.listdir(conf.path("services")) if f.endswith(".json"))


def service_pid(name):
    """The service's process number inside the lab, or None when it does not run."""
    try:
        with open(conf.path("services", name + ".pid"), encoding="utf-8") as f:
            pid = f.read().strip()
    except FileNotFoundError:
        return None
    if not pid:
        return None
    if inside():
        return int(pid) if os.path.exists(f"/proc/{pid}") else None
    p = subprocess.run(prefix("sm") + ["test", "-e", f"/proc/{pid}"], check=False)
    return int(pid) if p.returncode == 0 else None


def service_spec(name):
    spec = conf.load(f"services/{name}.json")
    if not spec:
        raise LabError(f"no service {name!r}; there are: {' '.join(service_names())}")
    return spec


def service_spawn(name, spec):
    # the shell's number is the service's: it notes it down and becomes the service
    script = 'echo $$ >"$0" && exec "$@"'
    argv = prefix(spec["node"], spec["cwd"]) + \
        ["sh", "-c", script, f"{INSIDE}/services/{name}.pid"] + spec["argv"]
    with open(conf.path(spec["log"]), "ab") as log:
        return subprocess.Popen(argv, env=environment(spec["env"]), stdin=subprocess.DEVNULL,
                                stdout=log, stderr=log, start_new_session=True)


def service_start(name):
    """Starts it and waits until it is ready, where its spec tells how that is seen; an early end is noticed at once."""
    spec = service_spec(name)
    ready = ready_probe(spec)
    p = service_spawn(name, spec)

    def check():
        if p.poll() is not None:
            raise LabError(f"{name} ended with {p.returncode}, see {log_file(name)}")
        return ready()

    conf.wait_until(check, conf.READY_S, f"{name}, see {log_file(name)}: ready")


def ready_probe(spec):
    """Made before the start: what an earlier run has said does not count."""
    ready = spec.get("ready") or {}
    if "listens" in ready:
        file = node_file(spec["node"], ready["listens"])
        return lambda: listens(file)
    if "says" in ready:
        file, text = conf.path(ready.get("in", spec["log"])), ready["says"].encode()
        start = os.path.getsize(file) if os.path.exists(file) else 0
        return lambda: text in read_from(file, start)
    return lambda: True


def read_from(path, offset):
    try:
        with open(path, "rb") as f:
            f.seek(offset)
            return f.read()
    except FileNotFoundError:
        return b""


def connect(path):
    """A connected AF_UNIX socket, or None. The path may be too long for an address, so go by the directory."""
    s = socket.socket(socket.AF_UNIX)
    fd = -1
    try:
        fd = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY)
        s.connect(f"/proc/self/fd/{fd}/{os.path.basename(path)}")
        return s
    except OSError:
        s.close()
        return None
    finally:
        if fd >= 0:
            os.close(fd)


def listens(path):
    """Returns whether a server takes connections at this AF_UNIX socket: the socket's file comes before
    that."""
    s = connect(path)
    if s:
        s.close()
    return bool(s)


def node_file(node, path):
    """A file of a node, from where this process is; of a host, one that it has for itself."""
    if node == "sm":
        return path if inside() else f"/proc/{need_lab()}/root{path}"
    for d in HOST_DIRS:
        if path.startswith(f"/{d}/"):
            return conf.path("hosts", node, d.replace("/", "-"), os.path.relpath(path, f"/{d}"))
    raise LabError(f"{path} is not a host's own")


def log_file(name):
    return conf.path("log", name + ".log")


def service_signal(name, number):
    pid = service_pid(name)
    if pid is None:
        return False
    subprocess.run(prefix("sm") + ["kill", f"-{int(number)}", str(pid)], check=False)
    return True


def service_stop(name, number=signal.SIGTERM, seconds=conf.READY_S):
    if service_signal(name, number):
        conf.wait_until(lambda: service_pid(name) is None, seconds, f"{name}: end after signal {number}")


# Up and down, from outside.

def down():
    """Ends the lab of this LAB_DIR, whatever state it is in. True if there was one."""
    pid = init_pid()
    if not pid:
        return False
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return False # the process has just ended by itself
    try:
        # process 1 of a PID namespace is gone only after all others in it
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(fd, signal.SIGKILL)
        if not select.select([fd], [], [], conf.READY_S)[0]:
            raise LabError(f"the lab's init (process {pid}) does not end within {conf.READY_S} s")
    finally:
        os.close(fd)
    return True


def up(config, seconds, owner=None):
    """Starts the lab's init and passes on what it prints until it is ready. With an owner, the lab
    ends when that process does."""
    conf.save("lab.json", {**config, "owner": owner and {"pid": owner, "start": start_time(owner)}})
    out, into = os.pipe()
    fds = [into]
    if owner:
        try:
            fds.append(os.pidfd_open(owner))
        except OSError as e:
            raise LabError(f"process {owner}, for which the lab is to live: {e.strerror}") from None
    argv = ["unshare", "--fork", "--kill-child", "--pid", "--mount", "--uts", "--ipc", "--net",
            "--propagation", "private", sys.executable, "-u", os.path.abspath(sys.argv[0]),
            "--init", *map(str, fds)]
    with open(conf.path("log", "init.log"), "ab") as log:
        child = subprocess.Popen(argv, env=environment(), stdin=subprocess.DEVNULL, stdout=log,
                                 stderr=log, pass_fds=fds, start_new_session=True)
    for fd in fds:
        os.close(fd)
    try:
        for line in lines_of(out, seconds):
            message = json.loads(line)
            if "error" in message:
                raise LabError(message["error"])
            if message.get("ready"):
                return
            conf.say(f"lab: {message['text']}")
        raise LabError(f"the lab's init ended, see {conf.path('log', 'init.log')}")
    except BaseException:
        child.kill()
        down()
        raise
    finally:
        os.close(out)


def lines_of(fd, seconds):
    """The lines that come from fd; LabError when nothing comes for so many seconds."""
    have = b""
    while True:
        if not select.select([fd], [], [], seconds)[0]:
            raise LabError(f"the lab is not ready: no sign of progress for {seconds} s")
        data = os.read(fd, 65536)
        if not data:
            return
        *lines, have = (have + data).split(b"\n")
        yield from lines
