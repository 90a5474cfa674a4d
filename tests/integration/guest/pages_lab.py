# SPDX-License-Identifier: GPL-2.0-or-later
"""A guest whose RAM is a file, and a second QEMU that the guest migrates to. This process maps the file,
too, so that it can play an HCA that writes behind QEMU's dirty log. For guest_pages and
tests/bench/pages."""
import asyncio
import json
import os
import pathlib
import shutil
import sys
import tempfile
import time

from guest_lab import IMAGE, ROOT, Guest, GuestError, lab_env, text_of

sys.path.insert(0, str(ROOT / "tests/guest"))
from hca_pages import PAGE, HcaPages, map_ram  # noqa: E402

BALLAST = {"bytes": 16 << 20, "interval_ms": 5}
# The bandwidth is so low that a busy guest always dirties its ballast again before the last of it
# has been sent. When all of the regions has been sent, it is hardly anything (docs/migration.md,
# Hold).
HELD_MIB_S = 40
CLAMPED = {"max-bandwidth": 4096}
NO_PAIR = "ibvmig-none"  # QEMU unplugs during a migration only what might be of a pair
FREE = {"max-bandwidth": 4 << 30, "downtime-limit": 2000}
CHUNK = 128 << 10
SECONDS = 120  # for what takes 1 s where nothing else runs


class MappedGuest(Guest):
    """A guest whose cables lead nowhere. incoming: the path of the socket that it comes by."""

    def __init__(self, lab, name, incoming=None):
        super().__init__(lab, name, 1, 0x00a1b2fffe000001)
        self.ram_path, self.incoming = str(lab.ram_dir / f"{name}.ram"), incoming

    def wire(self, name):
        return {"addr": {"type": "unix", "path": self.path(f"{name}.sock")}, "server": True}

    def command(self, env, append):
        words = super().command(env, append)
        words[words.index("q35")] = "q35,memory-backend=ram"
        words += ["-object", f"memory-backend-file,id=ram,size={self.lab.memory_mib}M,"
                             f"mem-path={self.ram_path},share=on"]
        return words + (["-incoming", f"unix:{self.incoming}"] if self.incoming else [])


class Region:
    """An rdma_hcawrite in the guest. after: what is done to it before the suspend (a signal's name)."""

    def __init__(self, name, options, env="", after=""):
        self.name, self.options, self.env, self.after = name, options, env, after
        self.hca = None

    async def start(self, guest):
        out = f"/tmp/{self.name}"
        await guest.sh(f"rm -f {out}.*")  # files of another process, whose pages are no longer its own
        await guest.sh(f"({self.env} ibvmig-run rdma_hcawrite {self.options} {out}.pages {out}.json "
                       f">{out}.out 2>&1 & echo $! >{out}.pid) </dev/null >/dev/null 2>&1")
        await guest.until(f"tail -c 3 {out}.pages 2>/dev/null | grep -q ']}}' || "
                          f"! kill -0 $(cat {out}.pid) 2>/dev/null", SECONDS)
        if not (await guest.sh(f"tail -c 3 {out}.pages 2>/dev/null; true")).endswith("]}\n"):
            raise GuestError(f"rdma_hcawrite {self.options}: {await guest.sh(f'cat {out}.out')}")
        text = ""
        while not text.endswith("]}\n"):  # the channel carries so much at a time
            text += await guest.sh(f"tail -c +{len(text) + 1} {out}.pages | head -c {CHUNK}", SECONDS)
        self.hca = HcaPages(json.loads(text)["runs"], guest.lab.memory_mib << 20)

    @property
    def pages(self):
        return len(self.hca.addresses)

    async def signal(self, guest, name):
        """Sends the signal, and returns the process's report."""
        await guest.sh(f"rm -f /tmp/{self.name}.json; kill -{name} $(cat /tmp/{self.name}.pid)")
        return json.loads(await guest.until(f"cat /tmp/{self.name}.json 2>/dev/null", SECONDS))

    async def check(self, guest):
        """Returns the process's findings in its own pages."""
        return await self.signal(guest, "USR1")

    async def end(self, guest):
        await guest.sh(f"kill $(cat /tmp/{self.name}.pid)")
        await guest.until(f"! kill -0 $(cat /tmp/{self.name}.pid) 2>/dev/null", SECONDS)


