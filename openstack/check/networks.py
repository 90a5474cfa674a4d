#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Makes the networks that the stand-in has of itself: networks.py, as whom: OS_*. VLAN id 1 is PKey 0x8001."""
import openstack

cloud = openstack.connect()


def network(name, cidr, **provider):
    net = cloud.network.create_network(name=name, shared=True, port_security_enabled=False,
                                       **{f"provider_{key}": value for key, value in provider.items()})
    cloud.network.create_subnet(network_id=net.id, name=name, ip_version=4, cidr=cidr, is_dhcp_enabled=False,
                                gateway_ip=None)


network("ib", "10.9.0.0/16", network_type="vlan", physical_network="ib0net", segmentation_id=1)
network("management", "10.77.0.0/16", network_type="flat", physical_network="br0")
