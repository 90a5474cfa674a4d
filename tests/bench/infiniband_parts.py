# SPDX-License-Identifier: GPL-2.0-or-later
"""The report on InfiniBand is made of parts, for the benches behind it run apart and take hours together.

A part is build/bench/infiniband/NAME.json: {part, load_average: [numbers], commit, lines: [{what, goal, value}], and what was
measured}. A line is one thing that must be shown; goal is {most|least|below|above|equals: number}, as in
docs/measurements/snapshot.py. value null says that it was not measured, and is not met.

A part of NAMES that is not there is named as missing, and is not met. Whoever saves a part makes
build/bench/infiniband.json of them; tests/bench/infiniband_report does no more."""
import json
import os
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "docs/measurements"))
sys.dont_write_bytecode = True
from provenance import commit  # noqa: E402
from snapshot import goal_met, value  # noqa: E402

BUILD = Path(os.environ.get("BUILD", TOP / "build")).resolve()
PARTS = BUILD / "bench/infiniband"
REPORT = BUILD / "bench/infiniband.json"
NAMES = {"faults": "make bench-reroutes", "partitions": "make bench-partitions", "time": "make bench-move-time",
         "matrix": "make bench-infiniband", "programs": "make bench-infiniband", "cut": "make bench-cut"}


def line(what, goal, measured):
    return {"what": what, "goal": goal, "value": measured}


def write(path, report):
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(json.dumps(report, indent=1) + "\n")
    new.rename(path)


def load(name):
    """The part as it is, or {}."""
    path = PARTS / f"{name}.json"
    return json.loads(path.read_text()) if path.is_file() else {}


def save(name, lines, **measured):
    if name not in NAMES:
        raise ValueError(f"{name} is no part of the report")
    write(PARTS / f"{name}.json", {"part": name, "commit": commit(TOP), "load_average": list(os.getloadavg()),
                                   "lines": lines, **measured})
    merge()


def loads_of(part):
    load = part.get("load_average") or []
    return load if isinstance(load, list) else [load]


def judged(one):
    """With whether it is met; what cannot be told is not."""
    return one | {"met": value(one.get("value")) is not None and bool(goal_met(one["value"], one["goal"]))}


def merge():
    parts = {name: load(name) for name in NAMES}
    missing = [name for name, part in parts.items() if not part.get("lines")]
    lines = [{"part": name} | judged(x) for name, part in parts.items() for x in part.get("lines", [])]
    lines += [{"part": name, "what": f"all of it: {NAMES[name]}", "goal": None, "value": None, "met": False, "missing": True}
              for name in missing]
    loads = [v for part in parts.values() for v in loads_of(part)]
    report = {"lines": lines, "met": all(x["met"] for x in lines), "missing": missing, "load_average": loads or None,
              **{name: part for name, part in parts.items() if part}}
    write(REPORT, report)
    return report
