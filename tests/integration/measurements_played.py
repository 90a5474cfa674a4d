# SPDX-License-Identifier: GPL-2.0-or-later
"""Reports as the benches write them, with numbers that are easy to find again: {report below build/: its text}."""
SPREAD = {"min": 1, "median": 2, "p99": 3, "max": 4}
NONE = {"lost": 0, "duplicated": 0, "corrupt": 0}
MESSAGES = {"messages_sent": 9, "messages_received": 9, "messages_lost": 0, "messages_duplicated": 0, "messages_corrupt": 0}


def demo():
    early = {"strategy": "early", "record": {"data": {"detach_to_attach_us": 5000000, "move": {"lft_smps": 6}}}}
    return {"details": [early], "outages_ms": [1000.4, 1100.6, 1200], "early_outage_ms": 6000, "detach_to_attach_ms": 500.5,
            "resume_ms": 700, "late_to_early": 0.2, "precopy_ms": 9000, "quiesce_ms": 400, "vm_downtime_ms": 50, "lft_smps": 6,
            "switches_updated": 6, "switches_total": 7, "heavy_sweeps_caused": 0, "sa_queries_after_migration": 0, **MESSAGES}


def soak():
    times = ("outage_ms", "vm_downtime_ms", "quiesce_ms", "detach_ms", "detach_to_attach_ms", "move_ms", "resume_ms")
    return {"asked": 20, "succeeded": 20, **MESSAGES, **{k: SPREAD for k in times}}


def hold():
    run = {"outage_us": 900000, "hold_passes": 2, "hold_remaining_bytes": 11 << 20, "hold_us": 2400000}
    return {"load_average": [1.0, 2.0, 3.0], "writes_mib_s": {"0": [run, run], "8": [run]}}


def pre_attach():
    run = {"attach_us": 50000, "port_active_us": None, "outage_us": 2000000}
    return {"property": "x-late-detach", "load_average": [1, 1, 1], "migrations": {"device_add": [run], "pre-attach": [run]}}


def qps():
    rows = [{"qps": q, "regions": k, "quiesce_us": 1000, "resume_us": 4200, "before": 0.25} for q, k in ((16, 1), (64, 64))]
    part = {"rows": rows, "ratio_4096_to_64": {"quiesce": 0.8, "resume": 0.9}}
    return {"played, no time a call": part, "played, 100 us a call": part, "played, 100 us a call, port last": part,
            "guests (TCG, rxe)": {"rows": [], "ratio_4096_to_64": {}}}


def shim():
    counted = ("post_send", "poll_cq_send", "post_send_write", "post_send_inline", "post_recv", "poll_cq_recv", "poll_cq_empty")
    return {"instructions": {k: {"added": 49.5} for k in counted}, "added_instructions": {"send_pair": 99.0},
            "on_the_data_path": {"syscalls": 0, "allocations": 0},
            "perftest": {"device": "rxe", "ib_send_bw": {"unit": "MiB/s, average", "runs_without": [1, 2], "runs_with": [2, 3]}}}


def pages():
    many = [{"stale": 0, "pages": 1}, {"stale": 0, "pages": 2}]
    time = {"dirty_us": 1000, "ms_per_gib": 9.5}
    return {"runs": [{"pass": on, "regions": regions, "dirtied_bytes": 4096, "dirty_us": 10, "times": [time]}
                     for on in (True, False) for regions in (many, many[:1])]}


def checked():
    return {"asked": 200, "swaps": 200, "refused": [], "qps": [2, 2], "markers": 7, "suspend_ms": SPREAD, "nic_ms": SPREAD,
            "resume_ms": SPREAD, "programs": [{"reads": 1, "writes": 2}], "total": {"sent": 9, **NONE}}


def apps():
    shim_row = {"command": "rping", "shim": {"suspend_ms": [1, 2, 3], "resume_ms": [4, 5, 6]}}
    suite = {"command": "pyverbs_suite", "bare": {"counts": {"ok": 8}}, "shim": {"counts": {"ok": 9, "skip": 1}}}
    return {"passed": 2, "cannot": 1, "of": 3, "rows": [shim_row, suite, {"command": "qperf"}]}


