# SPDX-License-Identifier: GPL-2.0-or-later
"""What of the report of each bench stands in which snapshot: {snapshot: (report below build/, function)}.

Each function makes rows of a report: {case: {column: cell, unit: ...}}. Cases are those of the snapshot that is there
already, whose goals, sources and texts stay."""
import re
import statistics
from collections import Counter

NETS = ("324", "648", "5832", "11664")


def round_to(v, digits):
    return round(v, digits) if digits else round(v)


def over(values, scale=1, digits=0):
    """Median and range of a list."""
    v = [x * scale for x in values if x is not None]
    if not v:
        return None
    return {"median": round_to(statistics.median(v), digits), "range": [round_to(min(v), digits), round_to(max(v), digits)]}


def told(spread, digits=0):
    """Of a report's own {min, median, max}."""
    return spread and {"median": round_to(spread["median"], digits),
                       "range": [round_to(spread["min"], digits), round_to(spread["max"], digits)]}


def best_of(median, best, scale=1e-3, digits=1):
    return {"median": round_to(median * scale, digits), "range": [round_to(best * scale, digits), None]}


def worst_of(median, worst, scale=1e-3, digits=2):
    return {"median": round_to(median * scale, digits), "range": [None, round_to(worst * scale, digits)]}


def values(unit_of):
    """Rows of one number each: {case: (value, unit)}."""
    return {case: {"value": v, "unit": unit} for case, (v, unit) in unit_of.items()}


def messages(r):
    return sum(r[f"messages_{k}"] for k in ("lost", "duplicated", "corrupt"))


# -- the outage

def outage(r):
    early = next((m["record"]["data"] for m in r["details"] if m["strategy"] == "early"), {})
    moved = early.get("move") or {}
    return {
        "outage": {"unit": "ms", "late": over(r["outages_ms"]), "early": round(r["early_outage_ms"])},
        "VF away, detach to attach, of the worst": {"unit": "ms", "late": round(r["detach_to_attach_ms"]),
                                                    "early": round(early["detach_to_attach_us"] / 1000)},
        "connected again, of the worst": {"unit": "ms", "late": round(r["resume_ms"])},
        "worst late outage to the early one": {"unit": "ratio", "late": r["late_to_early"]},
        "pre-copy with the VF attached, the shortest": {"unit": "ms", "late": round(r["precopy_ms"])},
        "suspend, of the worst": {"unit": "ms", "late": round(r["quiesce_ms"])},
        "VM stopped, of the worst": {"unit": "ms", "late": r["vm_downtime_ms"]},
        "LFT SMPs of a move": {"unit": "SMPs", "late": r["lft_smps"], "early": moved.get("lft_smps")},
        "switches updated, of all": {"unit": "switches", "late": {"of": [r["switches_updated"], r["switches_total"]]}},
        "heavy sweeps caused": {"unit": "sweeps", "late": r["heavy_sweeps_caused"]},
        "PathRecord requests at OpenSM": {"unit": "requests", "late": r["sa_queries_after_migration"]},
        "messages sent in the whole run": {"unit": "messages", "late": r["messages_sent"]},
        "messages lost, doubled or changed": {"unit": "messages", "late": messages(r)}}


def soak(r):
    times = (("outage that the application saw", "outage_ms"), ("VM stopped", "vm_downtime_ms"), ("quiesce", "quiesce_ms"),
             ("device_del to DEVICE_DELETED", "detach_ms"), ("detach to attach", "detach_to_attach_ms"),
             ("GUIDs and LID moved, verified", "move_ms"), ("resume", "resume_ms"))
    return values({
        **{case: (told(r[key]), "ms") for case, key in times},
        "migrations that succeeded, of all": ({"of": [r["succeeded"], r["asked"]]}, "migrations"),
        "messages sent": (r["messages_sent"], "messages"), "messages received": (r["messages_received"], "messages"),
        "messages lost, doubled or changed": (messages(r), "messages")})


def hold(r):
    def row(rate, runs):
        def of(key, scale, digits=0):
            return over([m[key] for m in runs], scale, digits)
        return {"written": int(rate), "outage": of("outage_us", 1e-3), "passes": of("hold_passes", 1),
                "left": of("hold_remaining_bytes", 1 / 2**20), "hold": of("hold_us", 1e-6, 1)}
    return {f"{rate} MiB/s" if int(rate) else "nothing": row(rate, runs) for rate, runs in r["writes_mib_s"].items()}


