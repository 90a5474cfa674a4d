# SPDX-License-Identifier: GPL-2.0-or-later
"""The lab's init: builds mounts, networks, hosts and services, then reaps what ends.

Runs as process 1 of its PID namespace, in namespaces that only the lab has.
"""

import json
import os
import select
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from . import conf, fabric, net, ns
from .conf import CACHE, HOST_DIRS, INSIDE, LabError

CAPS = "qemu/capabilities"  # below libvirt's cache: 17 s of probing when it is not there
CAPS_LOCK = os.path.join(CACHE, "libvirt")  # a file that all labs of this tree read and write

# A copy: AppArmor's profile for the system's libvirtd goes by its path and knows nothing of labs.
LIBVIRTD = f"{INSIDE}/home/libvirtd"
LIBVIRTD_CONF = """\
listen_tls = 0
listen_tcp = 1
auth_tcp = "none"
auth_unix_rw = "none"
auth_unix_ro = "none"
listen_addr = "0.0.0.0"
host_uuid = "{uuid}"
keepalive_interval = -1
log_outputs = "3:file:/var/log/libvirt/libvirtd.log"
"""

QEMU_CONF = """\
user = "root"
group = "root"
dynamic_ownership = 0
remember_owner = 0
security_driver = "none"
cgroup_controllers = []
namespaces = []
stdio_handler = "file"
memory_backing_dir = "/var/lib/libvirt/qemu/ram"
"""


class Reporter:
    """The lab's init tells the command that started it in this way: one JSON object a line."""

    def __init__(self, fd):
        self.fd = fd
        self.start = time.monotonic()

    def send(self, message):
        """BrokenPipeError when that command has ended: nobody wants this lab any longer."""
        print(json.dumps(message), flush=True)
        os.write(self.fd, json.dumps(message).encode() + b"\n")

    def say(self, text):
        self.send({"text": f"{text} ({time.monotonic() - self.start:.1f} s)"})


def sh(*argv):
    p = subprocess.run(argv, text=True, capture_output=True, check=False)
    if p.returncode:
        raise LabError(f"{' '.join(argv)}: {p.stderr.strip()}")


def note_pid():
    """Before /proc is ours: the old one tells our number outside."""
    pid = int(os.readlink("/proc/self"))
    conf.save("init.json", {"pid": pid, "start": ns.start_time(pid)})


def mount_own():
    """The lab's own /proc, /run, /dev/shm, and copies of /etc and /var/lib that may be written to."""
    lab = os.open(conf.LAB_DIR, os.O_PATH)
    sh("mount", "-t", "tmpfs", "-o", "mode=755", "lab-run", "/run")
    os.mkdir(INSIDE)
    sh("mount", "--bind", f"/proc/{os.readlink('/proc/self')}/fd/{lab}", INSIDE)
    os.close(lab)
    sh("mount", "-t", "proc", "proc", "/proc")
    sh("mount", "-t", "tmpfs", "lab-shm", "/dev/shm")
    for lower in ("/etc", "/var/lib"):
        own = f"/run/overlay{lower}"
        os.makedirs(f"{own}/upper")
        os.makedirs(f"{own}/work")
        sh("mount", "-t", "overlay", "-o",
           f"lowerdir={lower},upperdir={own}/upper,workdir={own}/work", "overlay", lower)
    for d in HOST_DIRS:
        os.makedirs("/" + d, exist_ok=True)
    os.makedirs("/run/lock", exist_ok=True)
    os.makedirs("/run/netns", exist_ok=True)
    os.makedirs(f"{INSIDE}/home", exist_ok=True)
    libvirtd = shutil.which("libvirtd", path="/usr/sbin:/usr/bin:/sbin")
    if libvirtd:
        shutil.copy(libvirtd, LIBVIRTD)


