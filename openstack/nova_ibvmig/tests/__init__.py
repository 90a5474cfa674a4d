# SPDX-License-Identifier: GPL-2.0-or-later
# Nova's fixtures want this first: it decides about eventlet.
import nova.monkey_patch  # noqa: F401
