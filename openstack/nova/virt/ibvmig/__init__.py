# SPDX-License-Identifier: GPL-2.0-or-later
"""Lies beside Nova's own drivers: `compute_driver = ibvmig.IbvmigLibvirtDriver` is looked up below nova.virt."""
from nova_ibvmig.driver import IbvmigLibvirtDriver  # noqa: F401