class Hca:
    """Writes all pages of the regions again and again, from a thread."""

    def __init__(self, ram, regions):
        self.ram, self.regions = ram, regions
        self.number, self.ends, self.task = 0, False, None

    def write(self):
        self.number += 1
        for region in self.regions:
            region.hca.write(self.ram, self.number)

    def run(self):
        while not self.ends:
            self.write()

    async def start(self):
        await asyncio.to_thread(self.write)
        self.task = asyncio.create_task(asyncio.to_thread(self.run))

    async def stop(self):
        """After one more pass, which is the last."""
        self.ends = True
        await self.task
        await asyncio.to_thread(self.write)


class PagesLab:
    """As guest_lab.Lab, with one guest and the QEMU where it goes."""

    def __init__(self, memory_mib):
        self.memory_mib, self.cpus, self.image, self.ipv4 = memory_mib, 1, IMAGE, False
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="ibvmig-pages-"))
        shm = os.statvfs("/dev/shm")  # memory, not a disk, where there is room
        room = shm.f_bavail * shm.f_frsize > 3 * (memory_mib << 20)
        self.ram_dir = pathlib.Path(tempfile.mkdtemp(prefix="ibvmig-pages-",
                                                     dir="/dev/shm" if room else None))
        self.source = MappedGuest(self, "source")
        self.destination = MappedGuest(self, "destination", str(self.dir / "migration.sock"))
        self.suspends = 0

    def relay(self, sender, msg):
        """There is nobody else."""
        sender.host_send({"op": "relay-failed", "to": msg["to"], "error": "no VM has this GID"})

    async def vf_up(self, guest):
        await guest.plug(failover_pair_id=NO_PAIR)
        await guest.hello()
        await guest.rdma_up()

    async def start(self, append=""):
        await self.source.start(lab_env(), append)
        await self.source.ping()
        await self.vf_up(self.source)

    async def order(self, guest, op, **fields):
        return await guest.ask(op, SECONDS, role="mover", migration=f"pages-{self.suspends}",
                               vguids=[text_of(guest.vguid)], deadline_ms=SECONDS * 1000, **fields)

    async def suspend(self):
        self.suspends += 1
        return await self.order(self.source, "suspend")

    async def migration(self, done):
        """Until the source's migration is as done(state) wants it."""
        end = time.monotonic() + SECONDS
        while True:
            state = await self.source.qmp("query-migrate")
            if done(state):
                return state
            if state.get("status") in ("failed", "cancelled", "completed") or time.monotonic() > end:
                raise GuestError(f"migration: {state}")
            await asyncio.sleep(0.02)

    async def sent_once(self, regions):
        """Waits until all of the regions has been sent, with something that the HCA wrote, and pre-copy
        goes on."""
        ram = map_ram(self.destination.ram_path)
        todo = list(regions)

        def done(state):
            if state.get("status") == "active":
                while todo and todo[-1].hca.arrived(ram):
                    todo.pop()
            return state.get("status") == "active" and not todo

        await self.migration(done)
        await self.source.qmp("migrate-set-parameters", **CLAMPED)

    async def migrate(self, regions, held_mib_s=HELD_MIB_S):
        """Late detach, as the daemon does it; the HCA writes until the suspend is ordered. The suspend's
        answer and the number of the HCA's last pass; the guest runs at the destination."""
        g = self.source
        hca = Hca(map_ram(g.ram_path), regions)
        await self.destination.start(lab_env(), "")
        await g.ask("ballast", **BALLAST)
        await g.qmp("migrate-set-parameters", **{"max-bandwidth": held_mib_s << 20,
                                                 "downtime-limit": 1})
        await hca.start()
        try:
            await g.qmp("migrate", uri=f"unix:{self.destination.incoming}")
            await self.sent_once(regions)
        finally:
            await hca.stop()
        for region in regions:
            if region.after:
                await region.signal(g, region.after)
        suspended = await self.suspend()
        await g.unplug()
        await g.ask("ballast", bytes=0)
        await g.qmp("migrate-set-parameters", **FREE)
        await self.migration(lambda s: s.get("status") == "completed")
        await self.destination.ping()
        return suspended, hca.number

    async def resume(self):
        """Another VF at the destination."""
        await self.vf_up(self.destination)
        return await self.order(self.destination, "resume", moved=True)

    async def stop(self):
        await asyncio.gather(self.source.stop(), self.destination.stop(), return_exceptions=True)
        if os.environ.get("KEEP"):
            print(f"# logs are in {self.dir}")
        else:
            shutil.rmtree(self.dir, ignore_errors=True)
        shutil.rmtree(self.ram_dir, ignore_errors=True)
