# SPDX-License-Identifier: GPL-2.0-or-later
"""The simulated InfiniBand fabric: ibsim, OpenSM with our plugin, ibvmig-sm and the data path.

Each hypervisor has a vSwitch of its own with a PF and its VFs behind it. By default there are two spines and two
leaves. `--net mesh` is a mesh of 3 by 2 switches under lash:

    mesh0 - mesh1 - mesh2      hosts at mesh2, 5, 0, 3, 1, 4; ports: 1 right, 2 left, 3 down, 4 up
      |       |       |        All paths have SL 0. When the link between mesh1 and mesh4 is cut, the ring that is left
    mesh3 - mesh4 - mesh5      needs two lanes, and a second cut leaves a line, which needs one.

    spine0  spine1
      |  \\/  |
    leaf0   leaf1          leaf0: hosta hostc ..., and the CA "sm" of the SM
     |        |            leaf1: hostb hostd ..., and the CA "tools" of all other clients
   hosta-vsw  hostb-vsw
    |  |...
   hosta-pf0 hosta-pf0vf1 ... hosta-pf0vf4

With shared-port addresses VFs are no nodes: they are entries of their PF's GUID table, which umad_guids.so plays.
"""

import os
import signal
import subprocess

from . import conf, ns
from .conf import INSIDE, LabError
from .simulator import IBSIM, UMAD2SIM, no_infiniband

LEAF_PORTS = 16
LEAVES = 2
SPINES = 2
UPLINK = 13  # first port of a leaf that leads to a spine
MESH_WIDTH, MESH_SWITCHES = 3, 6
MESH_PORTS = {"right": 1, "left": 2, "down": 3, "up": 4}
MESH_HOST, MESH_CA = 5, 6
MESH_PLACES = [2, 5, 0, 3, 1, 4]  # so two hosts have a path that is beside the first cut and takes another lane
ROUTING = {"tree": "minhop", "mesh": "lash"}
SM_CA = "sm"
TOOLS_CA = "tools"
CONSOLE = f"{INSIDE}/sm/console"
IBSIM_OUT = f"{INSIDE}/log/ibsim@sm.log"
PLUGIN_SOCKET = f"{INSIDE}/sm/plugin.sock"
GUID_TABLES = f"{INSIDE}/sm/guids"

OPENSM_CONF = """\
# sweeps come from traps and signals only: a test counts them
sweep_interval 0
routing_engine {routing}
partition_config_file {inside}/sm/partitions.conf
honor_guid2lid_file TRUE
dump_files_dir {inside}/sm/dump
log_flags 0x03
force_log_flush TRUE
log_max_size 64
transaction_timeout 1000
"""
# On RoCE nothing looks at P_Keys, so all may have the guests'. On InfiniBand the lists say who is a member.
PARTITIONS = {"ib": "Default=0x7fff, ipoib: ALL=full;\n",
              "roce": "Default=0x7fff, ipoib: ALL=full;\nguests=0x0001: ALL=full;\n"}


def vf_name(host, vf):
    """The ibsim node of a VF; vf 0 is the PF."""
    return f"{host}-pf0" + (f"vf{vf}" if vf else "")


def is_shared():
    return conf.load("lab.json")["addresses"] == "shared-port"


def nodes_of(host):
    """The numbers of the host's adapters that are nodes: 0 is the PF's."""
    return range(1 if is_shared() else 1 + conf.VFS_PER_PF)


