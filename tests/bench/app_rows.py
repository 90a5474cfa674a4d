# SPDX-License-Identifier: GPL-2.0-or-later
"""The rows of the application matrix: unmodified programs, how they are called, and what they must say.

In commands, @RUN is ibvmig-run or nothing, @HOST the server's management address, @VF that of its VF
(for librdmacm), and @PORT a port of this run's own. @N is the amount of work: seconds, or messages
(@LAST is the number of the last, from 0)."""
import re
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Row:
    name: str
    transport: str
    server: str         # "" where the client starts it
    client: str
    check: str          # the program's own verification
    must: str           # the client's output must match it
    messages: str = ""  # the first group counts them; of several matches the last
    cm: bool = False    # the server listens by librdmacm
    daemon: bool = False  # the server does not end by itself
    seconds: bool = False # @N is a time; else a number of messages, fitted to this machine
    step: int = 1         # divides that number
    amount: int = 10    # the first @N
    most: int = 1 << 30 # the highest @N
    server_moves: bool = False
    listening: int = 0  # moves of the server that come while it waits for its client
    cannot: str = ""    # the words of a bare run where rxe is not able to do it
    port: int = 0       # the program's, where it takes no other; 0: the run's


NO_CHECK = "none; counts and exit code"
# perftest asks for one completion in so many sends, and counts it as that many, the last of a QP too.
# With another number of messages an end that has sent more on some QPs takes itself for done too
# early.
SIGNALLED = 100
# throughput, and latency by messages or by time
PERFTEST = r"\n\s*\d+\s+(\d+)\s+(?:[\d.]+|inf)\s+(?:[\d.]+|inf)"


def pingpongs():
    """ibverbs-utils: -c compares every byte of every message."""
    for kind, more in (("rc", ""), ("rc", "-e"), ("uc", ""), ("uc", "-e"), ("ud", ""), ("ud", "-e"),
                       ("srq", "-q 4"), ("srq", "-q 4 -e")):
        command = f"@RUN ibv_{kind}_pingpong -p @PORT -g 0 -s 1024 -n @N -c {more}"
        yield Row(f"ibv_{kind}_pingpong {more}".strip(), {"srq": "RC+SRQ"}.get(kind, kind.upper()),
                  command, command + " @HOST", "each byte (-c)", r"@N iters in", r"(\d+) iters in",
                  amount=300)


def perftest(program, options="", transport="RC", cm=False, size=4096, **more):
    size = f"-s {size}" if "atomic" not in program else ""
    how = "-R" if cm else "-x 0"
    seconds = "-e" not in options.split() # perftest counts messages then, or time
    amount = "-D @N -f 1" if seconds else "-n @N"
    command = f"@RUN {program} {how} -u 21 -p @PORT {amount} -F {size} {options}"
    name = " ".join(f"{program} {options} {'-R' if cm else ''}".split())
    return Row(name, transport, command, command + (" @VF" if cm else " @HOST"), NO_CHECK, PERFTEST,
               PERFTEST, cm=cm, seconds=seconds, amount=10 if seconds else 400, step=SIGNALLED, **more)


def perftests():
    for program in ("ib_send_bw", "ib_send_lat", "ib_write_bw", "ib_write_lat", "ib_read_bw",
                    "ib_read_lat", "ib_atomic_bw", "ib_atomic_lat"):
        for cm in (False, True):
            yield perftest(program, cm=cm)
            if "write" not in program: # these know no -e
                yield perftest(program, "-e", cm=cm)
        if program.endswith("_bw"):
            yield perftest(program, "-q 16", size=1024)
            yield perftest(program, "-b")
    yield perftest("ib_atomic_bw", "-A CMP_AND_SWAP")
    yield perftest("ib_send_bw", "-q 16 -e -b", size=1024)
    yield perftest("ib_send_bw", "-q 4 --use-srq", transport="RC+SRQ")
    for program, kind in (("ib_send_bw", "UC"), ("ib_send_lat", "UC"), ("ib_write_bw", "UC"),
                          ("ib_send_bw", "UD"), ("ib_send_lat", "UD")):
        yield perftest(program, f"-c {kind}", transport=kind, size=1024)
    for program in ("ib_send_bw", "ib_read_bw"):
        row = perftest(program, server_moves=True)
        yield replace(row, name=row.name + ", its server moves")


