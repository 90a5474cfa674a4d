# SPDX-License-Identifier: GPL-2.0-or-later
"""The victim's figures beside an attack, for the report below build/bench/hostile: one file a part."""
import json
import os
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BUILD", ROOT / "build")).resolve()


def quantile(values, q):
    """The smallest value that at least that part of all does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


def write(part, attack, before, idle, beside):
    """before: as it was measured before the mend; idle, beside: without and beside the attack, now."""
    folder = BUILD / "bench/hostile"
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"part": part, "attack": attack, "before": before, "idle": idle, "beside": beside}, indent=1)
    (folder / f"{part}.json").write_text(text + "\n")
