#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""What `server migration show` says of a server's next live migration while it runs: progress.py SERVER, as whom: OS_*.
Prints "ready", and at once what differs from all before, as a line of JSON: {status, memory_total_bytes,
memory_remaining_bytes, ...}."""
import json
import sys
import time

import openstack

AWAIT_S = 600
KEYS = ("status", "memory_total_bytes", "memory_processed_bytes", "memory_remaining_bytes")
cloud = openstack.connect()
server = cloud.compute.find_server(sys.argv[1], ignore_missing=False).id
seen, end = [], time.monotonic() + AWAIT_S
print("ready", flush=True)
while time.monotonic() < end:
    under_way = cloud.compute.get(f"/servers/{server}/migrations", microversion="2.80").json()["migrations"]
    if seen and not under_way:
        break
    for migration in under_way:
        shown = {key: migration[key] for key in KEYS}
        if shown not in seen:
            seen.append(shown)
            print(json.dumps(shown), flush=True)
    time.sleep(0.5)
