# SPDX-License-Identifier: GPL-2.0-or-later
"""The lab's VMs: small q35 guests whose VF is only named in the domain's metadata."""

import os
import subprocess
from xml.sax.saxutils import escape, quoteattr

from . import conf, fabric, guest, ns
from .conf import INSIDE, LabError

ROOT_PORTS = 6
BOOT_S = 400  # only a fault takes so long
MEMORY_MIN, MEMORY_MAX = 112, 4096  # MiB; below, the image does not fit

DOMAIN = """\
<domain type='{type}'>
  <name>{name}</name>
  <metadata>{metadata}</metadata>
  <memory unit='MiB'>{memory}</memory>
  {backing}
  <vcpu>1</vcpu>
  <os><type arch='x86_64' machine='q35'>hvm</type>
    <kernel>{kernel}</kernel>
    <initrd>{initrd}</initrd>
    <cmdline>{cmdline}</cmdline></os>
  <features><acpi/></features>
  <cpu mode='{cpu}'/>
  <on_poweroff>destroy</on_poweroff><on_crash>destroy</on_crash>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <controller type='pci' index='0' model='pcie-root'/>
{ports}
    <controller type='usb' model='none'/>
    <interface type='bridge'>
      <mac address='{mac}'/><source bridge='br0'/><model type='virtio'/><rom enabled='no'/>
    </interface>
    <serial type='file'><source path='{serial}' append='on'/><target port='0'/></serial>
    <channel type='unix'><target type='virtio' name='org.ibvmig.0'/></channel>
    <channel type='unix'><target type='virtio' name='org.ibvmig.lab.0'/></channel>
    <memballoon model='none'/>
    <rng model='virtio'><backend model='random'>/dev/urandom</backend></rng>
  </devices>
</domain>
"""


def all_vms():
    return conf.load("vms/vms.json", {})


def spec_of(name):
    spec = all_vms().get(name)
    if not spec:
        raise LabError(f"no VM {name!r}; there are: {' '.join(all_vms()) or 'none'}")
    return spec


def free_number():
    used = {v["number"] for v in all_vms().values()}
    for n in range(1, 255):
        if n not in used:
            return n
    raise LabError("254 VMs are defined: undefine one first")


def metadata(args, vguids):
    if args.metadata:
        return args.metadata
    if not vguids:
        return ""
    strategy = f" strategy='{args.strategy}'" if args.strategy else ""
    vfs = "".join(f"<ibvmig:vf pf={quoteattr(args.pf)} vguid={quoteattr(vguid)} pkey={quoteattr(args.pkey)} "
                  f"index='{i}'{strategy}/>" for i, vguid in enumerate(vguids))
    return f"<ibvmig:vfs xmlns:ibvmig='urn:ibvmig:1'>{vfs}</ibvmig:vfs>"


def domain_xml(spec, meta, shared):
    env = conf.lab_env()
    kvm = env["LAB_ACCEL"] == "kvm"
    kernel = conf.KERNEL if os.path.exists(conf.KERNEL) else env["LAB_KERNEL"]
    backing = "<memoryBacking><source type='file'/><access mode='shared'/></memoryBacking>"
    return DOMAIN.format(
        type="kvm" if kvm else "qemu", cpu="host-passthrough" if kvm else "maximum",
        name=spec["name"], metadata=meta, memory=spec["memory"], mac=spec["mac"],
        backing=backing if shared else "", kernel=kernel, initrd=conf.IMAGE,
        cmdline=escape(f"console=ttyS0 panic=-1 quiet mitigations=off nokaslr no_timer_check lab.ip={spec['ip']}/16 lab.name={spec['name']} "
                       f"lab.link={spec['link']} {spec['cmdline']}".strip()),
        ports="\n".join(f"    <controller type='pci' index='{i}' model='pcie-root-port'/>"
                        for i in range(1, 4 + ROOT_PORTS)),
        serial=f"{INSIDE}/vms/{spec['name']}.serial.log")


