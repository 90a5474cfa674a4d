# SPDX-License-Identifier: GPL-2.0-or-later
"""The driver, and what the check needs beside it: for the lab's guests the port over which the lab gives them commands
(docs/lab.md), places where a live migration waits while the check breaks something (verbs.py), and a slow pre-copy
(check.py)."""
import os
import time

import nova.conf
from nova_ibvmig import vif as ib_vif
from nova_ibvmig.driver import IbvmigLibvirtDriver

CONF = nova.conf.CONF
BREAKS = '/run/lab/openstack/breaks'
SLOW_MIB_S = 2  # 1 is what ibvmigd presets, and takes for no limit of the user's


def halt(step):
    """Nothing, but where the check has made a file of that name: renames it to STEP.reached, and waits until that is
    gone."""
    try:
        os.rename(f'{BREAKS}/{step}', f'{BREAKS}/{step}.reached')
    except FileNotFoundError:
        return
    while os.path.exists(f'{BREAKS}/{step}.reached'):
        time.sleep(0.05)


class LabDriver(IbvmigLibvirtDriver):
    def _get_guest_config(self, *args, **kwargs):
        guest = super()._get_guest_config(*args, **kwargs)
        guest.add_device(ib_vif.Channel('org.ibvmig.lab.0'))
        return guest

    def live_migration(self, *args, **kwargs):
        if os.path.exists(f'{BREAKS}/slow'):
            CONF.set_override('live_migration_bandwidth', SLOW_MIB_S, 'libvirt')
        else:
            CONF.clear_override('live_migration_bandwidth', 'libvirt')
        super().live_migration(*args, **kwargs)

    def pre_live_migration(self, *args, **kwargs):
        halt('pre')
        return super().pre_live_migration(*args, **kwargs)

    def post_live_migration_at_source(self, *args, **kwargs):
        halt('post')
        super().post_live_migration_at_source(*args, **kwargs)

    def post_live_migration_at_destination(self, *args, **kwargs):
        halt('arrive')
        super().post_live_migration_at_destination(*args, **kwargs)

    def rollback_live_migration_at_destination(self, *args, **kwargs):
        halt('rollback')
        super().rollback_live_migration_at_destination(*args, **kwargs)