def pre_attach(r):
    pre, add = ("pre", "add") if r["property"] == "failover_pair_id" else ("late_pre", "late_add")
    return {case: {column: over([m[key] for m in r["migrations"][name]], 1e-3)
                   for column, name in ((pre, "pre-attach"), (add, "device_add")) if name in r["migrations"]}
            for case, key in (("attach", "attach_us"), ("port ACTIVE after", "port_active_us"), ("outage", "outage_us"))}


# -- the guest

def qps_case(row):
    return f"{row['qps']:,} / {row['regions']:,}"


def qps_part(r, pattern):
    return next((p for name, p in r.items() if re.fullmatch(pattern, name)), {"rows": [], "ratio_4096_to_64": {}})


def qps_played(r):
    last = {qps_case(x): x for x in qps_part(r, r"played, [1-9]\d* us a call, port last")["rows"]}
    return {qps_case(x): {"qps": x["qps"], "regions": x["regions"], "resume": round(x["resume_us"] / 1000, 1),
                          "before": round(100 * x["before"]), "resume_port": round(last[qps_case(x)]["resume_us"] / 1000, 1),
                          "before_port": round(100 * last[qps_case(x)]["before"])}
            for x in qps_part(r, r"played, [1-9]\d* us a call")["rows"] if qps_case(x) in last}


def qps_cost(r):
    out = {}
    for case, pattern in (("played, calls of 100 us", r"played, 100 us a call"),
                          ("played, calls of 100 us, port last", r"played, 100 us a call, port last"),
                          ("played, calls that take no time", "played, no time a call"), ("two guests over rxe", "guests.*")):
        part = qps_part(r, pattern)
        if part["rows"]:
            share = [100 * x["before"] for x in part["rows"] if x["regions"] == 1]
            out[case] = {**part["ratio_4096_to_64"], "share": over(share)}
    return out


def qps_guests(r):
    return {qps_case(x): {"qps": x["qps"], "regions": x["regions"], "quiesce": round(x["quiesce_us"] / 1000),
                          "resume": round(x["resume_us"] / 1000), "before": round(100 * x["before"])}
            for x in qps_part(r, "guests.*")["rows"]}


def pages(r):
    runs = {(x["pass"], len(x["regions"]) > 1): x for x in r["runs"]}

    def stale(many):
        unit = {"unit": "pages"}
        return unit | {column: {"of": [sum(p["stale"] for p in runs[on, many]["regions"]), sum(p["pages"] for p in runs[on, many]["regions"])]}
                       for column, on in (("on", True), ("off", False))}
    alone = runs[True, False]["times"][0]
    return {"stale pages of twelve regions": stale(True), "stale pages of 512 MiB": stale(False),
            "bytes dirtied, twelve regions": {"unit": "bytes", "on": runs[True, True]["dirtied_bytes"]},
            "the pass, twelve regions": {"unit": "ms", "on": round(runs[True, True]["dirty_us"] / 1000, 1)},
            "the pass, 512 MiB, dirty log on": {"unit": "ms", "on": round(runs[True, False]["dirty_us"] / 1000, 1)},
            "the pass, 512 MiB, no migration": {"unit": "ms", "on": round(alone["dirty_us"] / 1000, 1)},
            "the same, by size": {"unit": "ms/GiB", "on": alone["ms_per_gib"]}}


def checked(r):
    total = r["total"]
    return values({
        "moves, of those asked for": ({"of": [r["swaps"], r["asked"]]}, "moves"), "QPs": (sum(r["qps"]), "QPs"),
        "messages": (total["sent"], "messages"), "READs": (sum(p["reads"] for p in r["programs"]), "READs"),
        "WRITEs": (sum(p["writes"] for p in r["programs"]), "WRITEs"), "markers": (r["markers"], "markers"),
        "lost, doubled or changed": (sum(total[k] for k in ("lost", "duplicated", "corrupt")), "messages"),
        "suspends refused": (len(r["refused"]), "suspends"), "suspend": (told(r["suspend_ms"]), "ms"),
        "suspend, 99%": (r["suspend_ms"]["p99"], "ms"), "NIC away": (told(r["nic_ms"]), "ms"), "resume": (told(r["resume_ms"]), "ms")})


