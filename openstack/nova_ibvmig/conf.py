# SPDX-License-Identifier: GPL-2.0-or-later
"""The group [ibvmig] of nova.conf."""
from keystoneauth1 import loading as ks_loading
from oslo_config import cfg

group = cfg.OptGroup(
    'ibvmig', title='InfiniBand VFs that ibvmigd owns',
    help='nova-compute asks the ibvmigd of its own host. cafile, certfile and keyfile are for mutual TLS: '
         'a certificate with the role "nova" in ibvmigd.conf.')

opts = [
    cfg.URIOpt('endpoint', default='https://127.0.0.1:7611', schemes=['http', 'https'],
               help='REST API of this host\'s ibvmigd (its "listen").'),
    cfg.DictOpt('pf_by_physnet', default={},
                help='PF of this host (its name in "ibvmig status") for each physical network, as '
                     'ib0net:mlx5_0. A network that is not named has the PF of its own name.'),
    cfg.StrOpt('default_pkey', default='0xffff', regex=r'^0x[0-9a-fA-F]{4}$',
               help='PKey of ports that have none by their binding:profile ("pkey") or their network (a VLAN id, '
                    'with the mechanism driver ibvmig).'),
    cfg.IntOpt('request_timeout', default=10, min=1, max=60,
               help='Seconds for one question to ibvmigd, which it answers at once from what it knows. One that does '
                    'not get through is sent twice more.'),
    cfg.IntOpt('fence_timeout', default=30, min=1, max=600,
               help='Seconds for the request that takes an evacuated server\'s addresses from the host that is off. '
                    'ibvmigd waits for ibvmig-sm with it, for up to 20 s: what is less fails an evacuation that '
                    'would have succeeded. Sent twice more, too.'),
    cfg.IntOpt('attach_timeout', default=60, min=1, max=600,
               help='Seconds until a server that has been started (created, rebooted, resized, evacuated, '
                    'unshelved) has its VF. Without it the server is stopped and the action fails, unless '
                    '[DEFAULT] vif_plugging_is_fatal is off.'),
    cfg.IntOpt('confirm_timeout', default=60, min=1, max=600,
               help='Seconds until a server that has arrived by a live migration, or has been walked back, has '
                    'its VF.'),
    cfg.IntOpt('release_timeout', default=20, min=1, max=600,
               help='Seconds until this host has given the VF and its addresses back when a server has stopped. '
                    'Not a failure of the server, but where it starts next they may be missing.'),
]


def register_opts(conf):
    """Registers the group once; the options of keystoneauth's session (certificates) with it."""
    conf.register_group(group)
    conf.register_opts(opts, group=group)
    ks_loading.register_session_conf_options(conf, group.name)


def list_opts():
    """For oslo-config-generator."""
    return [(group, opts + ks_loading.get_session_conf_options())]
