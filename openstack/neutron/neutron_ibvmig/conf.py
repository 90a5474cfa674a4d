# SPDX-License-Identifier: GPL-2.0-or-later
"""The group [ml2_ibvmig] of ml2_conf.ini."""
from oslo_config import cfg

group = cfg.OptGroup(
    'ml2_ibvmig', title='InfiniBand VFs that ibvmigd owns',
    help='The mechanism driver "ibvmig" binds ports of vnic_type=direct on these networks and hosts.')

opts = [
    cfg.ListOpt('physical_networks', default=[],
                help='Physical networks that are InfiniBand, as ib0net. Of their networks those of type vlan have '
                     'the PKey 0x8000 + VLAN id, those of type flat that of the port or of nova-compute. '
                     'Without any, nothing is bound.'),
    cfg.ListOpt('hosts', default=[],
                help='Hosts (as [DEFAULT] host of nova-compute) whose nova-compute has the virt driver of '
                     'nova_ibvmig. A port is not bound elsewhere, so no server with one starts or migrates there. '
                     'Without any: all.'),
]


def register_opts(conf):
    """Registers the group once."""
    conf.register_group(group)
    conf.register_opts(opts, group=group)


def list_opts():
    """For oslo-config-generator."""
    return [(group, opts)]