def shim(r):
    i = {k: round(v["added"], 1) for k, v in r["instructions"].items()}
    calls = r["on_the_data_path"]
    return {case: {"added": v} for case, v in (
        ("post of a SEND, one SGE", i["post_send"]), ("poll of its completion", i["poll_cq_send"]),
        ("post and poll of a SEND", round(r["added_instructions"]["send_pair"], 1)), ("post of a receive", i["post_recv"]),
        ("poll of a receive", i["poll_cq_recv"]), ("poll of nothing", i["poll_cq_empty"]),
        ("post of a WRITE", i["post_send_write"]), ("post of inline data", i["post_send_inline"]),
        ("system calls", calls.get("syscalls")), ("allocations", calls.get("allocations")))}


def perftest(r):
    return {name: {"unit": p["unit"].split(",")[0], "without": over(p["runs_without"], 1, 1), "with": over(p["runs_with"], 1, 1)}
            for name, p in r["perftest"].items() if isinstance(p, dict)}


def apps(r):
    rows = r["rows"]
    suite = next((x for x in rows if x["command"] == "pyverbs_suite"), None)
    moved = [x["shim"] for x in rows if x.get("shim", {}).get("suspend_ms")]

    def every(key):
        return over([ms for m in moved for ms in m[key]])
    out = {"rows that passed, of all": ({"of": [r["passed"], r["of"]]}, "rows"),
           "rows that failed": (r["of"] - r["passed"] - r["cannot"], "rows"),
           "rows that rxe cannot run (qperf ud_lat)": (r["cannot"], "rows"),
           "suspends": (sum(len(m["suspend_ms"]) for m in moved), "suspends"), "suspend": (every("suspend_ms"), "ms"),
           "resume": (every("resume_ms"), "ms")}
    if suite:
        bare, shim_counts = suite["bare"]["counts"], suite["shim"]["counts"]
        out |= {"pyverbs' own suite, bare: passed": (bare.get("ok", 0), "tests"),
                "pyverbs' own suite under the shim: passed": (shim_counts.get("ok", 0), "tests"),
                "pyverbs' own suite: skipped": (shim_counts.get("skip", 0), "tests")}
    return values(out)


# -- the fabric

def net_case(spec):
    return f"{int(spec):,}"


def big_nets(r):
    return [n for n in r["nets"] if n["net"] in NETS]


def fabric(r):
    out = {}
    for n in big_nets(r):
        x = n["rows"][0]
        out[net_case(n["net"])] = {
            "switches": n["switches"], "smps": round(x["lft_smps_mean"]), "all": best_of(x["all_us_median"], x["all_us_min"]),
            "cold": round(x["first_us"] / 1000, 1), "sm": round(x["sm_us_median"] / 1000, 1), "bare": best_of(x["bare_us"], x["bare_us_min"]),
            "lock": worst_of(x["lock_us_median"], x["lock_us_max"]), "sweep": round(n["heavy_sweep_ms"]), "times": round(x["heavy_sweep_times"])}
    return out


def fabric_goals(r):
    n = next(x for x in r["nets"] if x["net"] == NETS[-1])
    x, most = n["rows"][0], n["rows"][-1]
    out = {"in all": ({"median": round(x["all_us_median"] / 1000, 1), "range": [round(x["all_us_min"] / 1000, 1), round(x["all_us_max"] / 1000, 1)]}, "ms"),
           "a move to the bare client's SMPs right after it": ({"median": x["times_bare"], "range": None, "quartiles": x["times_bare_quartiles"]}, "ratio"),
           "lock, the longest": (round(x["lock_us_max"] / 1000, 2), "ms"), "heavy sweep to a move": (round(x["heavy_sweep_times"]), "ratio")}
    if most["batch"] == 64:
        out["a batch of 64 moves to the bare client's"] = (most["times_bare"], "ratio")
    return values(out)


