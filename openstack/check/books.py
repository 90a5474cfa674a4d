#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads what the cloud has in its books: books.py SERVER DATABASE, as whom: OS_*. Answers each line of standard input
with one of JSON, until it ends; a start of the openstack client for each would take seconds.

    server         as Nova shows it
    events ACTION  of the server's latest action of that kind:
                   {"request": its id, "events": {NAME: [RESULT, HOST, DETAILS]}}
    migration      the server's latest migration, as Nova lists it
    claims         who has which VF and which resources:
                   {"nova": {HOST: [[PCI ADDRESS, STATUS, SERVER]]} (devices that are not free),
                    "placement": {HOST: {CONSUMER: {RESOURCE CLASS: AMOUNT}}},
                    "neutron": {HOST: [PCI ADDRESS, STATUS]} (bindings of the direct port)}"""
import json
import sys

import openstack
import sqlalchemy

PCI = """SELECT c.host, p.address, p.status, p.instance_uuid FROM pci_devices p JOIN compute_nodes c
         ON c.id = p.compute_node_id WHERE p.deleted = 0 AND p.status <> 'available' ORDER BY p.address"""


class Books:
    def __init__(self, name, database):
        self.cloud = openstack.connect()
        self.server_id = self.cloud.compute.find_server(name, ignore_missing=False).id
        self.engine = sqlalchemy.create_engine(database)

    @staticmethod
    def get(service, path, microversion=None):
        answer = service.get(path, microversion=microversion)
        answer.raise_for_status()
        return answer.json()

    def server(self):
        return self.get(self.cloud.compute, f"/servers/{self.server_id}")["server"]

    def events(self, action):
        path = f"/servers/{self.server_id}/os-instance-actions"
        listed = self.get(self.cloud.compute, path)["instanceActions"]
        request = next(a["request_id"] for a in listed if a["action"] == action)
        shown = self.get(self.cloud.compute, f"{path}/{request}", "2.84")["instanceAction"]["events"]
        return {"request": request, "events": {e["event"]: [e["result"], e["host"], e["details"]] for e in shown}}

    def migration(self):
        listed = self.get(self.cloud.compute, f"/os-migrations?instance_uuid={self.server_id}", "2.59")["migrations"]
        return max(listed, key=lambda m: m["id"])

    def claims(self):
        return {"nova": self.pci_devices(), "placement": self.allocations(), "neutron": self.bindings()}

    def pci_devices(self):
        hosts = {}
        with self.engine.connect() as nova:
            for host, *device in nova.execute(sqlalchemy.text(PCI)):
                hosts.setdefault(host, []).append(device)
        return hosts

    def allocations(self):
        placement = self.cloud.placement
        hosts = {p["name"]: self.get(placement, f"/resource_providers/{p['uuid']}/allocations", "1.20")["allocations"]
                 for p in self.get(placement, "/resource_providers", "1.20")["resource_providers"]}
        return {host: {who: a["resources"] for who, a in held.items()} for host, held in hosts.items() if held}

    def bindings(self):
        network = self.cloud.network
        port = next(p for p in network.ports() if p.binding_vnic_type == "direct")
        listed = self.get(network, f"/ports/{port.id}/bindings")["bindings"]
        return {b["host"]: [b["profile"].get("pci_slot"), b["status"]] for b in listed}


if __name__ == "__main__":
    books = Books(*sys.argv[1:])
    for line in sys.stdin:
        question, *words = line.split()
        print(json.dumps(getattr(books, question)(*words)), flush=True)
