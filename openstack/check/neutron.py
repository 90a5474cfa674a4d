#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""As much of Neutron's API as Nova needs for ports that it is given: networks, ports and their bindings
to several hosts ("binding-extended"), in memory. neutron.py ADDRESS PORT.

Direct ports are bound as ib_hostdev, as our mechanism driver does (openstack/neutron), others to the hosts' bridge
br0."""
import ipaddress
import json
import re
import sys
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from urllib.parse import parse_qs, urlparse

EXTENSIONS = ["binding", "binding-extended", "port-security", "provider"]


def network(name, physnet, cidr):
    net = {"id": str(uuid.uuid5(uuid.NAMESPACE_DNS, name)), "name": name, "status": "ACTIVE", "admin_state_up": True,
           "tenant_id": "lab", "shared": True, "mtu": 1500, "port_security_enabled": False, "router:external": False,
           "provider:network_type": "flat", "provider:physical_network": physnet}
    subnet = {"id": str(uuid.uuid5(uuid.NAMESPACE_DNS, cidr)), "name": name, "network_id": net["id"], "cidr": cidr,
              "ip_version": 4, "enable_dhcp": False, "gateway_ip": None, "dns_nameservers": [], "host_routes": []}
    net["subnets"] = [subnet["id"]]
    return net, subnet


NETWORKS, SUBNETS = zip(network("ib", "ib0net", "10.9.0.0/16"), network("management", "br0", "10.77.0.0/16"))
ports, bindings, lock = {}, {}, Lock()  # bindings[port][host]


class Problem(Exception):
    """(HTTP status, Neutron's name of the error, what)"""


def new_port(given):
    subnet = next(s for s in SUBNETS if s["network_id"] == given["network_id"])
    number = len(ports) + 1
    address = ipaddress.ip_network(subnet["cidr"])[256 + number]
    port = {"id": str(uuid.uuid4()), "name": "", "status": "ACTIVE", "admin_state_up": True, "tenant_id": "lab",
            "mac_address": "52:54:00:77:00:%02x" % number, "device_id": "", "device_owner": "", "security_groups": [],
            "port_security_enabled": False, "resource_request": None, "binding:vnic_type": "normal",
            "binding:host_id": "", "binding:profile": {}, "binding:vif_type": "unbound", "binding:vif_details": {},
            "fixed_ips": [{"subnet_id": subnet["id"], "ip_address": str(address)}]}
    port.update(given)
    port["tenant_id"] = given.get("project_id", port["tenant_id"])
    ports[port["id"]], bindings[port["id"]] = port, {}
    return port


def new_binding(port, host, profile, status):
    direct = port["binding:vnic_type"] == "direct"
    return {"host": host, "vnic_type": port["binding:vnic_type"], "profile": profile or {}, "status": status,
            "vif_type": "ib_hostdev" if direct else "bridge",
            "vif_details": {"port_filter": False, "pkey": "0x8001"} if direct else {"bridge_name": "br0"}}


def show_binding(port, binding):
    """The port's own fields say what its active binding says."""
    port.update({"binding:host_id": binding["host"], "binding:profile": binding["profile"],
                 "binding:vif_type": binding["vif_type"], "binding:vif_details": binding["vif_details"]})


def update_port(port, given):
    port.update(given)
    host = port["binding:host_id"]
    if "binding:host_id" in given:
        bound = new_binding(port, host, port["binding:profile"], "ACTIVE") if host else None
        bindings[port["id"]] = {host: bound} if bound else {}
        if bound:
            show_binding(port, bound)
        else:
            port.update({"binding:vif_type": "unbound", "binding:vif_details": {}})
    return port


def delete_port(port):
    del ports[port["id"]], bindings[port["id"]]


def find_port(ident):
    if ident not in ports:
        raise Problem(404, "PortNotFound", ident)
    return ports[ident]


def find_binding(port, host):
    if host not in bindings[port["id"]]:
        raise Problem(404, "PortBindingNotFound", "%s on %s" % (port["id"], host))
    return bindings[port["id"]][host]


def activate(port, host):
    chosen = find_binding(port, host)
    for binding in bindings[port["id"]].values():
        binding["status"] = "INACTIVE"
    chosen["status"] = "ACTIVE"
    show_binding(port, chosen)
    return chosen


def network_call(ident):
    for net in NETWORKS:
        if net["id"] == ident:
            return 200, {"network": net}
    raise Problem(404, "NetworkNotFound", ident)


def port_call(method, ident, body):
    port = find_port(ident)
    if method == "PUT":
        return 200, {"port": update_port(port, body["port"])}
    if method == "DELETE":
        return 204, delete_port(port)
    return 200, {"port": port}


def binding_call(method, ident, host, verb, body):
    port = find_port(ident)
    if method == "POST":
        given = body["binding"]
        made = new_binding(port, given["host"], given.get("profile"), "INACTIVE")
        bindings[ident][given["host"]] = made
        return 201, {"binding": made}
    if host is None:
        return 200, {"bindings": list(bindings[ident].values())}
    if method == "DELETE":
        bindings[ident].pop(host, None)
        return 204, None
    if verb:
        return 200, {"binding": activate(port, host)}
    if method == "PUT":
        find_binding(port, host).update(body["binding"])
    return 200, {"binding": find_binding(port, host)}


def listing(name, things, query):
    return 200, {name: [t for t in things if all(str(t.get(k)) in v for k, v in query.items() if k in t)]}


def answer(method, path, query, body):
    """(HTTP status, answer) of a call."""
    lists = {"extensions": [{"alias": a, "name": a} for a in EXTENSIONS], "networks": NETWORKS, "subnets": SUBNETS,
             "ports": ports.values()}
    words = path.strip("/").split("/")[1:]
    if words == ["ports"] and method == "POST":
        return 201, {"port": new_port(body["port"])}
    if len(words) == 1 and method == "GET":
        return listing(words[0], lists.get(words[0], []), query)
    if len(words) == 2 and words[0] == "networks":
        return network_call(words[1])
    match = re.fullmatch(r"ports/([^/]+)(?:/(bindings)(?:\.json)?(?:/([^/]+?)(?:\.json)?(?:/(activate))?)?)?",
                         "/".join(words))
    if not match:
        raise Problem(404, "NotFound", path)
    if match[2]:
        return binding_call(method, match[1], match[3], match[4], body)
    return port_call(method, match[1].removesuffix(".json"), body)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def call(self):
        url = urlparse(self.path)
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size)) if size else {}
        try:
            with lock:
                status, said = answer(self.command, url.path.removesuffix(".json"), parse_qs(url.query), body)
        except Problem as e:
            status, name, what = e.args
            said = {"NeutronError": {"type": name, "message": what, "detail": ""}}
        print(self.command, self.path, json.dumps(body), status, flush=True)
        data = b"" if said is None else json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_DELETE = call

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Handler).serve_forever()