def fabric_batches(r):
    return {f"{net_case(n['net'])} / {x['batch']}": {
        "batch": x["batch"], "smps": round(x["lft_smps_mean"]), "single": round(x["one_by_one_mean"]), "sm": round(x["sm_us_median"] / 1000, 1),
        "lock": worst_of(x["lock_us_median"], x["lock_us_max"]), "bare": best_of(x["bare_us"], x["bare_us_min"])}
        for n in big_nets(r) for x in n["rows"]}


def fabric_growth(r):
    out = {}
    for case, grown, batch in (("LFT SMPs", "lft_smps_mean", "lft_smps_mean"), ("in OpenSM", "sm_us_median", "sm_us_median"),
                               ("in OpenSM, the best", "sm_us_min", None), ("in all", "all_us_median", "all_us_median"),
                               ("in all, the best", "all_us_min", None), ("bare client, the best", "bare_us_min", None),
                               ("SMPs one by one", None, "one_by_one_mean")):
        row = {"switches": r["growth"][grown]["exponent"]} if grown and "growth" in r else {}
        row |= {f"b{n['net']}": n["by_batch"][batch]["exponent"] for n in big_nets(r) if batch and "by_batch" in n}
        if row:
            out[case] = row
    return out


def moves(r):
    kinds = {"dynamic": [n for n in r["nets"] if n["net"].startswith("dynamic:")],
             "shared": [n for n in r["nets"] if n["net"].startswith("shared:")]}
    kinds["vf"] = [n for n in r["nets"] if n not in kinds["dynamic"] + kinds["shared"]]

    def sums(key, only=("vf", "dynamic", "shared")):
        return {kind: sum(n.get(key, 0) for n in kinds[kind]) for kind in only if kinds[kind]}
    lids, all_kinds = ("vf", "dynamic"), [k for k in kinds if kinds[k]]
    return {"nets and engines": {k: len(kinds[k]) for k in all_kinds}, "moves": sums("moves"), "batches": sums("batches"),
            "LFT SMPs, each batch the minimum": sums("smps", lids) | {k: 0 for k in all_kinds if k == "shared"},
            "LFT SMPs one by one": sums("single", lids), "GUIDInfo SMPs": sums("smps", ("shared",)),
            "traps of LID changes": sums("told", ("shared",)), "pairs of ports walked, all arrive": sums("pairs", lids),
            "quiet sweeps": sums("quiet sweeps"), "LFT blocks that they wrote": {k: 0 for k in all_kinds},
            "link flaps": sums("flaps"), "restarts of OpenSM": sums("restarts")}


def failover(r):
    cases = {"a VF's LID": "a VF's LID", "two VFs' LIDs in a chain": "VFs' LIDs in a chain", "a dynamic LID": "a dynamic LID",
             "a dynamic LID and a VF's in a chain": "both in a chain", "two entries of GUID tables": "entries of GUID tables",
             "the master dies between batches": "between batches", "the standby waits for a dead master's answer": "unanswered",
             "a handover between live masters": "handover"}
    rows = {case: {"kills": len(r["seconds"][what]), "seconds": over(r["seconds"][what], 1, 1)}
            for case, what in cases.items() if what in r["seconds"]}
    rows.get("a handover between live masters", {}).pop("kills", None)
    return rows | {"results that passed, of all": {"kills": {"of": [r["passed"], r["of"]]}}}


# -- the vSwitch library

def plain_nets(rows):
    return [x for x in rows if x["net"] in NETS]


def vswitch(r):
    def spread(x):
        return {"median": round(x["mean"]), "range": [x["min"], x["max"]]}
    return {net_case(x["net"]): {"switches": x["switches"], "lids": x["lids"], "blocks": x["blocks"], "full": x["full"],
                                 **{k: spread(x[k]) for k in ("swap", "fewest", "dynamic")}} for x in plain_nets(r["cost"])}


def vswitch_drain(r):
    out = {net_case(x["net"]): {"one": x["drain_dynamic"]["one_by_one"], "together": x["drain_dynamic"]["coalesced"]}
           for x in plain_nets(r["cost"])}
    for x in r["cost"]:
        if x["drain_swap"]["vms"] == 16:
            out[net_case(x["net"].split(",")[0])] |= {"swap_one": x["drain_swap"]["one_by_one"], "swap_together": x["drain_swap"]["coalesced"]}
    return out