def cm_programs():
    listen = "-p @PORT"
    rping = Row("rping -V", "RC, rdma_cm", f"@RUN rping -s -a 0.0.0.0 {listen} -V -S 200 -C @N",
                f"@RUN rping -c -a @VF {listen} -V -v -S 200 -C @N", "each byte (-V)",
                "rdma-ping-@LAST:", r"rdma-ping-(\d+):", cm=True, amount=200)
    yield rping
    yield replace(rping, name="rping -V, its server moves", server_moves=True)
    # An end posts all that it sends at once, and a suspend drains it: the first moves meet the many
    # connections while they are made.
    ucmatose = Row("ucmatose", "RC, rdma_cm", f"@RUN ucmatose {listen} -C @N -c 40",
                   f"@RUN ucmatose {listen} -C @N -c 40 -s @VF", "number of messages",
                   "return status 0", cm=True, amount=100, most=600)
    yield ucmatose
    yield replace(ucmatose, name="ucmatose, its server moves", server_moves=True)
    # udaddy's -p is a port space. It waits for ever for a datagram that is lost, and of ten QPs and
    # more that send at once rxe loses some. An end posts all at once, and a suspend drains it, so
    # only one move can meet its traffic.
    yield Row("udaddy -c 3, its server moves", "UD, rdma_cm", "@RUN udaddy -C @N -c 3",
              "@RUN udaddy -C @N -c 3 -s @VF", "number of messages", "return status 0", cm=True,
              amount=500, most=16000, port=7174, server_moves=True, listening=2)
    # without -cm1, which its UD tests do not know, qperf addresses by LID, which RoCE has not
    for test, how, transport in (("rc_bw", "-cm1", "RC, rdma_cm"), ("rc_lat", "-cm1", "RC, rdma_cm"),
                                 ("ud_lat", "", "UD")):
        yield Row(f"qperf {how} {test}".replace("  ", " "), transport, "@RUN qperf -lp @PORT",
                  f"@RUN qperf -lp @PORT {how} -t @N @VF {test}", NO_CHECK, rf"{test}:\s+\S+\s+=",
                  daemon=True, seconds=True, cannot="" if how else "failed to create address handle")
    yield Row("fi_pingpong -p verbs -e msg -c", "RC, rdma_cm",
              "@RUN fi_pingpong -p verbs -e msg -c -S 4096 -I @N -B @PORT",
              "@RUN fi_pingpong -p verbs -e msg -c -S 4096 -I @N -P @PORT @VF", "each byte (-c)",
              r"=\d+", cm=False, amount=300)
    yield Row("fi_pingpong -p verbs;ofi_rxm -e rdm -c", "RC, rdma_cm",
              "FI_UNIVERSE_SIZE=4 @RUN fi_pingpong -p \"verbs;ofi_rxm\" -e rdm -c -S 4096 -I @N -B @PORT",
              "FI_UNIVERSE_SIZE=4 @RUN fi_pingpong -p \"verbs;ofi_rxm\" -e rdm -c -S 4096 -I @N "
              "-P @PORT @VF", "each byte (-c)", r"=\d+", amount=300)


def mpi(name, transport, options):
    return Row(name, transport, "",
               "mpirun --allow-run-as-root -np 2 --host 10.77.0.1,10.77.0.2 "
               "--mca plm_rsh_agent /usr/bin/lab_rsh --mca oob_tcp_if_include eth0 "
               f"{options} @RUN mpi_check @N", "each byte (mpi_check)", r"\d+ bytes, 0 wrong",
               r"(\d+) rounds", seconds=True, amount=45)


def mpis():
    """On rxe UCX needs the GID that is not made of an IPv4 address, and libfabric small CQs."""
    ucx = "--mca pml ucx -x UCX_NET_DEVICES=rxe0:1 -x UCX_IB_GID_INDEX=0 -x UCX_TLS="
    yield mpi("OpenMPI on UCX rc_v", "RC+UD", ucx + "rc_v,ud_v,self")
    yield mpi("OpenMPI on UCX ud_v", "UD", ucx + "ud_v,self")
    yield mpi("OpenMPI on libfabric verbs", "RC, rdma_cm",
              "--mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include verbs "
              "-x FI_VERBS_IFACE=eth1 -x FI_UNIVERSE_SIZE=4")


def all_rows():
    return [*pingpongs(), *perftests(), *cm_programs(), *mpis()]


def count_messages(row, output):
    found = re.findall(row.messages, output) if row.messages else []
    return int(found[-1]) if found else None