def define(args):
    if not MEMORY_MIN <= args.mem <= MEMORY_MAX:
        raise LabError(f"--mem {args.mem}: {MEMORY_MIN} to {MEMORY_MAX} MiB")
    of_lab = conf.load("lab.json")["link"]
    link = args.link or of_lab
    if link == "ib" and of_lab != "ib":
        raise LabError("--link ib: the lab is up for RoCE alone; bring it up with lab up --link ib")
    make_image()
    with conf.locked("vms/vms.json"):
        vms = all_vms()
        if args.name in vms:
            raise LabError(f"VM {args.name} is defined already: lab vm undefine {args.name} first")
        n = free_number()
        auto = conf.guid_text(0x00A1B2FFFE000100 + n)
        vguids = [auto if vguid == "auto" else vguid for vguid in args.vguid]
        spec = {"name": args.name, "number": n, "host": args.host, "memory": args.mem, "vguids": vguids,
                "mac": f"52:54:00:77:00:{n:02x}", "ip": conf.vm_ip(n), "link": link,
                "cmdline": args.cmdline}
        xml = domain_xml(spec, metadata(args, vguids), args.shared_mem)
        with open(conf.path("vms", args.name + ".xml"), "w", encoding="utf-8") as f:
            f.write(xml)
        ns.run(args.host, ["virsh", "define", f"{INSIDE}/vms/{args.name}.xml"])
        # also for a guest with RoCE: the daemons ask the subnet manager in any case
        if of_lab == "ib" and vguids and not args.metadata:
            join_partition(args.pkey, vguids)
        vms[args.name] = spec
        conf.save("vms/vms.json", vms)
    conf.say(f"lab: {args.name} is defined on {args.host}: {args.mem} MiB, management {spec['ip']}"
          + "".join(f", vGUID {vguid}" for vguid in vguids))


def join_partition(pkey, vguids):
    """The tenant's partition has the VM's vGUIDs as members before the VM starts."""
    value = int(pkey, 16)
    if value & 0x7FFF != 0x7FFF: # everybody is in the default partition
        how = "full" if value & 0x8000 else "limited"
        fabric.set_members(f"0x{value & 0x7fff:04x}", dict.fromkeys(vguids, how))


def make_image():
    p = subprocess.run([os.path.join(conf.TOP, "tests", "lab", "guest", "mkimage")], check=False)
    if p.returncode:
        raise LabError("the guests' image could not be built")


def where(name):
    """The host on which the VM runs, or None."""
    for host in ns.host_names():
        p = ns.run(host, ["virsh", "domstate", name], check=False)
        if p.stdout.split()[:1] in (["running"], ["paused"]):
            return host
    return None


def start(names, wait=True):
    make_image()
    for name in names:
        ns.run(spec_of(name)["host"], ["virsh", "start", name])
    if wait:
        for name in names:
            guest.run(name, "true", BOOT_S)
            conf.say(f"lab: {name} is up")


def destroy(name):
    host = where(name) if spec_of(name) else None
    if host:
        ns.run(host, ["virsh", "destroy", name])


def undefine(name):
    destroy(name)
    for host in ns.host_names():
        ns.run(host, ["virsh", "undefine", name], check=False)
    with conf.locked("vms/vms.json"):
        vms = all_vms()
        vms.pop(name, None)
        conf.save("vms/vms.json", vms)


def migrate(name, host, options):
    source = where(name)
    if not source:
        raise LabError(f"VM {name} does not run")
    argv = ["virsh", "migrate", "--live", "--p2p", *options, name, f"qemu+tcp://{host}/system"]
    p = ns.run(source, argv, check=False, timeout=600)
    if p.returncode:
        raise LabError(f"{name} stays on {source}: {p.stderr.strip()}")
    conf.say(f"lab: {name} moved from {source} to {host}")