def vswitch_time(r):
    big = r["speed"][-1]
    out = {f"plan of a swap, {net_case(x['net'])} hosts": (x["plan_us"], "us") for x in r["speed"]}
    out |= {f"a batch of 64 swaps, {net_case(x['net'])} hosts": (round(x["batch_us"]["64"] / 1000, 1), "ms") for x in r["speed"][-2:]}
    return values(out | {"ordering into waves, 11,664 hosts": (round((big["plan_ordered_us"] - big["plan_us"]) / 1000, 1), "ms"),
                         "waves, two levels": (r["cost"][0]["waves"]["max"], "waves"), "waves, three levels": (r["cost"][3]["waves"]["max"], "waves"),
                         "ranking 11,663 destinations": (round(big["rank_ms"] / 1000, 1), "s"),
                         "cycle search over all routes, once": (round(big["cycle_search_ms"] / 1000, 1), "s"),
                         "cycle search, each plan after": (round(big["plan_cycle_ms"]), "ms")})


def vswitch_memory(r):
    def row(x):
        return {"bytes": round(x["bytes"] / 1e6, 1), "plain": round(x["plain_lft_bytes"] / 1e6, 1),
                "different": x["different_blocks"], "blocks": x["blocks"]}
    rows = {(x["net"], x.get("routing")): x for x in r["memory"]}
    return {"ftree": row(rows["11664,vfs=3", "ftree"]), "minhop": row(rows["11664,vfs=3", "minhop"]),
            "13,284 switches, a vSwitch in each HCA": row(rows["11664,vfs=2,vswitch", "ftree"]),
            "no two blocks alike": {"bytes": round(r["memory"][-1]["bytes"] / 1e6, 1)}}


def vswitch_blocks(r):
    return {net_case(x["net"]): ({"pre": x["prepopulated_blocks"]} if x["prepopulated_blocks"] else {}) |
            {"dynamic": x["dynamic_blocks"], "top": x["dynamic_blocks_at_the_top"]} for x in r["addresses"]}


# -- path records

def paths(r):
    return {f"{x['batch']:,}": {"batch": x["batch"], "cpu": round(x["per_core_s"] / 1000), "clock": round(x["per_s"] / 1000),
                                "sa": x["sa_path_requests"]} for x in r["lookups"]}


def flood(r):
    out = {}
    for x in r["flood"]:
        case = f"{'stand-in ' if x['clients_are'] == 'stand-in' else ''}{x['clients']} x {x['in_flight']}"
        names = ("sa", "sa_mean", "sa_median", "sa_deviation", "sa_cpu") if x["via"] == "sa" else (
            "cache", "c_mean", "c_median", "c_deviation", "c_cpu")
        cpu = x["opensm_cpu_us_per_query"] if x["via"] == "sa" else x["service_cpu_us_per_query"]
        out.setdefault(case, {}).update(zip(names, (x["served_per_s"], round(x["mean_us"]), x["median_us"], round(x["deviation_us"]), round(cpu, 1))))
    return out


def kilo(bytes_):
    return bytes_ and round(bytes_ / 1000)


def reroutes(r):
    return {f"{size}, {way}": {"pairs": x["pairs"], "changed": x["changed"], "paper": x["paper"],
                               "compare": round(x["compare_us"] / 1000, 1), "messages": w["messages"],
                               "questions": w["questions"], "bytes": kilo(w["bytes"]), "equation": kilo(w["equation_bytes"]),
                               "told": round(max(0, w["told_ms"]) / 1000, 1), "compared": w["compared"], "wrong": w["wrong_after_5s"]}
            for size, x in r["faults"]["meshes"].items() for way, w in x["ways"].items()}


def partitions(r):
    return {f"{re.sub(',(hosts|vfs)=.*', '', x['net'])} {x['engine']}, {x['addresses']}":
            {"moves": x["moves"], "smps": x["pkey_smps"], "most": x["pkey_smps_a_move_at_most"], "sweeps": x["sweeps"],
             "written": x["pkey_smps_of_sweeps"], "wrong": x["wrong_tables"], "ms": x["ms_a_move_median"]} for x in r["partitions"]["nets"]}


