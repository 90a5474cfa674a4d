# SPDX-License-Identifier: GPL-2.0-or-later
"""Mechanism driver "ibvmig": ports of vnic_type=direct on InfiniBand networks become ib_hostdev.

No L2 agent takes part: ibvmigd gives a server its VF by the domain's metadata, which nova-compute writes. So a port
is ACTIVE once it is bound, on either host of a live migration, and Nova is told then (network-vif-plugged). Whether the
VF is in the server, nova_ibvmig waits for by itself (its event ibvmig_attach)."""
import collections

from neutron.db import provisioning_blocks
from neutron_lib.api.definitions import portbindings
from neutron_lib.callbacks import resources
from neutron_lib import constants
from neutron_lib import context as neutron_context
from neutron_lib import exceptions
from neutron_lib.plugins.ml2 import api
from oslo_config import cfg
from oslo_log import log as logging

from neutron_ibvmig import conf as ibvmig_conf
from neutron_ibvmig import profile as ib_profile

CONF = cfg.CONF
LOG = logging.getLogger(__name__)
VIF_TYPE_IB_HOSTDEV = 'ib_hostdev'
TOLD_MAX = 100  # refusals, of requests that may be served at the same time
ibvmig_conf.register_opts(CONF)


class IbvmigMechanismDriver(api.MechanismDriver):
    name = 'ibvmig'  # its entry point

    def initialize(self):
        self._told = collections.deque(maxlen=TOLD_MAX)
        if not CONF.ml2_ibvmig.physical_networks:
            LOG.warning('[ml2_ibvmig] physical_networks is empty: no port will be bound')

    @property
    def connectivity(self):
        return portbindings.CONNECTIVITY_L2

    # ---- networks ----

    def check_vlan_transparency(self, context):
        """A VF has the one PKey of its network."""
        return not any(_is_ours(s) for s in context.network_segments)

    def filter_hosts_with_segment_access(self, context, segments, candidate_hosts, agent_getter):
        """None: it is asked for hosts of agents (DHCP), whose ports this driver does not bind."""
        return set()

    # ---- what binding:profile says ----

    def create_port_precommit(self, context):
        self._validate(context)

    def update_port_precommit(self, context):
        """A port that is not bound anew may keep what it has: another driver may have bound it."""
        inputs = (portbindings.PROFILE, portbindings.VNIC_TYPE)
        if any(context.current[k] != context.original[k] for k in inputs):
            self._validate(context)

    def _validate(self, context):
        segments = _segments(context, context.network.network_segments)
        problem = segments and _problem(context, segments[0])
        if problem:
            raise exceptions.InvalidInput(error_message=problem)

    # ---- bindings, also those that a live migration prepares (INACTIVE) ----

    def bind_port(self, context):
        segments = _segments(context, context.segments_to_bind)
        if not segments:
            return
        problem = _host_problem(context) or _problem(context, segments[0])
        if problem:
            self._refuse(context, problem)
            return
        context.set_binding(segments[0][api.ID], VIF_TYPE_IB_HOSTDEV, _vif_details(segments[0]))

    def _refuse(self, context, problem):
        """Told once for each request, which tries ten times."""
        refusal = (context._plugin_context.request_id, context.host, problem)
        if refusal not in self._told:
            self._told.append(refusal)
            LOG.error('not bound on host %s: %s', context.host, problem)

    def update_port_postcommit(self, context):
        """Also after each binding and activation of one, which leave the port DOWN until somebody reports it up."""
        levels = context.binding_levels or []
        if (context.current['status'] == constants.PORT_STATUS_DOWN and
                any(level[api.BOUND_DRIVER] == self.name for level in levels)):
            provisioning_blocks.provisioning_complete(
                neutron_context.get_admin_context(), context.current['id'], resources.PORT,
                provisioning_blocks.L2_AGENT_ENTITY)


def _is_ours(segment):
    return (segment[api.NETWORK_TYPE] in (constants.TYPE_VLAN, constants.TYPE_FLAT) and
            segment[api.PHYSICAL_NETWORK] in CONF.ml2_ibvmig.physical_networks)


def _segments(context, segments):
    """Those that the port can be bound to here: none where it is not a VF's."""
    if context.current[portbindings.VNIC_TYPE] != portbindings.VNIC_DIRECT:
        return []
    return [s for s in segments if _is_ours(s)]


def _problem(context, segment):
    found = ib_profile.problem(context.current[portbindings.PROFILE] or {}, segment[api.SEGMENTATION_ID])
    return found and 'port %s: %s' % (context.current['id'], found)


def _host_problem(context):
    hosts = CONF.ml2_ibvmig.hosts
    if hosts and context.host not in hosts:
        return 'port %s: [ml2_ibvmig] hosts names only %s' % (context.current['id'], ', '.join(hosts))
    return None


def _vif_details(segment):
    """For nova-compute: physical_network chooses the PF, pkey is the VF's."""
    details = {portbindings.CAP_PORT_FILTER: False,
               portbindings.VIF_DETAILS_CONNECTIVITY: portbindings.CONNECTIVITY_L2,
               'physical_network': segment[api.PHYSICAL_NETWORK]}
    vlan = segment[api.SEGMENTATION_ID]
    if vlan is not None:
        details.update({portbindings.VIF_DETAILS_VLAN: str(vlan), 'pkey': ib_profile.pkey_of_vlan(vlan)})
    return details
