# SPDX-License-Identifier: GPL-2.0-or-later
"""LibvirtDriver for VMs with InfiniBand VFs that migrate with them attached.

ibvmigd does the work on libvirt's own hook and events, so nothing here begins it: Nova's steps check
before, and wait and report after. Each is an event of the server's action."""
import time

from nova import context as nova_context
from nova import exception
import nova.conf
from nova.compute import utils as compute_utils
from nova.compute import vm_states
from nova.network import model as network_model
from nova.virt.libvirt import driver as libvirt_driver
from oslo_log import log as logging
from oslo_serialization import jsonutils

from nova_ibvmig import client
from nova_ibvmig import conf as ibvmig_conf
from nova_ibvmig import health
from nova_ibvmig import vif as ib_vif

CONF = nova.conf.CONF
LOG = logging.getLogger(__name__)
RESOURCE_CLASS = 'CUSTOM_IB_VF'
AWAY_S = 30  # longer than a restart, shorter than from one look of nova-compute's to the next
ibvmig_conf.register_opts(CONF)


def _source_vifs(migrate_data):
    return [v.source_vif for v in (migrate_data.vifs if 'vifs' in migrate_data and migrate_data.vifs else [])
            if 'source_vif' in v and v.source_vif]


class Event(compute_utils.EventReporter):
    """Shown by `openstack server event show`, with our reason where it fails. Where the server has no action to show
    it in (its host boots), nothing is shown."""

    def __init__(self, context, verb, instance):
        super().__init__(context, 'ibvmig_' + verb, CONF.host, instance.uuid)

    def __enter__(self):
        try:
            return super().__enter__()
        except exception.InstanceActionNotFound:
            self.instance_uuids = ()
            return self


