# SPDX-License-Identifier: GPL-2.0-or-later
"""The lab: libvirt hosts, a simulated InfiniBand fabric and guests, all inside one process tree."""