def move_time(r):
    t, w = r["time"]["move"], r["time"]["waves"]

    def ms(x):
        return {k: [round(v / 1000, 1) for v in y] if isinstance(y, list) else round(y / 1000, 1) for k, y in x.items()}
    return values({
        "a move before partitions": (ms(t["before_us"]), "ms"), "a move with its P_Keys": (ms(t["after_us"]), "ms"),
        "P_Key SMPs of it, at most": (t["pkey_smps_at_most"], "SMPs"), "these SMPs, answered and read back": (ms(t["pkey_us"]), "ms"),
        "with to without, move by move": (t["ratio"], "ratio"), "the same less the P_Key SMPs": (t["ratio_without_pkeys"], "ratio"),
        "with to without, CPU time of OpenSM and ibvmig-sm": (t["cpu_ratio"], "ratio"),
        "a batch of 16 in waves": (ms(w["ordered"]["all_us"]), "ms"), "of it in OpenSM, in waves": (ms(w["ordered"]["sm_us"]), "ms"),
        "a batch of 16, unordered": (ms(w["unordered"]["all_us"]), "ms"),
        "of it in OpenSM, unordered": (ms(w["unordered"]["sm_us"]), "ms"), "waves, at most": (w["waves_at_most"], "waves"),
        "LFT SMPs of a batch": (w["lft_smps"], "SMPs")})


def infiniband(r):
    out = {}
    for x in r["lines"]:
        row = out.setdefault(x["part"], {"met": {"of": [0, 0]}, "missing": 0})
        row["met"]["of"][0] += x["met"]
        row["met"]["of"][1] += 1
        row["missing"] += bool(x.get("missing"))
    return out


def matrix(r):
    """A row for each service, way of addressing and mode of the fabric; its partitions are summed up."""
    groups = {}
    for c in r["matrix"]["cells"]:
        if "service" in c:
            groups.setdefault(f"{c['service']}, {c['address']}, {c['fabric']}", []).append(c)
    return {name: {"cells": len(cells), "migrations": sum(c["migrations"] for c in cells), "strategy": " ".join(sorted({s for c in cells for s in c["strategy"]})),
                   "messages": sum(c["messages"] for c in cells), **{k: sum(c[k] for c in cells) for k in ("lost", "duplicated", "corrupt", "foreign")},
                   "outage": spread_of([c["outage_median_ms"] for c in cells if c["outage_median_ms"]])}
            for name, cells in groups.items()}


