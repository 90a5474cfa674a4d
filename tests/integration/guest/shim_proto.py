# SPDX-License-Identifier: GPL-2.0-or-later
"""What shim and agent say to each other, for tests that play a shim (guest-agent/proto/shim.h)."""
import re
from pathlib import Path

_HEADER = (Path(__file__).resolve().parents[3] / "guest-agent/proto/shim.h").read_text(encoding="utf-8")
VERSION = int(re.search(r"#define SHIM_PROTO_VERSION (\d+)", _HEADER)[1])