class IbvmigLibvirtDriver(libvirt_driver.LibvirtDriver):

    def __init__(self, virtapi, read_only=False):
        super().__init__(virtapi, read_only)
        self.vif_driver = ib_vif.IbvmigVifDriver(self._host)
        self._ibvmig = client.Client(CONF)
        self._vfs, self._away_since_s = [], None
        self._aborted = set()  # UUIDs of servers whose live migration a user has aborted

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

    def update_provider_tree(self, provider_tree, nodename, allocations=None):
        known = provider_tree.data(nodename).inventory.get(RESOURCE_CLASS)
        super().update_provider_tree(provider_tree, nodename, allocations=allocations)
        vfs = self._inventory(known)
        if vfs and vfs['total']:
            inventory = dict(provider_tree.data(nodename).inventory, **{RESOURCE_CLASS: vfs})
            provider_tree.update_inventory(nodename, inventory)

    def _inventory(self, known):
        """The host's VFs, all of them reserved while its ibvmigd is not well; known: what placement has, or None, which
        stays so until ibvmigd has not answered for AWAY_S: one that is being restarted does not close the host."""
        try:
            host = self._ibvmig.status(nova_context.get_admin_context())
            problem, total = health.of_host(host), len(host['vfs'])
            self._away_since_s = None
        except exception.MigrationError as e:
            problem, total = e.kwargs['reason'], 0
            now_s = time.monotonic()
            self._away_since_s = self._away_since_s or now_s
            if now_s - self._away_since_s < AWAY_S:
                LOG.warning('servers may still come for its VFs: %s', problem)
                return known
        if problem:
            LOG.warning('no server is to come for its VFs: %s', problem)
            total = (known or {}).get('total') or total
        return {'total': total, 'reserved': total if problem else 0, 'min_unit': 1, 'max_unit': total,
                'step_size': 1, 'allocation_ratio': 1.0}

    # ---- the domain ----

    def _get_guest_config(self, instance, network_info, *args, **kwargs):
        ib, others = ib_vif.split(network_info)
        guest = super()._get_guest_config(instance, others, *args, **kwargs)
        if ib:
            guest.metadata.append(ib_vif.VfsMetadata(ib))
            guest.add_device(ib_vif.Channel(ib_vif.AGENT_CHANNEL))  # ibvmigd and the agent in the guest
        return guest

    def _create_guest_with_network(self, context, xml, instance, network_info, block_device_info, *args, **kwargs):
        """Every start of a server: created, rebooted, resized, rebuilt, evacuated, unshelved, rescued."""
        guest = super()._create_guest_with_network(context, xml, instance, network_info, block_device_info, *args,
                                                   **kwargs)
        ib, _ = ib_vif.split(network_info)
        if ib and guest.is_active():
            try:
                self._started(context, instance, guest)
            except exception.InstanceDeployFailure:
                made = {k: v for k, v in kwargs.items() if k.startswith('cleanup_')}
                if made:  # only spawn() says it: the server may start elsewhere next, and Nova leaves it to us
                    self._wait_given_back(context, instance)
                    self._cleanup(context, instance, network_info, block_device_info, **made)
                raise
        return guest

    def _started(self, context, instance, guest):
        """Without its VF it does not run, as with upstream, whose domains do not start without their <hostdev>."""
        try:
            with Event(context, 'attach', instance):
                self._wait_vf(context, instance, CONF.ibvmig.attach_timeout)
        except exception.MigrationError as e:
            if not CONF.vif_plugging_is_fatal:
                LOG.warning('it runs without its VF: %s', e.format_message(), instance=instance)
                return
            guest.poweroff()
            raise exception.InstanceDeployFailure(reason=e.kwargs['reason'])

    def rebuild(self, context, instance, *args, evacuate=False, **kwargs):
        """Upstream leaves it to the compute manager. An evacuated server's addresses are still bound on the host that
        it was on, which is off: whoever evacuates it has made sure of that."""
        ib, _ = ib_vif.split(instance.get_network_info())
        if evacuate and ib:
            with Event(context, 'fence', instance):
                self._ibvmig.fence(context, instance.uuid, instance.host)
        super().rebuild(context, instance, *args, evacuate=evacuate, **kwargs)

    def _destroy(self, instance):
        """Every stop. Whoever starts the server next, here or elsewhere, needs the addresses that it had."""
        super()._destroy(instance)
        ib, _ = ib_vif.split(instance.get_network_info())
        if ib:
            self._wait_given_back(instance._context or nova_context.get_admin_context(), instance)

    def _wait_given_back(self, context, instance):
        try:
            with Event(context, 'release', instance):
                self._ibvmig.wait_vm(context, instance.uuid, lambda vm: vm is None, CONF.ibvmig.release_timeout)
        except exception.MigrationError as e:
            LOG.warning('its VF is not given back yet: %s', e.format_message(), instance=instance)

    def suspend(self, context, instance):
        """Also a snapshot that is not live. Nova would detach the VF under the guest's connections."""
        ib, _ = ib_vif.split(instance.get_network_info())
        if ib:
            raise exception.InstanceFaultRollback(exception.InstanceSuspendFailure(
                reason='a server with an InfiniBand port cannot be suspended: its connections would not outlive it; '
                       'pause, stop or shelve it'))
        super().suspend(context, instance)

    # ---- before a live migration ----

    def check_can_live_migrate_destination(self, context, instance, *args, **kwargs):
        data = super().check_can_live_migrate_destination(context, instance, *args, **kwargs)
        ib, _ = ib_vif.split(instance.get_network_info())
        if ib:
            with Event(context, 'check_destination', instance):
                self._pre_check(lambda: health.of_destination(
                    self._ibvmig.status(context), [ib_vif.pf(v) for v in ib]))
        return data

    def check_can_live_migrate_source(self, context, instance, *args, **kwargs):
        data = super().check_can_live_migrate_source(context, instance, *args, **kwargs)
        ib, _ = ib_vif.split(instance.get_network_info())
        if ib:
            with Event(context, 'check_source', instance):
                self._pre_check(lambda: health.of_source(self._ibvmig.vm(context, instance.uuid)))
        return data

    def _pre_check(self, find_problem):
        try:
            problem = find_problem()
        except exception.MigrationError as e:
            problem = e.kwargs['reason']
        if problem:
            raise exception.MigrationPreCheckError(reason=problem)

    # ---- the VF, which stays attached until libvirt's pre-copy has nearly ended ----

    def _detach_direct_passthrough_vifs(self, context, migrate_data, instance):
        """Upstream detaches all of them here, before pre-copy."""
        for vif in _source_vifs(migrate_data):
            if vif['vnic_type'] in network_model.VNIC_TYPES_DIRECT_PASSTHROUGH and vif['type'] != ib_vif.IB:
                self.detach_interface(context, instance, vif)

    def _live_migration_operation(self, context, instance, dest, block_migration, migrate_data, guest,
                                  device_names):
        def migrate(guest):
            operation(context, instance, dest, block_migration, migrate_data, guest, device_names)

        operation = super()._live_migration_operation
        ib, _ = ib_vif.split(_source_vifs(migrate_data))
        if not ib:
            migrate(guest)
            return
        earlier = self._arm(context, instance)
        with Event(context, 'migrate', instance):
            try:
                migrate(ib_vif.ArrivingGuest(guest, migrate_data))
            except libvirt_driver.libvirt.libvirtError as e:
                raise exception.MigrationError(reason=self._why_failed(context, instance, earlier, e)) from e

    def _arm(self, context, instance):
        """The id of the server's last migration, or None."""
        with Event(context, 'arm', instance):
            vm = self._ibvmig.vm(context, instance.uuid)
            problem = health.of_source(vm)
            if problem:
                LOG.error('Live migration is not begun: %s', problem, instance=instance)
                raise exception.MigrationError(reason=problem)
            return health.last_migration(vm)

    def _why_failed(self, context, instance, earlier, error):
        """libvirt's job has ended with that error: what ibvmigd says of it, once it has walked back, and libvirt."""
        try:
            vm = self._ibvmig.wait_vm(context, instance.uuid, health.has_ended, CONF.ibvmig.confirm_timeout)
            told = health.why_failed(vm, earlier)
        except exception.MigrationError as e:
            told = e.kwargs['reason']
        return health.with_libvirt(told, str(error))

    def live_migration(self, context, instance, dest, post_method, recover_method, block_migration=False,
                       migrate_data=None):
        """Upstream tells a job that was cancelled from one that failed only if it looks just while libvirt ends it."""
        def recover(*args, **kwargs):
            if instance.uuid in self._aborted:
                kwargs['migration_status'] = 'cancelled'
            recover_method(*args, **kwargs)

        self._aborted.discard(instance.uuid)
        super().live_migration(context, instance, dest, post_method, recover, block_migration, migrate_data)

    def live_migration_abort(self, instance):
        ib, _ = ib_vif.split(instance.get_network_info())
        if ib:
            self._aborted.add(instance.uuid)  # before libvirt ends it: recover() looks there
        try:
            super().live_migration_abort(instance)
        except Exception:
            self._aborted.discard(instance.uuid)  # it goes on, and what ends it then is no abort
            raise

    def live_migration_force_complete(self, instance):
        """Upstream pauses the guest, and then it could not quiesce; or goes to post-copy, for which the VF would have
        to leave first. ibvmigd lets pre-copy end after its first pass, whatever the guest writes."""
        ib, _ = ib_vif.split(instance.get_network_info())
        if ib:
            LOG.info('nothing to force: ibvmigd ends the pre-copy', instance=instance)
        else:
            super().live_migration_force_complete(instance)

    def _reattach_instance_vifs(self, context, instance, network_info):
        """After success at the destination, after a rollback at the source; ibvmigd has begun already."""
        ib, others = ib_vif.split(network_info)
        if ib:
            self._confirm(context, instance)
        super()._reattach_instance_vifs(context, instance, others)

    def _confirm(self, context, instance):
        """A server whose VF does not come is in ERROR, but Nova goes on: an exception would end its steps here, and
        bindings, claims and disks on the other host would stay, which nobody tidies up."""
        try:
            with Event(context, 'confirm', instance):
                self._wait_vf(context, instance, CONF.ibvmig.confirm_timeout)
        except exception.MigrationError as e:
            LOG.error('it has no VF: %s', e.format_message(), instance=instance)
            compute_utils.add_instance_fault_from_exc(context, instance, e)
            instance.vm_state = vm_states.ERROR  # whoever called saves it, with the end of the migration

    def _wait_vf(self, context, instance, seconds):
        vm = self._ibvmig.wait_vm(context, instance.uuid, health.has_settled, seconds)
        if not health.has_vf(vm):
            raise exception.MigrationError(reason=health.tell(vm))

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
            with Event(context, verb, instance):
                vm = self._ibvmig.vm(context, instance.uuid)
                if (health.migration_of(vm) or {}).get('state') == 'PARKED':
                    raise exception.MigrationError(reason=health.tell(vm))
        except exception.MigrationError as e:
            LOG.warning('its VF is not given back yet: %s', e.format_message(), instance=instance)
