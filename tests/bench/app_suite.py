# SPDX-License-Identifier: GPL-2.0-or-later
"""pyverbs' own test suite, bare in one guest and under the shim in the other."""
import asyncio
import collections
import json

from guest_lab import GuestError

NAME = "pyverbs test suite"
SUITE_S = 900


async def one(guest, prefix):
    out = "/tmp/pyverbs.json"
    code, text = await asyncio.wait_for(guest.begin(
        f"rm -f {out}; d=$(ls /sys/class/infiniband); {prefix} pyverbs_suite {out} $d 2>&1"), SUITE_S)
    if code:
        raise GuestError(f"pyverbs_suite: exit {code}: {text[-300:]}")
    return json.loads(await guest.sh(f"cat {out}"))


def counts(report):
    return dict(collections.Counter(report["tests"].values()))


def is_new(bare, shim):
    if bare == "ok":
        return shim != "ok"
    return bare in ("skip", None) and shim not in ("ok", "skip", None)


async def run(labs):
    """Passed: what is ok bare is ok under the shim, and nothing else fails that does not fail bare."""
    result = {"name": NAME, "transport": "all", "command": "pyverbs_suite", "passed": False,
              "check": "its own assertions"}
    try:
        lab = await labs.get()
        bare, shim = await asyncio.gather(one(lab.peer, ""), one(lab.mover, "ibvmig-run"))
    except (GuestError, asyncio.TimeoutError) as e:
        result["error"] = repr(e)[:600]
        await labs.drop(NAME)
        return result
    new = {name: f"{shim['tests'].get(name, 'missing')}, bare {bare['tests'].get(name, 'missing')}: "
                 f"{shim['why'].get(name, '')}"
           for name in sorted({*bare["tests"], *shim["tests"]})
           if is_new(bare["tests"].get(name), shim["tests"].get(name))}
    result["bare"] = {"counts": counts(bare), "failures": {
        n: bare["why"].get(n, "") for n, w in bare["tests"].items() if w not in ("ok", "skip")}}
    result["shim"] = {"counts": counts(shim), "new_failures": new,
                      "messages": sum(1 for w in shim["tests"].values() if w == "ok")}
    result["passed"] = not new
    if new:
        result["error"] = f"{len(new)} new failures"
    return result
