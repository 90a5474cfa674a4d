# SPDX-License-Identifier: GPL-2.0-or-later
"""The driver, and for the lab's guests the port over which the lab gives them commands (docs/lab.md)."""
from nova_ibvmig import vif as ib_vif
from nova_ibvmig.driver import IbvmigLibvirtDriver


class LabDriver(IbvmigLibvirtDriver):
    def _get_guest_config(self, *args, **kwargs):
        guest = super()._get_guest_config(*args, **kwargs)
        guest.add_device(ib_vif.Channel('org.ibvmig.lab.0'))
        return guest
