# SPDX-License-Identifier: GPL-2.0-or-later
"""Snapshots of measurements: what each must say, how it is read, and how it is written.

A snapshot is one topic of docs/measurements.md:

  topic, good_for, measured   its heading, what its numbers are good for, what was measured
  command, report             what measures it again, and where that leaves its report (or null)
  commit, date                of the code and of the run; null: nobody has written it down
  recorded                    {commit, date} in which the numbers came into the document, where a run has no date
  machine                     {cpus, cpu, memory_gib, kvm}
  load                        [lowest, highest] load average meanwhile, or null
  row                         heading of the first column, which has each row's "case"
  columns                     [{key, title, unit, is, goal}]; is: one of IS; "rows": each row has a unit of its own
  rows                        {case, KEY: cell, unit, goal, source}
  notes                       sentences below the table
  plots                       [{file, title, x, y, series, lines}], see generate

A cell is a number, a list of numbers (runs), {median, range, quartiles} (median: the mean in a column of means),
{of: [good, all]}, a text of a "text" column, or null, which is shown as not recorded. A cell that is left out is empty. A goal is {most|least|below|above|equals: number}."""
import json
import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
CONTENTS = "contents.json"
FIELDS = ("topic", "good_for", "measured", "command", "report", "commit", "date", "recorded", "machine", "load", "row",
          "columns", "rows", "notes", "plots")
MAY_BE_NULL = ("report", "commit", "date", "recorded", "load")
MACHINE = ("cpus", "cpu", "memory_gib", "kvm")
IS = ("median", "mean", "best", "worst", "count", "one run", "bound", "text", "rows")
GOALS = ("most", "least", "below", "above", "equals")
ROW_FIELDS = ("case", "unit", "goal", "source")
NUMBER = re.compile(r"(?<![\w.-])\d[\d,.]*")
PLOT_FIELDS = ("file", "title", "x", "y", "series", "lines")


class Wrong(Exception):
    """A snapshot is not as it must be."""


def is_number(v):
    return isinstance(v, (int, float)) and not isinstance(v, bool)


def value(cell):
    """The number that stands for a cell, or None."""
    if is_number(cell):
        return cell
    if isinstance(cell, list) and cell:
        return max(cell)
    if isinstance(cell, dict):
        return cell.get("median")
    return None


def goal_met(cell, goal):
    """None where it cannot be told."""
    v = value(cell)
    if v is None:
        return None
    (how, bound), = goal.items()
    return {"most": v <= bound, "least": v >= bound, "below": v < bound, "above": v > bound, "equals": v == bound}[how]


def numbers_in_text(text):
    """Numbers belong into rows; `code` and addresses may have some."""
    return NUMBER.findall(re.sub(r"`[^`]*`|\]\([^)]*\)", "", text))


def check_cell(where, cell, column):
    if cell is None or is_number(cell):
        return
    if column["is"] == "text":
        if not isinstance(cell, str):
            raise Wrong(f"{where}: a text is wanted")
    elif isinstance(cell, list):
        if not cell or not all(is_number(v) for v in cell):
            raise Wrong(f"{where}: a list of numbers is wanted")
    elif isinstance(cell, dict):
        if set(cell) == {"of"}:
            return
        if not {"median", "range"} <= set(cell) <= {"median", "range", "quartiles"}:
            raise Wrong(f"{where}: {{median, range}} are wanted")
    else:
        raise Wrong(f"{where}: {cell!r} is no cell")


def check_goal(where, goal):
    if goal is not None and (not isinstance(goal, dict) or len(goal) != 1 or not set(goal) <= set(GOALS)):
        raise Wrong(f"{where}: a goal is one of {', '.join(GOALS)}")


def check_columns(name, s):
    for c in s["columns"]:
        for field in ("key", "title", "unit", "is"):
            if field not in c:
                raise Wrong(f"{name}: column {c.get('key')}: no {field}")
        if c["is"] not in IS:
            raise Wrong(f"{name}: column {c['key']}: is {c['is']!r}, not one of {', '.join(IS)}")
        check_goal(f"{name}: column {c['key']}", c.get("goal"))


def check_rows(name, s):
    columns = {c["key"]: c for c in s["columns"]}
    for r in s["rows"]:
        where = f"{name}: row {r.get('case')!r}"
        if not r.get("case"):
            raise Wrong(f"{where}: no case")
        for key, cell in r.items():
            if key in columns:
                check_cell(f"{where}: {key}", cell, columns[key])
            elif key not in ROW_FIELDS:
                raise Wrong(f"{where}: {key} is no column")
        check_goal(where, r.get("goal"))
        if any(columns[k]["is"] == "rows" and r[k] is not None for k in r if k in columns) and "unit" not in r:
            raise Wrong(f"{where}: no unit")
    cases = [r["case"] for r in s["rows"]]
    if len(set(cases)) != len(cases) or not cases:
        raise Wrong(f"{name}: rows: two of one name, or none")


def check(name, s):
    for field in FIELDS:
        if field not in s:
            raise Wrong(f"{name}: no {field}")
        if s[field] is None and field not in MAY_BE_NULL:
            raise Wrong(f"{name}: {field} is null")
    for field in s:
        if field not in FIELDS:
            raise Wrong(f"{name}: {field} is no field of a snapshot")
    for field in MACHINE:
        if field not in s["machine"]:
            raise Wrong(f"{name}: machine: no {field}")
    if not s["date"] and not s["recorded"]:
        raise Wrong(f"{name}: neither date nor recorded")
    for text in (s["good_for"], s["measured"], *s["notes"]):
        if numbers_in_text(text):
            raise Wrong(f"{name}: {numbers_in_text(text)[0]} in a text is not from a row: {text}")
    check_columns(name, s)
    check_rows(name, s)
    for p in s["plots"]:
        if set(p) != set(PLOT_FIELDS):
            raise Wrong(f"{name}: a plot has {', '.join(PLOT_FIELDS)}")


def load(name, folder=FOLDER):
    try:
        s = json.loads((folder / f"{name}.json").read_text())
    except (OSError, ValueError) as e:
        raise Wrong(f"{name}: {e}") from e
    check(name, s)
    return s


def names(folder=FOLDER):
    return sorted(p.stem for p in folder.glob("*.json") if p.name != CONTENTS)


def as_text(s):
    """JSON with one row, column or plot in a line."""
    out = []
    for field in FIELDS:
        v = s[field]
        if isinstance(v, list) and v and not is_number(v[0]):
            lines = ",\n".join("  " + json.dumps(x, ensure_ascii=False) for x in v)
            out.append(f' "{field}": [\n{lines}\n ]')
        else:
            out.append(f' "{field}": {json.dumps(v, ensure_ascii=False)}')
    return "{\n" + ",\n".join(out) + "\n}\n"


def save(name, s, folder=FOLDER):
    check(name, s)
    (folder / f"{name}.json").write_text(as_text(s))
