# SPDX-License-Identifier: GPL-2.0-or-later
"""An address of the loopback for this process alone: whatever port a test chooses there is free, also a moment
later. Ports of 127.0.0.1 are not: every connection of the machine takes one for a while."""
import os

ADDRESS = f"127.{64 + (os.getpid() >> 16 & 63)}.{os.getpid() >> 8 & 255}.{os.getpid() & 255}"