def mount_qemu(env):
    """A newer QEMU than the system's takes the place of that one."""
    root = env.get("LAB_QEMU_ROOT")
    if not root:
        return {}
    lib = "/usr/lib/x86_64-linux-gnu"
    programs = [f"/usr/bin/{f}" for f in os.listdir(f"{root}/usr/bin") if f.startswith("qemu-system-")]
    for f in (*programs, f"{lib}/qemu", "/usr/share/qemu", "/usr/share/seabios"):
        if os.path.exists(root + f) and os.path.exists(f):
            sh("mount", "--bind", root + f, f)
    # libraries that the system lacks were unpacked with it; libvirt passes this on to QEMU
    extra = [x for x in os.listdir(root + lib) if x != "qemu"]
    return {"LD_LIBRARY_PATH": root + lib} if extra else {}


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def host_dir(host, *parts):
    return os.path.join(INSIDE, "hosts", host, *parts)


def write_host(host, config):
    """The files of one host, below LAB_DIR/hosts/HOST."""
    for d in HOST_DIRS:
        os.makedirs(host_dir(host, d.replace("/", "-")), exist_ok=True)
    etc = host_dir(host, "etc-libvirt")
    with open("/proc/sys/kernel/random/uuid", encoding="utf-8") as f:
        write(f"{etc}/libvirtd.conf", LIBVIRTD_CONF.format(uuid=f.read().strip()))
    write(f"{etc}/qemu.conf", QEMU_CONF)
    install_hook(f"{etc}/hooks/qemu")
    os.makedirs(host_dir(host, "var-lib-libvirt", "qemu", "ram"), exist_ok=True)
    os.makedirs(host_dir(host, "vfs"), exist_ok=True)
    write(host_dir(host, "hosts"), "127.0.0.1 localhost\n" + f"{conf.SM_IP} sm\n" + "".join(
        f"{conf.host_ip(i)} {h}\n" for i, h in enumerate(config["hosts"])))
    caps = os.path.join(CACHE, "libvirt", CAPS)
    with conf.locked(CAPS_LOCK):
        if os.path.isdir(caps):
            shutil.copytree(caps, host_dir(host, "var-cache-libvirt", CAPS), dirs_exist_ok=True)
    write_daemon(host, config)


def install_hook(path):
    """libvirt's hook, taken anew at each lab up."""
    hook = os.path.join(conf.BUILD, "bin", "ibvmig-hook")
    if os.path.exists(hook):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        shutil.copy(hook, path)
        os.chmod(path, 0o755)


def make_certs(hosts):
    certs = [os.path.join(conf.TOP, "hooks", "ibvmig-certs"), "-d", conf.TLS_DIR]
    sh(*certs, "ca")
    sh(*certs, "cert", "sm", conf.SM_IP)
    for i, host in enumerate(hosts):
        sh(*certs, "cert", host, conf.host_ip(i))


def write_daemon(host, config):
    hosts = config["hosts"]
    lines = [f"host-name = {host}",
             f"listen = {conf.host_ip(hosts.index(host))}:{conf.PEER_PORT}",
             "socket = /run/ibvmig/ibvmigd.sock", "state-dir = /var/lib/ibvmig",
             f"provider-exec = {conf.BUILD}/tests/lab_provider",
             "migrate-uri = qemu+tcp://%s/system"]
    if config["fabric"]:
        lines.append(f"sm-url = https://{conf.SM_IP}:{conf.SM_PORT}")
    lines += [f"peer = {h} https://{conf.host_ip(i)}:{conf.PEER_PORT}"
              for i, h in enumerate(hosts) if h != host]
    lines += conf.tls_lines(host, hosts) + config.get("daemon_conf", [])
    write(host_dir(host, "etc-ibvmig", "ibvmigd.conf"), "\n".join(lines) + "\n")


def start_anchor(host):
    """The process whose namespaces are the host: mounts over the lab's, and a name."""
    mounts = [f"mount --bind {host_dir(host, d.replace('/', '-'))} /{d}" for d in HOST_DIRS]
    script = "\n".join([
        "set -e", f"hostname {host}", *mounts,
        f"mount --bind {host_dir(host, 'hosts')} /etc/hosts",
        "mount -t tmpfs -o mode=700 ram /var/lib/libvirt/qemu/ram",
        f"echo {host} >/run/ibvmig/host", "echo up", "exec sleep infinity"])
    p = subprocess.Popen(["nsenter", f"--net=/run/netns/{host}", "--", "unshare", "--mount", "--uts",
                          "--propagation", "private", "--", "sh", "-c", script],
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=ns.environment(),
                         start_new_session=True)
    if p.stdout.readline() != b"up\n":
        raise LabError(f"{host}: its mounts failed, see log/init.log")
    write(host_dir(host, "pid"), f"{p.pid}\n")