def spread_of(values_ms):
    if not values_ms:
        return None
    v = sorted(values_ms)
    return {"median": round(v[len(v) // 2]), "range": [round(v[0]), round(v[-1])]}


# -- the daemon

def rest(r):
    def row(x):
        return {"rate": x["per_s"], "u50": x["unix"]["p50_ms"], "u99": x["unix"]["p99_ms"], "t50": x["tls"]["p50_ms"], "t99": x["tls"]["p99_ms"]}
    return {"nothing": row(r["quiet"]["rest"]), "64 incoming preparations at any time": row(r["steady"]["rest"]),
            "64 at a time as fast as they go": row(r["burst"]["rest"])}


def rest_complete(r):
    x = r["complete"]
    return {"20 s": {"p50": x["p50_ms"], "p99": x["p99_ms"], "most": x["max_ms"]}}


def memory(r):
    x = r["soak"]
    return {"RSS": {"unit": "MB", "early": round(x["rss_kib"][0] * 1.024e-3, 1), "late": round(x["rss_kib"][-1] * 1.024e-3, 1)},
            "RSS at rest": {"unit": "MB", "early": round(x["rested"][0]["rss_kib"] * 1.024e-3, 1), "late": round(x["rested"][-1]["rss_kib"] * 1.024e-3, 1)},
            "anonymous memory at rest": {"unit": "KiB", "early": x["rested"][0]["anon_kib"], "late": x["rested"][-1]["anon_kib"]},
            "growth": {"unit": "bytes a preparation", "late": x["growth_bytes_per_migration"]},
            "descriptors": {"unit": "descriptors", "early": x["descriptors"][0], "late": x["descriptors"][-1]}}


def faults(r):
    def row(cells):
        c = Counter(x["verdict"] for x in cells)
        struck = len(cells) - c["nothing-there"]
        return {"passed": {"of": [struck - c["failed"], struck]}, "stayed": c["stayed"], "moved": c["moved"],
                "parked": c["resolved-stayed"] + c["resolved-moved"], "died": c["vm-dead"]}
    live = [x for x in r["matrix"] if not x["strategy"].startswith("cold")]
    by = {name: [x for x in r["matrix"] if x["strategy"] == name] for name in ("cold", "cold-two-vfs")}
    return {"native, late, early, two VFs, pre-attach": row(live), "cold": row(by["cold"]), "cold with two VFs": row(by["cold-two-vfs"]),
            "all": row(r["matrix"]), "nothing to strike, of all": {"passed": {"of": [r["nothing_there"], r["cells"]]}}}


def lab_faults(r):
    out = {}
    for x in r["cells"]:
        fault, _, where = x["cell"].rpartition(" at ")
        silence = x.get("silence_ms")
        known = [silence] if isinstance(silence, (int, float)) else [v for v in (silence or {}).values() if v is not None] \
            if isinstance(silence, dict) else []
        out.setdefault(fault, {})[where.replace("destination ", "dst_")] = x["end"] + (f" {max(known) / 1000:.1f}" if known else "")
    return out


def lab_faults_total(r):
    seconds = [x["right_s"] for x in r["cells"] if "right_s" in x]
    return {"all cells": {"passed": {"of": [r["passed"], r["of"]]}, "seconds": over(seconds, 1, 1),
                          "messages": sum(c["sent"] for c in r["messages"].values()),
                          "wrong": sum(c[k] for c in r["messages"].values() for k in ("lost", "duplicated", "corrupt")), "all": r["seconds"]}}


# -- the cloud, and the tests

def nova_moves(r):
    return {phase: {"nova": by["nova"], "virsh": by["virsh"]} for phase, by in r["side_by_side_ms"].items()}


def tests(r):
    total = r["total"]
    return values({"passed": (total["passed"], "results"), "failed": (total["failed"], "results"),
                   "skipped": (total["skipped"], "results"),
                   "time of it": (round(sum(p["seconds"] for p in r["programs"])), "s")})


# Snapshots of one part of a report, which says its own commit and load.
PART_OF = {"reroutes": "faults", "partitions": "partitions", "move_time": "time"}

REPORTS = {
    "outage": ("demo/report.json", outage), "soak": ("soak/report.json", soak), "hold": ("bench/hold.json", hold),
    "pre_attach": ("bench/pre_attach.json", pre_attach), "qps_played": ("bench/qps.json", qps_played),
    "qps_cost": ("bench/qps.json", qps_cost), "qps_guests": ("bench/qps.json", qps_guests), "pages": ("bench/pages.json", pages),
    "checked": ("bench/checked.json", checked), "shim": ("bench/shim.json", shim), "perftest": ("bench/shim.json", perftest),
    "apps": ("bench/apps.json", apps), "fabric": ("bench/fabric.json", fabric), "fabric_goals": ("bench/fabric.json", fabric_goals),
    "fabric_batches": ("bench/fabric.json", fabric_batches), "fabric_growth": ("bench/fabric.json", fabric_growth),
    "failover": ("bench/failover.json", failover), "moves": ("bench/moves.json", moves), "vswitch": ("bench/vswitch.json", vswitch), "vswitch_drain": ("bench/vswitch.json", vswitch_drain),
    "vswitch_time": ("bench/vswitch.json", vswitch_time), "vswitch_memory": ("bench/vswitch.json", vswitch_memory),
    "vswitch_blocks": ("bench/vswitch.json", vswitch_blocks), "paths": ("bench/paths.json", paths), "flood": ("bench/paths.json", flood), "reroutes": ("bench/infiniband.json", reroutes),
    "partitions": ("bench/infiniband.json", partitions), "move_time": ("bench/infiniband.json", move_time),
    "infiniband": ("bench/infiniband.json", infiniband),
    "matrix": ("bench/infiniband.json", matrix),
    "rest": ("bench/daemon.json", rest), "rest_complete": ("bench/daemon.json", rest_complete), "memory": ("bench/daemon.json", memory),
    "faults": ("bench/faults.json", faults), "lab_faults": ("bench/lab-faults.json", lab_faults),
    "lab_faults_total": ("bench/lab-faults.json", lab_faults_total), "nova_moves": ("openstack/report.json", nova_moves),
    "tests": ("check/report.json", tests),
}
