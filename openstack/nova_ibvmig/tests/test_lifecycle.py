# SPDX-License-Identifier: GPL-2.0-or-later
"""Everything else that starts, stops and moves a server: its VF is there each time, and the host that it has left has
given its own back."""
from unittest import mock

import fixtures

from nova import context
from nova import exception
from nova import objects

from nova_ibvmig.tests import played

IMAGE = 'nova.virt.libvirt.driver.LibvirtDriver._create_image'
MOVE = 'nova.virt.libvirt.driver.LibvirtDriver.migrate_disk_and_power_off'


def _power_off(driver, context, instance, *args, **kwargs):
    """Without the disks, which these fixtures do not have."""
    driver.power_off(instance)
    return '{}'


class TestLifecycle(played.IbServers):

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MonkeyPatch(MOVE, _power_off))

    def _with_vf(self, defined, pf='physnet4', vguid=played.VGUID, pkey=played.PKEY):
        """The newest definition has the server's addresses and its agent's channel."""
        (vf,), channels = defined[-1]
        self.assertEqual((pf, vguid, pkey, '0'), tuple(vf.get(k) for k in ('pf', 'vguid', 'pkey', 'index')))
        self.assertIn('org.ibvmig.0', channels)

    def test_created_from_mac_and_configuration(self):
        self.start_compute('h0')
        self.flags(pf_by_physnet={'physnet4': 'mlx5_0'}, default_pkey='0x8002', group='ibvmig')
        defined = self._metadata('h0')
        server = self._create_server(networks=[{'port': self._port()['id']}], host='h0')
        mac = self.neutron.network_4_port_1['mac_address'].replace(':', '')
        self._with_vf(defined, 'mlx5_0', '0x%sfffe%s' % (mac[:6], mac[6:]), '0x8002')
        self.assertEqual({'attach': 'Success'}, self._results(server, 'create'))

    def test_created_without_its_vf(self):
        self.start_compute('h0')
        self.daemons['h0'].vm = {'state': 'without-vf', 'problem': 'no VF was free'}
        server = self._create_server(networks=[{'port': self._port()['id']}], host='h0', expected_state='ERROR')
        self.assertIn('the VM is without-vf on h0: no VF was free',
                      self._events(server, 'create')['attach']['details'])
        self.assertEqual([], self._domains('h0'))

    def test_created_without_its_vf_where_that_is_not_fatal(self):
        self.flags(vif_plugging_is_fatal=False)
        self.start_compute('h0')
        self.daemons['h0'].vm = {'state': 'without-vf', 'problem': 'no VF was free'}
        server = self._create_server(networks=[{'port': self._port()['id']}], host='h0')
        self.assertEqual({'attach': 'Error'}, self._results(server, 'create'))

    def test_stop_start_reboot_rebuild(self):
        server = self._boot(hosts=['h0'])
        self._stop_server(server)
        self.assertIn(server['id'], self.daemons['h0'].gone)
        defined = self._metadata('h0')
        self._start_server(server)
        self._reboot_server(server, hard=True)
        self._rebuild_server(server, '155d900f-4e14-4e4c-a73d-069cbf4541e6')
        self.assertEqual(3, len(defined))
        self._with_vf(defined)
        self.assertEqual({'release': 'Success'}, self._results(server, 'stop'))
        for action in ('start', 'reboot', 'rebuild'):
            self.assertEqual({'release': 'Success', 'attach': 'Success'}, self._results(server, action))

    def test_start_by_no_action(self):
        """As when a host boots (resume_guests_state_on_host_boot): there is nowhere to show an event."""
        server = self._boot(hosts=['h0'])
        instance = objects.Instance.get_by_uuid(context.get_admin_context(), server['id'])
        by_nobody = context.RequestContext(project_id=instance.project_id, is_admin=True)
        started = mock.Mock()
        self.computes['h0'].driver._started(by_nobody, instance, started)
        self.assertEqual([], started.method_calls)
        self.daemons['h0'].vm = {'state': 'without-vf', 'problem': 'no VF was free'}
        self.assertRaises(exception.InstanceDeployFailure, self.computes['h0'].driver._started, by_nobody, instance,
                          started)
        started.poweroff.assert_called_once_with()
        self.assertEqual({'attach': 'Success'}, self._results(server, 'create'))

    def test_stop_with_a_vf_that_stays(self):
        """Waited for and told, but the server is stopped all the same."""
        self.flags(release_timeout=1, group='ibvmig')
        server = self._boot(hosts=['h0'])
        self.daemons['h0'].left = {'state': 'leaving'}
        self._stop_server(server)
        self.assertIn('after 1 s the VM is leaving on h0', self._events(server, 'stop')['release']['details'])

    def test_start_without_its_vf(self):
        """It stays stopped, says why, and starts once that is mended."""
        server = self._boot(hosts=['h0'])
        self._stop_server(server)
        self.daemons['h0'].vm = {'state': 'without-vf', 'problem': 'no VF was free'}
        self._refused(self.api.post_server_action, server['id'], {'os-start': None})
        self.assertEqual('SHUTOFF', self._idle(server)['status'])
        self.assertFalse(self.daemons['h0'].runs(server['id']))
        self.assertIn('no VF was free', self._events(server, 'start')['attach']['details'])
        self.daemons['h0'].vm = {}
        self._start_server(server)

    def test_cold_migration_and_revert(self):
        server = self._boot()
        defined = self._metadata('h1')
        server = self._migrate_server(server)
        self.assertEqual('h1', server['OS-EXT-SRV-ATTR:host'])
        self.assertIn(server['id'], self.daemons['h0'].gone)
        self._with_vf(defined)
        self.assertEqual({'release': 'Success', 'attach': 'Success'}, self._results(server, 'migrate'))
        defined = self._metadata('h0')
        server = self._revert_resize(server)
        self.assertEqual('h0', server['OS-EXT-SRV-ATTR:host'])
        self._with_vf(defined)
        self.assertEqual({'release': 'Success', 'attach': 'Success'}, self._results(server, 'revertResize'))

    def test_resize(self):
        server = self._boot()
        defined = self._metadata('h1')
        server = self._resize_server(server, self.api.get_flavors()[1]['id'])
        server = self._confirm_resize(server)
        self.assertEqual(('h1', 'ACTIVE'), (server['OS-EXT-SRV-ATTR:host'], server['status']))
        self._with_vf(defined)

    def _lose_host(self):
        server = self._boot()
        self.api.put_service(self.computes['h0'].service_ref.uuid, {'forced_down': True})
        self.computes['h0'].stop()
        return server, self._metadata('h1')

    def test_evacuate(self):
        """Its addresses are taken from the host that is off."""
        server, defined = self._lose_host()
        server = self._evacuate_server(server, expected_host='h1')
        self._with_vf(defined)
        self.assertEqual({'fence': 'Success', 'attach': 'Success'}, self._results(server, 'evacuate'))
        self.assertEqual([(server['id'], 'h0')], self.daemons['h1'].fenced)

    def test_evacuate_from_a_host_that_is_not_off(self):
        """It is not started a second time, and can be evacuated once that host is off."""
        server, defined = self._lose_host()
        self.daemons['h1'].fence = 'host h0 is not off'
        self._refused(self._evacuate_server, server)
        self.assertEqual('h0', self._wait_for_state_change(server, 'ERROR')['OS-EXT-SRV-ATTR:host'])
        self.assertEqual([], defined)
        self.assertIn('host h0 is not off (not-fenced)', self._events(server, 'evacuate')['fence']['details'])
        self.daemons['h1'].fence = None
        server = self._evacuate_server(server, expected_host='h1')
        self._with_vf(defined)

    def test_shelve(self):
        server = self._boot()
        self._shelve_server(server)
        self.assertIn(server['id'], self.daemons['h0'].gone)
        self.api.put_service(self.computes['h0'].service_ref.uuid, {'status': 'disabled'})
        defined = self._metadata('h1')
        server = self._unshelve_server(server)
        self.assertEqual('h1', server['OS-EXT-SRV-ATTR:host'])
        self._with_vf(defined)
        self.assertEqual({'attach': 'Success'}, self._results(server, 'unshelve'))

    def test_unshelved_without_its_vf(self):
        """Nothing of it stays where it did not start: Nova takes it for offloaded again."""
        server = self._boot()
        self._shelve_server(server)
        self.api.put_service(self.computes['h0'].service_ref.uuid, {'status': 'disabled'})
        self.daemons['h1'].vm = {'state': 'without-vf', 'problem': 'no VF was free'}
        gone = self._files_removed('h1')
        self._refused(self.api.post_server_action, server['id'], {'unshelve': {}})
        self.assertEqual('SHELVED_OFFLOADED', self._idle(server)['status'])
        self.assertIn('no VF was free', self._events(server, 'unshelve')['attach']['details'])
        self._nothing_at('h1', server, gone)
        self.daemons['h1'].vm = {}
        server = self._unshelve_server(server)
        self.assertEqual('h1', server['OS-EXT-SRV-ATTR:host'])

    def test_evacuated_without_its_vf(self):
        server, _ = self._lose_host()
        self.daemons['h1'].vm = {'state': 'without-vf', 'problem': 'no VF was free'}
        gone = self._files_removed('h1')
        self._refused(self._evacuate_server, server)
        self.assertEqual('h0', self._wait_for_state_change(server, 'ERROR')['OS-EXT-SRV-ATTR:host'])
        self._nothing_at('h1', server, gone)

    def _domains(self, host):
        return self.computes[host].driver._host.list_guests(only_running=False)

    def _files_removed(self, host):
        """UUIDs of the servers whose files that host removes from now on. (These fixtures make none.)"""
        removed = []
        self.useFixture(fixtures.MonkeyPatch(IMAGE, lambda *_, **__: (True, True)))
        self.useFixture(fixtures.MockPatchObject(
            self.computes[host].driver, 'delete_instance_files',
            side_effect=lambda instance: removed.append(instance.uuid) or True))
        return removed

    def _nothing_at(self, host, server, gone):
        self.assertEqual([], self._domains(host))
        self.assertIn(server['id'], gone)
        self.assertIn(server['id'], self.daemons[host].gone)

    def test_suspend(self):
        server = self._boot(hosts=['h0'])
        self._refused(self.api.post_server_action, server['id'], {'suspend': {}})
        self.assertEqual('ACTIVE', self._idle(server)['status'])
        self.assertIn('cannot be suspended',
                      self._all_events(server, 'suspend')['compute_suspend_instance']['details'])
        self.assertTrue(self.daemons['h0'].runs(server['id']))