def tree(link):
    """The ports of its switches, and where a host is attached."""
    for leaf in range(LEAVES):
        for spine in range(SPINES):
            link((f"leaf{leaf}", UPLINK + spine), (f"spine{spine}", leaf + 1))
    link((TOOLS_CA, 1), ("leaf1", LEAF_PORTS))
    link((SM_CA, 1), ("leaf0", LEAF_PORTS))
    ports = {f"leaf{i}": LEAF_PORTS for i in range(LEAVES)} | {f"spine{i}": LEAVES for i in range(SPINES)}
    return ports, lambda i: (f"leaf{i % LEAVES}", 1 + i // LEAVES)


def mesh(link):
    """The same for the mesh."""
    for i in range(MESH_SWITCHES):
        if (i + 1) % MESH_WIDTH:
            link((f"mesh{i}", MESH_PORTS["right"]), (f"mesh{i + 1}", MESH_PORTS["left"]))
        if i + MESH_WIDTH < MESH_SWITCHES:
            link((f"mesh{i}", MESH_PORTS["down"]), (f"mesh{i + MESH_WIDTH}", MESH_PORTS["up"]))
    link((TOOLS_CA, 1), ("mesh1", MESH_CA))
    link((SM_CA, 1), ("mesh0", MESH_CA))
    return {f"mesh{i}": MESH_CA for i in range(MESH_SWITCHES)}, lambda i: (f"mesh{MESH_PLACES[i]}", MESH_HOST)


def netlist(hosts, net="tree"):
    """ibsim's input. The first CA is where clients attach that do not say where."""
    links = {}

    def link(a, b):
        links.setdefault(a[0], {})[a[1]] = b
        links.setdefault(b[0], {})[b[1]] = a

    switches, place = {"tree": tree, "mesh": mesh}[net](link)
    cas = [TOOLS_CA, SM_CA]
    for i, host in enumerate(hosts):
        vsw = f"{host}-vsw"
        switches[vsw] = 2 + conf.VFS_PER_PF
        link((vsw, 1), place(i))
        for vf in nodes_of(host):
            link((vf_name(host, vf), 1), (vsw, 2 + vf))
            cas.append(vf_name(host, vf))
    nodes = [("Hca", 1, n) for n in cas[:1]] + [("Switch", p, n) for n, p in switches.items()]
    nodes += [("Hca", 1, n) for n in cas[1:]]
    text = []
    for kind, ports, name in nodes:
        text.append(f'{kind} {ports} "{name}"')
        # ibsim reads link width and speed from the comment, and takes a port without one as dead
        text += [f'[{port}] "{to}"[{to_port}] # lid 0 4xEDR' for port, (to, to_port) in sorted(links[name].items())]
        text.append("")
    return "\n".join(text)


class Console:
    """ibsim's console: commands into a FIFO, and a token that shows when they were carried out."""

    def __init__(self):
        self.count = 0

    def send(self, *commands):
        self.count += 1
        token = f"# done {os.getpid()}.{self.count}"
        with open(CONSOLE, "w", encoding="utf-8") as f:
            for c in (*commands, token):
                f.write(c + "\n")
                f.flush()
        conf.wait_until(lambda: token in read(IBSIM_OUT), conf.READY_S, "ibsim's console", 0.005)


def read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read()
    except FileNotFoundError:
        return ""


def write(path, text):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def sim_env(node):
    if is_shared():
        return {"LD_PRELOAD": f"{conf.BUILD}/lib/umad_guids.so {UMAD2SIM}", "SIM_HOST": node, "IBVMIG_GUID_TABLES": GUID_TABLES}
    return {"LD_PRELOAD": UMAD2SIM, "SIM_HOST": node}


def make_ibsim():
    """Before the lab's init begins, which looks for it. The distribution's has too few clients for the ports' agents."""
    why = no_infiniband()
    if why:
        raise LabError(f"no InfiniBand here, {why}; labs with --link roce do without it")
    p = subprocess.run([os.path.join(conf.TOP, "tests", "lab", "ibsim", "build")], stdin=subprocess.DEVNULL, check=False)
    if p.returncode:
        raise LabError("the lab's ibsim could not be made; labs with --link roce do without it")


def start_ibsim(hosts):
    write(f"{INSIDE}/sm/net", netlist(hosts, conf.load("lab.json")["net"]))
    os.mkfifo(CONSOLE)
    # the FIFO is opened for writing as well, so that ibsim never sees its end
    ns.service_define("ibsim", "sm", ["sh", "-c", f"exec {IBSIM} -s -S 256 -N 2048 {INSIDE}/sm/net <>{CONSOLE}"],
                      cwd=f"{INSIDE}/sm", ready={"says": "simulator ready"})
    ns.service_start("ibsim@sm")
    commands = []
    for i, host in enumerate(hosts):
        for vf in nodes_of(host):
            # ibsim takes the node's GUID; its port's is that plus one
            node_guid = conf.parked_guid(i, vf) - 1
            commands.append(f'Guid "{vf_name(host, vf)}" {node_guid:#x}')
    Console().send(*commands)


def start_opensm():
    """With our plugin if it is built; without it, ibvmig-sm says what is missing."""
    text = OPENSM_CONF.format(inside=INSIDE, routing=ROUTING[conf.load("lab.json")["net"]])
    lib = os.path.join(conf.BUILD, "lib")
    if os.path.exists(os.path.join(lib, "libibvmigsm.so")):
        text += f"event_plugin_name ibvmigsm\nevent_plugin_options ibvmig-socket={PLUGIN_SOCKET}\n"
    write(f"{INSIDE}/sm/opensm.conf", text)
    write_partitions({})
    env = {**sim_env(SM_CA), "LD_LIBRARY_PATH": lib, "OSM_CACHE_DIR": f"{INSIDE}/sm/cache",
           "OSM_TMP_DIR": f"{INSIDE}/sm/dump", "IBVMIG_FAULT": os.environ.get("IBVMIG_FAULT", "")}
    ns.service_define("opensm", "sm", ["opensm", "-F", f"{INSIDE}/sm/opensm.conf", "-f",
                                       f"{INSIDE}/log/opensm.log"], env, cwd=f"{INSIDE}/sm",
                      ready={"says": "SUBNET UP", "in": "log/opensm.log"})
    ns.service_start("opensm@sm")


def write_partitions(partitions):
    """partitions: {P_Key without the membership bit: {GUID: "full" or "limited"}}"""
    text = PARTITIONS[conf.load("lab.json")["link"]]
    for pkey, members in partitions.items():
        lists = ", ".join(f"{guid}={how}" for guid, how in members.items())
        text += f"tenant{pkey}={pkey}: {lists};\n" if lists else ""
    write(conf.path("sm", "partitions.conf"), text)
    conf.save("sm/partitions.json", partitions)


def set_members(pkey, members):
    """members: {GUID: "full", "limited", or None for no member}. As an operator does it: edits OpenSM's list and has it
    read again; returns when the subnet is as the list says."""
    with conf.locked("sm/partitions.json"):
        partitions = conf.load("sm/partitions.json", {})
        before = partitions.get(pkey, {})
        after = {guid: how for guid, how in {**before, **members}.items() if how}
        if after == before:
            return
        write_partitions({**partitions, pkey: after})
        log = conf.path("log", "opensm.log")
        ups = read(log).count("SUBNET UP")
        if ns.service_signal("opensm@sm", signal.SIGHUP):
            conf.wait_until(lambda: read(log).count("SUBNET UP") > ups, conf.READY_S, "OpenSM reads its partitions")


def start_ibvmig_sm(hosts):
    program = os.path.join(conf.BUILD, "bin", "ibvmig-sm")
    if not os.path.exists(program):
        return False
    write("/etc/ibvmig/ibvmig-sm.conf",
          f"listen = {conf.SM_IP}:{conf.SM_PORT}\nlisten = /run/ibvmig/ibvmig-sm.sock\n"
          f"plugin-socket = {PLUGIN_SOCKET}\nstate-dir = {INSIDE}/sm/state\n"
          f"caching = {os.environ.get('IBVMIG_LAB_CACHING', 'yes')}\naddresses = {conf.load('lab.json')['addresses']}\n"
          + "\n".join(conf.tls_lines("sm", hosts)) + "\n")
    env = {**sim_env(TOOLS_CA), "IBVMIG_FAULT": os.environ.get("IBVMIG_FAULT", "")}
    ns.service_define("ibvmig-sm", "sm", [program, "-c", "/etc/ibvmig/ibvmig-sm.conf"], env,
                      cwd=f"{INSIDE}/sm", ready={"listens": "/run/ibvmig/ibvmig-sm.sock"})
    ns.service_start("ibvmig-sm@sm")
    return True


def start_datapath(hosts):
    """Waits for its first complete pass over the fabric, which it tells on its standard output."""
    program = os.path.join(conf.BUILD, "tests", "lab_datapath")
    if not os.path.exists(program):
        return False
    argv = [program, "--registry", "unix:/run/ibvmig/ibvmig-sm.sock"] + hosts
    if conf.load("lab.json")["link"] == "ib":
        argv.insert(1, "--shared-port" if is_shared() else "--infiniband")
    ns.service_define("datapath", "sm", argv, sim_env(TOOLS_CA), cwd=f"{INSIDE}/sm", ready={"says": "fabric is known"})
    ns.service_start("datapath@sm")
    return True


def start_ports(hosts):
    """An agent for the port of each VF. It tells the guest's device what the SM has made of the port."""
    for host in hosts:
        for vf in range(1, 1 + conf.VFS_PER_PF):
            node, name = vf_name(host, 0 if is_shared() else vf), vf_name(host, vf)
            argv = [os.path.join(conf.BUILD, "tests", "lab_port"), "--netns", f"/run/netns/{host}", "--tap", f"tap-pf0vf{vf}"]
            if is_shared():
                argv += ["--entry", str(1 + vf)]  # 0 is the port's own
            env = {**sim_env(node), "IBVMIG_FAULT": os.environ.get("IBVMIG_FAULT", "")}
            ns.service_define(f"port-{name}", "sm", argv, env, cwd=f"{INSIDE}/sm", ready={"says": "waits for the tap"})
            ns.service_start(f"port-{name}@sm")


def bring_up(hosts, report):
    for d in ("sm/cache", "sm/dump", "sm/state"):
        os.makedirs(f"{INSIDE}/{d}", exist_ok=True)
    start_ibsim(hosts)
    start_opensm()
    report.say("OpenSM has brought the fabric up")
    if start_ibvmig_sm(hosts):
        report.say("ibvmig-sm answers")
    else:
        report.say("ibvmig-sm is not built, so it is not started")
    if not start_datapath(hosts):
        report.say("the data path daemon is not built, so guests cannot talk over VFs")
    if conf.load("lab.json").get("link") == "ib":
        start_ports(hosts)
        report.say("each VF's port has its agent")
