# SPDX-License-Identifier: GPL-2.0-or-later
"""LibvirtDriver for VMs with InfiniBand VFs that migrate with them attached.

ibvmigd does the work on libvirt's own hook and events, so nothing here begins it: Nova's steps check
before, and wait and report after. Each is an event of the server's live-migration action."""
import nova.conf
from nova import context as nova_context
from nova import exception
from nova.compute import utils as compute_utils
from nova.network import model as network_model
from nova.virt.libvirt import driver as libvirt_driver
from oslo_log import log as logging
from oslo_serialization import jsonutils

from nova_ibvmig import client
from nova_ibvmig import conf as ibvmig_conf
from nova_ibvmig import vif as ib_vif

CONF = nova.conf.CONF
LOG = logging.getLogger(__name__)
ibvmig_conf.register_opts(CONF)


def _source_vifs(migrate_data):
    return [v.source_vif for v in (migrate_data.vifs if 'vifs' in migrate_data and migrate_data.vifs else [])
            if 'source_vif' in v and v.source_vif]


class IbvmigLibvirtDriver(libvirt_driver.LibvirtDriver):

    def __init__(self, virtapi, read_only=False):
        super().__init__(virtapi, read_only)
        self.vif_driver = ib_vif.IbvmigVifDriver(self._host)
        self._ibvmig = client.Client(CONF)
        self._vfs = []

    def _event(self, context, verb, instance):
        """Shown by `openstack server event show`, with our reason where it fails."""
        return compute_utils.EventReporter(context, 'ibvmig_' + verb, CONF.host, instance.uuid)

    # ---- the domain ----

    def _get_guest_config(self, instance, network_info, *args, **kwargs):
        ib, others = ib_vif.split(network_info)
        guest = super()._get_guest_config(instance, others, *args, **kwargs)
        if len(ib) > 1:
            raise exception.InvalidInput(reason='a server can have one InfiniBand port, not %d: %s'
                                                % (len(ib), ', '.join(v['id'] for v in ib)))
        guest.metadata.extend(ib_vif.VfMetadata(v) for v in ib)
        if ib:
            guest.add_device(ib_vif.Channel(ib_vif.AGENT_CHANNEL))  # ibvmigd and the agent in the guest
        return guest

    # ---- the host's VFs ----

    def _get_pci_passthrough_devices(self):
        devices = jsonutils.loads(super()._get_pci_passthrough_devices())
        listed = {d['address'] for d in devices}
        return jsonutils.dumps(devices + [ib_vif.pci_device(v) for v in self._host_vfs()
                                          if v.get('pci') and v['pci'] not in listed])

    def _host_vfs(self):
        """What ibvmigd said last: while it is away its VFs, which servers have, are not gone."""
        try:
            self._vfs = self._ibvmig.status(nova_context.get_admin_context())['vfs']
        except exception.MigrationError as e:
            LOG.warning('the VFs of this host are taken to be what they were: %s', e.format_message())
        return self._vfs

    # ---- before ----

    def check_can_live_migrate_destination(self, context, instance, *args, **kwargs):
        data = super().check_can_live_migrate_destination(context, instance, *args, **kwargs)
        ib, _ = ib_vif.split(instance.get_network_info())
        if ib:
            self._check(context, instance, 'check_destination', self._destination_problem, ib)
        return data

    def check_can_live_migrate_source(self, context, instance, *args, **kwargs):
        data = super().check_can_live_migrate_source(context, instance, *args, **kwargs)
        ib, _ = ib_vif.split(instance.get_network_info())
        if ib:
            self._check(context, instance, 'check_source', self._source_problem, ib)
        return data

    def _check(self, context, instance, verb, problem_of, vifs):
        with self._event(context, verb, instance):
            try:
                problem = problem_of(context, instance, vifs)
            except exception.MigrationError as e:
                problem = e.format_message()
            if problem:
                raise exception.MigrationPreCheckError(reason=problem)

    def _destination_problem(self, context, instance, vifs):
        host = self._ibvmig.status(context)
        if not host['libvirt']['connected']:
            return 'ibvmigd on %s has no connection to libvirt' % host['host']
        if host.get('drained'):
            return 'host %s is drained: ibvmig undrain %s ends that' % (host['host'], host['host'])
        if not host['sm']['ok']:
            return 'ibvmigd on %s cannot move addresses: %s' % (host['host'], host['sm'].get('error'))
        if host.get('vf_error'):
            return 'ibvmigd on %s: %s' % (host['host'], host['vf_error'])
        for vif in vifs:
            name, key = ib_vif.pf(vif), ib_vif.pkey(vif)
            pf = next((p for p in host['pfs'] if p['name'] == name), None)
            if not pf:
                return '%s has no PF %s, only %s' % (host['host'], name, ', '.join(p['name'] for p in host['pfs']))
            if key not in [k.lower() for k in pf['pkeys']]:
                return 'PF %s of %s has no PKey %s' % (name, host['host'], key)
            if not any(v['pf'] == name and not v.get('vm') for v in host['vfs']):
                return 'PF %s of %s has no free VF' % (name, host['host'])
        return None

    def _source_problem(self, context, instance, vifs):
        vm = self._ibvmig.vm(context, instance.uuid)
        if not vm or vm['state'] != 'attached' or client.migration_of(vm):
            return client.tell(vm)
        if vm['agent']['state'] != 'up':
            return 'no ibvmig-agent answers in the guest (%s)' % vm['agent']['state']
        return None

    # ---- the VF, which stays attached until libvirt's pre-copy has nearly ended ----

    def _detach_direct_passthrough_vifs(self, context, migrate_data, instance):
        """Upstream detaches all of them here, before pre-copy."""
        ib, _ = ib_vif.split(_source_vifs(migrate_data))
        if ib:
            with self._event(context, 'arm', instance):
                problem = self._source_problem(context, instance, ib)
                if problem:
                    raise exception.MigrationError(reason=problem)
        for vif in _source_vifs(migrate_data):
            if vif['vnic_type'] in network_model.VNIC_TYPES_DIRECT_PASSTHROUGH and vif['type'] != ib_vif.IB:
                self.detach_interface(context, instance, vif)

    def _live_migration_operation(self, context, instance, dest, block_migration, migrate_data, guest,
                                  device_names):
        super()._live_migration_operation(context, instance, dest, block_migration, migrate_data,
                                          ib_vif.ArrivingGuest(guest, migrate_data), device_names)

    def _reattach_instance_vifs(self, context, instance, network_info):
        """After success at the destination, after a rollback at the source; ibvmigd has begun already."""
        ib, others = ib_vif.split(network_info)
        if ib:
            with self._event(context, 'confirm', instance):
                self._confirm(context, instance)
        super()._reattach_instance_vifs(context, instance, others)

    def _confirm(self, context, instance):
        def settled(vm):
            migration = client.migration_of(vm)
            if migration:
                return migration['state'] == 'PARKED'
            return vm is not None and vm['state'] in ('attached', 'without-vf')

        vm = self._ibvmig.wait_vm(context, instance.uuid, settled, CONF.ibvmig.confirm_timeout)
        if client.migration_of(vm) or vm['state'] != 'attached':
            raise exception.MigrationError(reason=client.tell(vm))

    # ---- after ----

    def post_live_migration_at_source(self, context, instance, network_info):
        super().post_live_migration_at_source(context, instance, network_info)
        self._left(context, instance, network_info, 'release')

    def rollback_live_migration_at_destination(self, context, instance, network_info, *args, **kwargs):
        try:
            super().rollback_live_migration_at_destination(context, instance, network_info, *args, **kwargs)
        finally:
            self._left(context, instance, network_info, 'rollback')

    def _left(self, context, instance, network_info, verb):
        """This host gives its VF back by itself, once the other has confirmed, which Nova's next steps must
        not wait for: only reported. What has happened to the VM is decided, so a failure here must not be its
        failure."""
        ib, _ = ib_vif.split(network_info)
        if not ib:
            return
        try:
            with self._event(context, verb, instance):
                vm = self._ibvmig.vm(context, instance.uuid)
                if (client.migration_of(vm) or {}).get('state') == 'PARKED':
                    raise exception.MigrationError(reason=client.tell(vm))
        except exception.MigrationError as e:
            LOG.warning('its VF is not given back yet: %s', e.format_message(), instance=instance)
