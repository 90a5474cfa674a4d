# SPDX-License-Identifier: GPL-2.0-or-later
"""The lab's networks, all in network namespaces of the lab.

br0 joins the hosts and the guests' management NICs: libvirt's migrations, daemons, ssh-like
traffic. ibdata carries the VFs. It is not a learning switch. Hosts are joined by a full mesh of
veth pairs, one isolated bridge port per other host, so that floods cannot loop. Unicast goes only
where the data path daemon (datapath.c) has put a static entry, which it derives from the
simulated LFTs.
"""

import subprocess

from . import conf

DATA_BRIDGE = "ibdata"


def ip_batch(lines, netns=None):
    cmd = ["ip"] + (["-n", netns] if netns else []) + ["-batch", "-"]
    p = subprocess.run(cmd, input="\n".join(lines) + "\n", text=True, capture_output=True, check=False)
    if p.returncode:
        raise conf.LabError(f"network of {netns or 'sm'}: {p.stderr.strip()}")


def run_in(netns, script):
    p = subprocess.run(["nsenter", f"--net=/run/netns/{netns}", "--", "sh", "-c", script], text=True,
                       capture_output=True, check=False)
    if p.returncode:
        raise conf.LabError(f"network of {netns}: {p.stderr.strip()}")


def mesh_port(host):
    return f"to-{host}"


def bring_up(hosts, link):
    """Creates a namespace for each host and both networks. The caller's own is the node "sm"."""
    ip_batch([f"netns add {h}" for h in hosts])
    for h in hosts:
        # nothing of the host's own on the data bridge; its management is IPv4
        run_in(h, "echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6")
    # MACs are pinned: a bridge that changes its own with its ports stalls connections for a minute
    lines = ["link set lo up", "link add br0 address 02:00:00:00:77:fe type bridge",
             "link set br0 up", f"addr add {conf.SM_IP}/16 dev br0"]
    for h in hosts:
        lines += [f"link add x-{h} type veth peer name up0 netns {h}", f"link set x-{h} master br0 up"]
    for i, a in enumerate(hosts):
        for b in hosts[i + 1:]:
            lines.append(f"link add {mesh_port(b)} mtu {conf.DATA_MTU} netns {a} type veth "
                         f"peer name {mesh_port(a)} mtu {conf.DATA_MTU} netns {b}")
    ip_batch(lines)
    for i, h in enumerate(hosts):
        ip_batch(host_lines(i, h, hosts, link), h)


def host_lines(index, host, hosts, link):
    n = index + 1
    lines = ["link set lo up",
             f"link add br0 address 02:00:00:00:77:{n:02x} type bridge",
             "link set up0 master br0 up", "link set br0 up",
             f"addr add {conf.host_ip(index)}/16 dev br0",
             # snooping alone lets a group have ports; without a querier all other groups are flooded
             f"link add {DATA_BRIDGE} address 02:00:00:00:78:{n:02x} mtu {conf.DATA_MTU} type bridge "
             f"mcast_snooping {int(link == 'ib')} stp_state 0",
             f"link set {DATA_BRIDGE} addrgenmode none", f"link set {DATA_BRIDGE} up"]
    for other in hosts:
        if other == host:
            continue
        port = mesh_port(other)
        lines += [f"link set {port} master {DATA_BRIDGE} addrgenmode none",
                  f"link set {port} type bridge_slave learning off flood off isolated on",
                  f"link set {port} up"]
    return lines
