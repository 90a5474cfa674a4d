# SPDX-License-Identifier: GPL-2.0-or-later
"""Nova's libvirt driver for VMs with InfiniBand VFs that ibvmigd owns: docs/openstack.md."""
