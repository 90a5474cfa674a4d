#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Enters the services into keystone's catalogue: catalog.py ADDRESS. Whom it asks and as whom: OS_*."""
import sys

import openstack

SERVICES = [("placement", "placement", "8778"), ("glance", "image", "9292"), ("nova", "compute", "8774/v2.1"),
            ("neutron", "network", "9696")]

cloud = openstack.connect()
for name, kind, place in SERVICES:
    service = cloud.identity.create_service(name=name, type=kind)
    for interface in ("public", "internal", "admin"):
        cloud.identity.create_endpoint(service_id=service.id, interface=interface, region_id="RegionOne",
                                       url=f"http://{sys.argv[1]}:{place}")
