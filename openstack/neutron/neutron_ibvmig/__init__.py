# SPDX-License-Identifier: GPL-2.0-or-later
"""ML2 mechanism driver for ports of servers with InfiniBand VFs that ibvmigd owns."""
