# SPDX-License-Identifier: GPL-2.0-or-later
"""Mechanism driver of the lab, for neutron-server: ports of other kinds on the hosts' bridge br0, which the lab has
made and no agent manages."""
from neutron_lib.api.definitions import portbindings
from neutron_lib.plugins.ml2 import api

from neutron_ibvmig.mech_driver import IbvmigMechanismDriver


class LabMechanismDriver(IbvmigMechanismDriver):
    name = 'lab_bridge'

    def bind_port(self, context):
        if context.current[portbindings.VNIC_TYPE] == portbindings.VNIC_NORMAL:
            context.set_binding(context.segments_to_bind[0][api.ID], portbindings.VIF_TYPE_BRIDGE,
                                {portbindings.CAP_PORT_FILTER: False, 'bridge_name': 'br0'})
