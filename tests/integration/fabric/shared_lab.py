# SPDX-License-Identifier: GPL-2.0-or-later
"""A simulated subnet whose hosts' VFs share the LID of their port, for fabric_shared_port and bench-moves.

ibsim's ports have no GUID tables: umad_guids.so, preloaded in every program on the fabric, plays them."""
import os
import re
import struct

from fabric_lab import BUILD, UMAD2SIM, Lab, Net, equal

CAP = 32  # entries of a table


class HostNet(Net):
    """Hosts with one port each, on leaves and spines: their VFs are no nodes."""

    def __init__(self, hosts=4, slow=()):
        super().__init__(hypervisors=0, slow=slow)
        for n in range(hosts):
            self.attach(f"hv{n}-pf", f"leaf{n % 2}", 1 + n // 2)


def gid(guid):
    return "fe80::" + ":".join(f"{guid:016x}"[i:i + 4] for i in range(0, 16, 4))


def shared(base):
    """The class of a lab (Lab or one like it) in which ports have GUID tables."""

    class SharedLab(base):
        def __init__(self, *args, **kw):
            super().__init__(*args, **kw)
            self.preload = f"{BUILD}/lib/umad_guids.so {UMAD2SIM}"
            self.tables_file = self.dir / "guids"

        def env(self, host=None, **more):
            return super().env(host, IBVMIG_GUID_TABLES=str(self.tables_file), **more)

        def tables(self):
            """Returns the tables of the played ports: {port GUID: [GUID of each entry]}."""
            data = self.tables_file.read_bytes() if self.tables_file.exists() else b""
            size = 8 * (CAP + 1)
            rows = [struct.unpack(f"={CAP + 1}Q", data[i:i + size]) for i in range(0, len(data), size)]
            return {r[0]: list(r[1:]) for r in rows}

        def put_tables(self, rows):
            self.tables_file.write_bytes(b"".join(struct.pack(f"={CAP + 1}Q", port, *t) for port, t in rows.items()))

        def duplicates(self):
            """Whenever a GUID entered a table while another entry showed it."""
            path = self.dir / "guids.duplicates"
            return path.read_text().splitlines() if path.exists() else []

        def shown(self, guid):
            """(port GUID, index) of all entries that show this GUID."""
            return [(port, i) for port, t in self.tables().items() for i, g in enumerate(t) if g == guid]

        def sa_lid(self, source, guid):
            """The DLID of the SA's own path record from a host's port to a GUID; None: it knows no such path."""
            text = self.tool("saquery", "PR", "--sgid-to-dgid", f"{gid(source)}-{gid(guid)}", check=False,
                             host="spare")
            m = re.search(r"dlid\.+(\d+)", text)
            return m and int(m[1])

    return SharedLab


SharedLab = shared(Lab)


class SharedVF:
    """An entry of a host's GUID table."""

    def __init__(self, view, host, index):
        ident = next(i for i, (_, n) in view.ports.items() if n in (host, f"{host}-pf"))
        self.host, self.index, self.name = host, index, f"{host}-vf{index}"
        self.port, self.lid = view.guid[ident], view.lid[ident]
        self.parked = 0x0200000000000000 | self.port << 8 | index

    def json(self, url=True):
        d = {"host": self.host, "vf": self.name, "parked_guid": f"0x{self.parked:016x}",
             "port_guid": f"0x{self.port:016x}", "guid_index": self.index}
        return {**d, "url": f"http://127.0.0.1:1/{self.host}"} if url else d


class SharedVM:
    def __init__(self, lab, n, at):
        self.lab, self.at = lab, at
        self.guid = 0x0002C90300000701 + 2 * n
        self.uuid = f"7f3c1a52-0000-4000-8000-0000000007{n:02}"

    def base(self):
        return {"vguid": f"0x{self.guid:016x}", "vm": self.uuid, "pkey": "0xffff"}

    def bind(self):
        return self.lab.call("POST", "/v1/bind", {**self.base(), "name": "v", **self.at.json()})

    def body(self, to):
        return {**self.base(), "from": self.at.json(False), "to": to.json()}

    def move(self, to, begun=False):
        """The answer of a move that must succeed. begun: ibvmig-sm may have ended it by itself before it is asked."""
        befores = {self.at.lid, to.lid} if begun else {self.at.lid}
        status, r = self.lab.call("POST", "/v1/moves", self.body(to))
        equal((status, r.get("lid_after"), r.get("verified")), (200, to.lid, True), r)
        equal(r["lid_before"] in befores, True, r)
        self.at = to
        return r

    def unbind(self):
        equal(self.lab.call("POST", "/v1/unbind", {"vguid": f"0x{self.guid:016x}", "vm": self.uuid})[0], 200)
