# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs one row of the application matrix in two guests: bare, and under the shim with swaps."""
import asyncio
import re
import time

from app_rows import count_messages
from guest_lab import GuestError, ipv4_of

SWAPS = 3
REJECTED_MAX = 3
TRIES = 5       # to make a program run for long enough
FIT_S = 9       # a run that is a number of messages shall take about that long
START_S = 120 # only a fault takes that long
ENDING_S = 30   # for a program that has no QP any more
END_S = 240
FAILED_S = 20   # for the server of a client that has failed
PACKETS = 40    # by so many that arrive at the device, traffic runs. Connecting takes fewer

ARRIVED = "cat /sys/class/infiniband/*/ports/1/hw_counters/rcvd_pkts 2>/dev/null || echo 0"
# a list of the programs' threads: name, kernel function, system call
WHERE = ("for t in /proc/[0-9]*/task/*; do [ -z \"$(cat ${t%/task/*}/cmdline)\" ] || "
         "echo $(cat $t/comm $t/wchan $t/syscall | cut -c1-60); done 2>/dev/null | "
         "grep -v -E '^(sh|init|nc|cat|cut|grep|sleep|guest_|ibvmig-agent) '; true")
LISTENS_CM = "rdma resource show cm_id | grep LISTEN | grep -q ':{port} '"


class Ended(Exception):
    """The programs have ended before all swaps were made."""


class Run:
    """A start of the row's programs. Output and exit code are in files of their guests."""

    count = 0

    def __init__(self, lab, row, amount, shim):
        Run.count += 1
        self.lab, self.row, self.name = lab, row, f"app{Run.count}"
        self.hangs = []
        self.server, self.client = (lab.peer, lab.mover)
        if row.server_moves:
            self.server, self.client = lab.mover, lab.peer
        self.words = {"@RUN": "ibvmig-run" if shim else "", "@PORT": str(row.port or 19000 + Run.count),
                      "@HOST": f"10.77.0.{self.server.number}", "@VF": ipv4_of(self.server.vguid),
                      "@N": str(amount), "@LAST": str(amount - 1)}
        self.port = self.words["@PORT"]

    def fill(self, command):
        for word, value in self.words.items():
            command = command.replace(word, value)
        return " ".join(command.split())

    async def begin(self, guest, role, command):
        name = f"/tmp/{self.name}-{role}"
        await self.lab.meet()
        # a session of its own: what it starts can be ended with it
        await guest.sh(f"echo 'echo $$ >{name}.pid; {command}' >{name}.sh; (setsid sh {name}.sh >{name}.out 2>&1; "
                       f"echo $? >{name}.rc) </dev/null >/dev/null 2>&1 &")

    async def start_server(self):
        if self.row.server:
            await self.begin(self.server, "server", self.fill(self.row.server))
            listens = LISTENS_CM.format(port=self.port) if self.row.cm else f"netstat -tln | grep -q ':{self.port} '"
            await self.server.until(f"{listens} || test -s /tmp/{self.name}-server.rc", START_S)

    async def start_client(self):
        await self.begin(self.client, "client", self.fill(self.row.client))

    async def start(self):
        await self.start_server()
        await self.start_client()

    async def ended(self):
        text = await self.client.sh(f"cat /tmp/{self.name}-client.rc 2>/dev/null; true")
        if self.row.server and not text:
            text = await self.server.sh(f"cat /tmp/{self.name}-server.rc 2>/dev/null; true")
        return bool(text)

    async def ends(self):
        """Returns whether the run has ended, or does so soon."""
        end = time.monotonic() + ENDING_S
        while not await self.ended():
            if time.monotonic() > end:
                return False
            await asyncio.sleep(0.1)
        return True

    async def traffic(self):
        """Until packets arrive. Ended: the programs have, before."""
        end = time.monotonic() + START_S
        enough = any if self.row.transport in ("UC", "UD") else all # no acknowledgements
        base = [await self.arrived(g) for g in self.lab.guests]
        while True:
            now = [await self.arrived(g) for g in self.lab.guests]
            if enough(b >= a + PACKETS for a, b in zip(base, now)):
                return
            if await self.ended():
                raise Ended
            if time.monotonic() > end:
                raise GuestError(f"no traffic within {START_S} s: packets {base} then {now}")
            await asyncio.sleep(0.1)

    async def arrived(self, guest):
        return max(map(int, (await guest.sh(ARRIVED)).split()))

    async def end(self):
        """Exit codes and outputs of client and server. A server that is a daemon is ended."""
        sides = [(self.client, "client")] + ([(self.server, "server")] if self.row.server else [])
        result = []
        for guest, role in sides:
            name = f"/tmp/{self.name}-{role}"
            if role == "server" and self.row.daemon: # nobody is left to tell its exit code
                await self.kill(guest, role)
                result.append((None, await guest.sh(f"tail -c 6000 {name}.out")))
                continue
            failed = result and result[0][0] != 0
            try:
                await guest.until(f"test -s {name}.rc", FAILED_S if failed else END_S)
                code = int(await guest.sh(f"cat {name}.rc"))
            except GuestError:
                code = "still running"
                self.hangs.append(await guest.sh(WHERE))
                await self.kill(guest, role)
            result.append((code, await guest.sh(f"tail -c 6000 {name}.out")))
        return result

    async def kill(self, guest, role):
        name = f"/tmp/{self.name}-{role}"
        await guest.sh(f"test -s {name}.rc || kill -9 -$(cat {name}.pid)")
        await guest.until(f"test -s {name}.rc")

    def fine(self, ends):
        codes = [c for c, _ in ends]
        if self.row.daemon:
            codes = codes[:1]
        return all(c == 0 for c in codes) and bool(re.search(self.fill(self.row.must), ends[0][1]))


