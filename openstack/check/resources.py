#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""What a server needs before it is created: flavors, images, ports. resources.py KERNEL INITRD CMDLINE VGUID FLAVORS,
as whom: OS_*. FLAVORS: {NAME: {RESOURCE CLASS: AMOUNT}} as JSON; those of Nova, and others. Prints ids as JSON:
{"images": [two, whose guests see lab.image=0 and 1], "management": port, "ib": port}."""
import json
import sys
import tempfile

import openstack

kernel, initrd, cmdline, vguid, flavors = sys.argv[1:]
cloud = openstack.connect()


def image(name, path, kind, **properties):
    return cloud.image.create_image(name=name, filename=path, disk_format=kind, container_format=kind if
                                    kind != "raw" else "bare", wait=True, **properties).id


def port(network, **options):
    net = cloud.network.find_network(network, ignore_missing=False)
    return cloud.network.create_port(network_id=net.id, project_id=cloud.current_project_id, **options).id


def flavor(name, VCPU, MEMORY_MB, DISK_GB, **others):
    made = cloud.compute.create_flavor(name=name, ram=MEMORY_MB, vcpus=VCPU, disk=DISK_GB)
    wanted = {f"resources:{resource}": str(amount) for resource, amount in others.items()}
    cloud.compute.create_flavor_extra_specs(made, {"hw_rng:allowed": "True", **wanted})


with tempfile.NamedTemporaryFile() as disk:
    disk.truncate(1 << 20)  # nothing is on it: the guest lives in its initrd
    boot = {"kernel_id": image("kernel", kernel, "aki"), "ramdisk_id": image("initrd", initrd, "ari"),
            "hw_rng_model": "virtio"}
    images = [image(f"guest{n}", disk.name, "raw", os_command_line=f"{cmdline} lab.image={n}", **boot)
              for n in range(2)]
for name, resources in json.loads(flavors).items():
    flavor(name, **resources)
print(json.dumps({"images": images, "management": port("management"),
                  "ib": port("ib", binding_vnic_type="direct", binding_profile={"vguid": vguid})}))
