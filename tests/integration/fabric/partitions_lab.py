# SPDX-License-Identifier: GPL-2.0-or-later
"""Partitions on a simulated subnet: P_Key tables as the ports tell them, and the plugin's operations on members."""
import re
import socket
import struct

from fabric_lab import ROOT, WAIT_S

PROTO = (ROOT / "sm-helper/proto/plugin.h").read_text()
NONE, LIMITED, FULL = 0, 1, 2


def number(name):
    return int(re.search(rf"\b{name}\s*=?\s*(0x[0-9a-f]+|\d+)", PROTO)[1], 0)


class Plugin:
    """A client of the plugin's socket, for what ibvmig-sm asks it about partitions."""

    def __init__(self, lab):
        self.path = str((lab.dir / lab.plugin_sock).resolve())

    @staticmethod
    def ask(s, op, body):
        s.send(struct.pack("=IHHII", number("SM_PROTO_MAGIC"), number("SM_PROTO_VERSION"), op, 1, 16 + len(body)) + body)
        return s.recv(1 << 17)

    def call(self, op, body):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            s.settimeout(2 * WAIT_S)
            s.connect(self.path)
            # with the grant of the ibvmig-sm that has the subnet: the end of the status, before two numbers
            owner = self.ask(s, number("SM_OP_STATUS"), b"")[-168:-8]
            self.ask(s, number("SM_OP_OWNER"), owner + struct.pack("=QII", 0, 0, 0))
            reply = self.ask(s, op, body)
        error, = struct.unpack_from("=i", reply, 16)
        self.reason = reply[24:24 + number("SM_REASON_MAX")].split(b"\0")[0].decode()
        return error, reply[24 + number("SM_REASON_MAX"):]

    def memberships(self, *guids):
        """The P_Keys of each GUID, in order."""
        error, data = self.call(number("SM_OP_MEMBERSHIPS"), struct.pack(f"=II{len(guids)}Q", len(guids), 0, *guids))
        if error:
            raise OSError(-error, self.reason)
        most = number("SM_PKEYS_MAX")
        size = (2 + 2 * most + 6 + 7) // 8 * 8
        rows = [struct.unpack_from(f"=H{most}H", data, 24 + i * size) for i in range(len(guids))]
        return [list(r[1:1 + r[0]]) for r in rows]

    def partitions(self):
        """Lines of the policy: (name, P_Key, who, GUID, membership, ours)."""
        error, data = self.call(number("SM_OP_PARTITIONS"), struct.pack("=II", 0, 0))
        total, count, bad_line = struct.unpack_from("=III", data, 16)
        rows = [struct.unpack_from("=QHBBB3x32s", data, 32 + 48 * i) for i in range(count)]
        return bad_line, [(r[5].split(b"\0")[0].decode(), r[1], r[2], r[0], r[3], r[4]) for r in rows]

    def members(self, pkey, members, flags=0):
        """members: {GUID: NONE, LIMITED or FULL}. (error, changed, P_Key SMPs)"""
        body = struct.pack("=HHIII", pkey, flags, 10000, len(members), 0)
        body += b"".join(struct.pack("=QB7x", g, m) for g, m in members.items())
        error, data = self.call(number("SM_OP_MEMBERS"), body)
        return (error, *struct.unpack_from("=II", data, 16)) if not error else (error, 0, 0)


def table(lab, lid, port=None):
    """The P_Key table of a port as it tells it, without the zeros at its end."""
    text = lab.tool("smpquery", "pkeys", str(lid), *([str(port)] if port else []))
    keys = [int(x, 16) for x in re.findall(r"0x[0-9a-f]{4}", "\n".join(
        line.split(":", 1)[1] for line in text.splitlines() if re.match(r"\s*\d+:", line)))]
    while keys and not keys[-1]:
        keys.pop()
    return keys


def pkeys(lab, view, name):
    """(table of a CA port, table of the switch port that it hangs on)"""
    ident = next(i for i, (_, n) in view.ports.items() if n == name)
    switch, port = view.links[(ident, 1)]
    return table(lab, view.lid[ident]), table(lab, view.lid[switch], port)


def policy(text, guids, self_guid=0):
    """The P_Keys of each GUID by a simple partition file: name=number : GUID=membership, ..."""
    out = {g: {0x7fff} for g in guids}
    for name, pkey, members in re.findall(r"(\w+)=(0x\w+)[^:;]*:([^;]*);", text):
        base = int(pkey, 16) & 0x7fff
        for who, how in re.findall(r"(\w+)=(\w+)", members):
            for g in guids:
                if who == "ALL" or (who == "SELF" and g == self_guid) or (who.startswith("0x") and int(who, 16) == g):
                    out[g] = {k for k in out[g] if k & 0x7fff != base} | {base | (0x8000 if how == "full" else 0)}
    return out


def full_tables(lab, view, names):
    return {n: pkeys(lab, view, n) for n in names}