def summary(run, ends):
    fine = run.fine(ends)
    out = {"exit_codes": [c for c, _ in ends], "check_passed": fine,
           "messages": count_messages(run.row, ends[0][1])}
    if not fine:
        out["output"] = [text[-700:] for _, text in ends]
    if run.hangs:
        out["hangs"] = run.hangs
    return out


def not_connected(row, ends):
    """perftest -R connects twice, and fails if the second comes before the server listens again."""
    return " -R" in row.client and ends[0][0] != 0 and \
        bool(re.search("REJECTED|Unexpected CM event", ends[0][1]))


async def bare(lab, row):
    """Without shim and swaps, and the amount of work that takes long enough for these."""
    amount, rejected = 4 if row.seconds else row.amount, 0
    while True:
        run = Run(lab, row, amount, False)
        start = time.monotonic()
        await run.start()
        ends = await run.end()
        seconds = time.monotonic() - start
        if not_connected(row, ends) and rejected < REJECTED_MAX:
            rejected += 1
            continue
        result = summary(run, ends)
        if row.seconds or not result["check_passed"] or seconds > FIT_S / 3 or amount >= row.most:
            break
        amount = min(amount * 8, row.most)
    result["seconds"] = round(seconds, 1)
    if rejected:
        result["rejected_before"] = rejected
    fit = row.amount if row.seconds else min(row.most, int(amount * max(1, FIT_S / seconds)) // row.step * row.step)
    return result, fit


def note(record, times):
    record["swaps"] += 1
    record["suspend_ms"].append(times[0])
    record["resume_ms"].append(times[2])


async def swap_all(lab, run, record):
    await run.start_server()
    for _ in range(run.row.listening):
        _, _, times = await lab.swap()
        note(record, times)
    record["swaps_listening"] = record["swaps"]
    await run.start_client()
    await run.traffic()
    while record["swaps"] < SWAPS:
        if await run.ended():
            raise Ended
        suspended, _, times = await lab.swap()
        qps = [a["qps"] for a in suspended]
        # an end that only receives datagrams holds no QP
        concerned = any if run.row.transport.startswith("UD") else all
        if not concerned(qps):
            if await run.ends(): # the run had given its QPs back: not a move of it
                raise Ended
            raise GuestError(f"the swap had no part for it: {qps} QPs")
        note(record, times)
        record["qps"] = qps[0]
        try:
            await run.traffic()
        except Ended:
            if record["swaps"] < SWAPS:
                raise


async def covered(lab, row, amount):
    """Under the shim. Programs that end too early get more to do."""
    tries = rejected = 0
    while tries < TRIES:
        tries += 1
        record = {"amount": amount, "swaps": 0, "suspend_ms": [], "resume_ms": [], "qps": 0}
        run = Run(lab, row, amount, True)
        try:
            await swap_all(lab, run, record)
        except GuestError as e:
            record["error"] = str(e)[:600]
            listed = [u for g in lab.guests for u in (await g.ask("query"))["uncovered"]]
            record["uncovered"] = sorted({u["why"] for u in listed})
        except Ended:
            pass
        ends = await run.end()
        if not record["swaps"] and not_connected(row, ends) and rejected < REJECTED_MAX:
            rejected += 1
            tries -= 1
            continue
        record.update(summary(run, ends))
        if rejected:
            record["rejected_before"] = rejected
        if record["swaps"] >= SWAPS or "error" in record or not record["check_passed"]:
            return record
        amount = min(amount * (2 if row.seconds else 4), row.most)
    record["error"] = "it ended before three swaps, however long it was made"
    return record