def fabric():
    row = {"lft_smps_mean": 64.0, "one_by_one_mean": 70.0, "all_us_median": 3000, "all_us_min": 2400, "all_us_max": 5000, "first_us": 6900,
           "first_sm_us": 1, "sm_us_median": 1100, "bare_us": 400, "bare_us_min": 100, "lock_us_median": 70, "lock_us_max": 100,
           "times_bare": 2.3, "times_bare_quartiles": [2.0, 2.6], "heavy_sweep_times": 13.3}
    grown = {k: {"exponent": 0.5} for k in ("lft_smps_mean", "sm_us_median", "sm_us_min", "all_us_median", "all_us_min", "bare_us_min",
                                             "one_by_one_mean")}
    nets = [{"net": n, "switches": 36, "heavy_sweep_ms": 40.2, "rows": [row | {"batch": k} for k in (1, 64)], "by_batch": grown}
            for n in ("xgft:3,3,4/2,3", "324", "11664")]
    return {"nets": nets, "growth": grown}


def moves():
    done = {"moves": 1000, "batches": 100, "smps": 5, "single": 9, "pairs": 10, "quiet sweeps": 3, "flaps": 2, "restarts": 1}
    return {"nets": [{"net": n, **done, "told": 4} for n in ("mesh:3x2", "dynamic:mesh:3x2", "shared:mesh:3x2")]}


def failover():
    return {"passed": 3, "of": 3, "seconds": {"a VF's LID": [2.2, 2.4], "handover": [0.8]}, "load_average": [1, 1, 1]}


def vswitch():
    spread = {"min": 1, "mean": 2.4, "max": 3}
    nets = ("324", "648", "5832", "11664")
    drain = {"one_by_one": 9, "coalesced": 3}
    cost = [{"net": n, "switches": 36, "lids": 360, "blocks": 6, "full": 216, "swap": spread, "fewest": spread, "dynamic": spread,
             "waves": spread, "drain_dynamic": drain, "drain_swap": {"vms": 2, **drain}} for n in nets]
    cost.append(cost[0] | {"net": "324,vfs=16", "drain_swap": {"vms": 16, **drain}})
    speed = [{"net": n, "plan_us": 1.5, "plan_ordered_us": 300.0, "batch_us": {"64": 5000.0}, "rank_ms": 1600, "cycle_search_ms": 500,
              "plan_cycle_ms": 9} for n in nets]
    memory = [{"net": n, "routing": r, "bytes": 13100000, "plain_lft_bytes": 78300000, "different_blocks": 9, "blocks": 99}
              for n, r in (("11664,vfs=3", "ftree"), ("11664,vfs=3", "minhop"), ("11664,vfs=2,vswitch", "ftree"))]
    blocks = {"dynamic_blocks": 7, "dynamic_blocks_at_the_top": 768}
    return {"cost": cost, "speed": speed, "memory": memory + [{"net": "all different", "bytes": 99600000}],
            "addresses": [{"net": "324", "prepopulated_blocks": 87, **blocks}, {"net": "11664", "prepopulated_blocks": None, **blocks}]}


def paths():
    row = {"clients": 8, "in_flight": 1, "served_per_s": 9, "mean_us": 9.5, "median_us": 8, "deviation_us": 1.5,
           "opensm_cpu_us_per_query": 9.21, "service_cpu_us_per_query": 1.7}
    return {"lookups": [{"batch": 64, "per_core_s": 19078000, "per_s": 4076000, "sa_path_requests": 0}],
            "flood": [row | {"clients_are": kind, "via": via} for kind in ("real", "stand-in") for via in ("sa", "service")]}


