#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Aborts a server's live migration while ibvmigd holds it: abort.py SERVER DAEMON_URL CERTIFICATES, as whom: OS_*.
By the REST APIs: a start of the openstack client takes longer than a hold. Prints the state in which it was."""
import json
import ssl
import sys
import time
import urllib.request

import openstack

server, url, certificates = sys.argv[1:]
HOLD_S = 300  # a loaded machine's Nova needs minutes until libvirt is asked
tls = ssl.create_default_context(cafile=f"{certificates}/ca.pem")
tls.load_cert_chain(f"{certificates}/nova.pem", f"{certificates}/nova.key")
cloud = openstack.connect()
server = cloud.compute.find_server(server, ignore_missing=False).id


def state():
    with urllib.request.urlopen(f"{url}/v1/vms/{server}", context=tls) as answer:
        migration = json.load(answer).get("migration") or {}
    return None if migration.get("ended") else migration.get("state")


print("ready", flush=True)
end = time.monotonic() + HOLD_S
while state() != "HOLD":
    if time.monotonic() > end:
        sys.exit(f"no HOLD within {HOLD_S} s; the last state was {state()}")
    time.sleep(0.02)
place = f"/servers/{server}/migrations"
migration = cloud.compute.get(place, microversion="2.80").json()["migrations"][0]["id"]
answer = cloud.compute.delete(f"{place}/{migration}", microversion="2.24")
if answer.status_code != 202:
    sys.exit(f"not aborted: {answer.text}")
print(state())
