# SPDX-License-Identifier: GPL-2.0-or-later
"""Files of others that the lab builds with small edits: each anchor must be found exactly once."""

import sys
from pathlib import Path


class File:
    """One file; written when the `with` ends."""

    def __init__(self, path):
        self.path, self.text = Path(path), Path(path).read_text(encoding="utf-8")

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if not kind:
            self.path.write_text(self.text, encoding="utf-8")

    def _find(self, anchor):
        count = self.text.count(anchor)
        if count != 1:
            raise SystemExit(f"edit: {self.path}: found {count} times, not once: {anchor!r}\n"
                             f"edit: look at what this version has there, and mend {sys.argv[0]}")
        return self.text.index(anchor)

    def replace(self, *pairs):
        """Each pair is an anchor and what stands there then."""
        for old, new in pairs:
            at = self._find(old)
            self.text = self.text[:at] + new + self.text[at + len(old):]

    def replace_either(self, *pairs):
        """The same where two versions differ: just one of the anchors is there."""
        found = [p for p in pairs if p[0] in self.text]
        self.replace(found[0] if len(found) == 1 else pairs[0])

    def cut(self, start, end, new=""):
        """From the one start up to the end that follows; an end of None is that of the file."""
        at = self._find(start)
        to = len(self.text) if end is None else self.text.find(end, at)
        if to < 0:
            raise SystemExit(f"edit: {self.path}: nothing like {end!r} follows {start!r}")
        self.text = self.text[:at] + new + self.text[to:]
