#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""What a server needs before it is created: flavor, image, ports. resources.py KERNEL INITRD CMDLINE VGUID MEMORY_MIB,
as whom: OS_*. Prints their ids as JSON."""
import json
import sys
import tempfile

import openstack

kernel, initrd, cmdline, vguid, memory = sys.argv[1:]
cloud = openstack.connect()


def image(name, path, kind, **properties):
    return cloud.image.create_image(name=name, filename=path, disk_format=kind, container_format=kind if
                                    kind != "raw" else "bare", wait=True, **properties).id


def port(network, **options):
    net = cloud.network.find_network(network, ignore_missing=False)
    return cloud.network.create_port(network_id=net.id, project_id=cloud.current_project_id, **options).id


with tempfile.NamedTemporaryFile() as disk:
    disk.truncate(1 << 20)  # nothing is on it: the guest lives in its initrd
    root = image("guest", disk.name, "raw", kernel_id=image("kernel", kernel, "aki"),
                 ramdisk_id=image("initrd", initrd, "ari"), os_command_line=cmdline, hw_rng_model="virtio")
flavor = cloud.compute.create_flavor(name="small", ram=int(memory), vcpus=1, disk=1)
cloud.compute.create_flavor_extra_specs(flavor, {"hw_rng:allowed": "True", "resources:CUSTOM_IB_VF": "1"})
print(json.dumps({
    "image": root, "flavor": flavor.id,
    "management": port("management"),
    "ib": port("ib", binding_vnic_type="direct", binding_profile={"vguid": vguid})}))