def start_libvirt(host, qemu_env):
    ns.service_define("libvirtd", host,
                      [LIBVIRTD, "--listen", "--pid-file", "/run/libvirt/libvirtd.pid"], qemu_env,
                      cwd="/", ready={"listens": "/run/libvirt/libvirt-sock"})
    ns.service_start(f"libvirtd@{host}")
    # answered only when the QEMU driver is ready
    ns.run(host, ["virsh", "version"], timeout=conf.READY_S)


def keep_caps(host):
    """Keeps what libvirt found out about QEMU, for the next lab up."""
    own, cache = host_dir(host, "var-cache-libvirt", CAPS), os.path.join(CACHE, "libvirt", CAPS)
    with conf.locked(CAPS_LOCK):
        if os.path.isdir(own) and set(os.listdir(own)) != set(os.listdir(cache) if os.path.isdir(cache) else []):
            shutil.rmtree(cache, ignore_errors=True)
            shutil.copytree(own, cache)


def start_daemon(host):
    program = os.path.join(conf.BUILD, "bin", "ibvmigd")
    if not os.path.exists(program):
        return False
    env = {"IBVMIG_LOG": os.environ.get("IBVMIG_LOG", "info")}
    ns.service_define("ibvmig-lease", host,
                      [os.path.join(conf.BUILD, "bin", "ibvmig-lease"), "-c", "/etc/ibvmig/ibvmigd.conf"], env,
                      cwd="/", ready={"says": " watches "})
    ns.service_start(f"ibvmig-lease@{host}")
    ns.service_define("ibvmigd", host, [program, "-c", "/etc/ibvmig/ibvmigd.conf"], env, cwd="/",
                      ready={"listens": "/run/ibvmig/ibvmigd.sock"})
    ns.service_start(f"ibvmigd@{host}")
    return True


def build_up(report, config):
    env = conf.lab_env()
    mount_own()
    sh("hostname", "sm")
    qemu_env = mount_qemu(env)
    hosts = config["hosts"]
    make_certs(hosts)
    for host in hosts:
        write_host(host, config)
    net.bring_up(hosts, config["link"])
    for host in hosts:
        start_anchor(host)
    report.say(f"namespaces of {' '.join(hosts)} are up")
    with ThreadPoolExecutor() as pool:
        jobs = [pool.submit(start_libvirt, h, qemu_env) for h in hosts if config["libvirt"]]
        if config["fabric"]:
            jobs.append(pool.submit(fabric.bring_up, hosts, report))
        for job in jobs:
            job.result()
        if config["libvirt"]:
            report.say("libvirt answers on all hosts")
            keep_caps(hosts[0])
        if config["daemons"]:
            if all(pool.map(start_daemon, hosts)):
                report.say("ibvmigd runs on all hosts")
            else:
                report.say("ibvmigd is not built, so it is not started")


def build(fd):
    report = Reporter(fd)
    try:
        build_up(report, conf.load("lab.json"))
        report.send({"ready": True})
    except BrokenPipeError:
        return 1
    except (LabError, OSError, subprocess.SubprocessError) as e:
        report.send({"error": str(e)})
        return 1
    return 0


def end_with(owner):
    """Process 1 that ends takes the whole lab with it."""
    select.select([owner], [], [])
    print("the lab's owner has ended, so the lab ends", flush=True)
    os._exit(0)


def main(fd, owner=None):
    """Process 1 only reaps, from the start: libvirt waits for the end of processes that are not its
    children. A second process builds the lab; what it started stays when it ends."""
    note_pid()
    builder = os.fork()
    if builder == 0:
        sys.exit(build(fd))
    os.close(fd)
    if owner is not None:
        threading.Thread(target=end_with, args=(owner,), daemon=True).start()
    while True:
        pid, status = os.wait()
        if pid == builder and status:
            sys.exit(1)