def daemon():
    times = {"p50_ms": 0.2, "p99_ms": 1.7}
    rest = {"rest": {"per_s": 500.0, "unix": times, "tls": times}}
    state = {"rss_kib": 30000, "anon_kib": 13000}
    return {"load_average": [3.0, 4.0, 17.0], "quiet": rest, "steady": rest, "burst": rest, "complete": {**times, "max_ms": 30},
            "soak": {"rss_kib": [30000, 31000], "rested": [state, state], "growth_bytes_per_migration": 36.0, "descriptors": [26, 26]}}


def infiniband():
    way = {"messages": 5, "questions": 0, "bytes": 1785, "told_ms": 12, "compared": 30, "wrong_after_5s": 0, "equation_bytes": None}
    mesh = {"pairs": 30, "changed": 14, "paper": None, "compare_us": 100, "ways": {"interest": way, "hybrid": way | {"equation_bytes": 8448}}}
    net = {"net": "mesh:3x2,hosts=8,vfs=2,vswitch", "engine": "lash", "addresses": "dynamic", "moves": 1000, "pkey_smps": 4000,
           "pkey_smps_a_move_at_most": 4, "sweeps": 20, "pkey_smps_of_sweeps": 0, "wrong_tables": 0, "ms_a_move_median": 9.3}
    us = {"median": 20000, "range": [19000, 30000], "quartiles": [19500, 22000]}
    batches = {"all_us": us, "sm_us": us}
    move = {"before_us": us, "after_us": us, "pkey_smps_at_most": 4, "pkey_us": us, "ratio": 1.02, "ratio_without_pkeys": 1.0, "cpu_ratio": 1.03}
    part = {"commit": "abc1234", "load_average": [3, 4]}
    cell = {"service": "RC", "address": "by LID", "fabric": "dynamic", "migrations": 3, "strategy": ["late"], "messages": 9, "foreign": 0,
            "outage_median_ms": 300.5, **NONE}
    return {"faults": part | {"meshes": {"3x2": mesh}}, "partitions": part | {"nets": [net]}, "matrix": part | {"cells": [cell]},
            "time": part | {"move": move, "waves": {"ordered": batches, "unordered": batches, "waves_at_most": 7, "lft_smps": 9}},
            "lines": [{"part": "faults", "met": True}, {"part": "matrix", "met": False, "missing": True}], "load_average": [3, 4]}


def faults():
    return {"cells": 3, "passed": 2, "nothing_there": 1, "matrix": [
        {"strategy": s, "verdict": v} for s, v in (("late", "moved"), ("cold", "resolved-stayed"), ("cold-two-vfs", "nothing-there"))]}


def lab_faults():
    return {"cells": [{"cell": "ibvmig abort at SWITCH", "end": "stayed", "silence_ms": 812, "right_s": 4.0},
                      {"cell": "network cut for 1 s at destination ATTACH", "end": "moved", "silence_ms": None, "right_s": 9.0}],
            "passed": 2, "of": 2, "messages": {"mover": {"sent": 9, **NONE}}, "seconds": 60, "load_average": [1, 1, 1]}


def openstack():
    return {"side_by_side_ms": {"outage of the applications": {"nova": [1830, 209], "virsh": [345, 274]}}}


def check():
    return {"total": {"passed": 3, "failed": 0, "skipped": 1}, "programs": [{"seconds": 1.5}, {"seconds": 2.5}]}


REPORTS = {"demo/report.json": demo, "soak/report.json": soak, "bench/hold.json": hold, "bench/pre_attach.json": pre_attach,
           "bench/qps.json": qps, "bench/shim.json": shim, "bench/pages.json": pages, "bench/checked.json": checked,
           "bench/apps.json": apps, "bench/fabric.json": fabric, "bench/moves.json": moves, "bench/failover.json": failover, "bench/vswitch.json": vswitch,
           "bench/paths.json": paths, "bench/infiniband.json": infiniband, "bench/daemon.json": daemon, "bench/faults.json": faults, "bench/lab-faults.json": lab_faults,
           "openstack/report.json": openstack, "check/report.json": check}
