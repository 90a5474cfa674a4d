# SPDX-License-Identifier: GPL-2.0-or-later
"""Servers with an IB port on two computes of Nova's own fixtures; ibvmigd is played by requests_mock.

fakelibvirt's domains migrate at once, so the daemon's part is only what it answers."""
import re
from unittest import mock

import fixtures
from lxml import etree
from oslo_serialization import jsonutils
import requests_mock

from nova import context
from nova import objects
from nova.tests.fixtures import libvirt as fakelibvirt
from nova.tests.functional.api import client as api_client
from nova.tests.functional.libvirt import base
from nova.tests.functional.libvirt import test_pci_sriov_servers as sriov

from nova_ibvmig import driver  # noqa: F401  registers the options
from nova_ibvmig import vif as ib_vif

VGUID = '0x00a1b2fffe000501'
PKEY = '0x8001'


class Daemon(object):
    """What ibvmigd would answer. Each field is one that a test may spoil."""

    def __init__(self):
        self.pfs = [{'name': 'physnet4', 'pkeys': ['0xffff', PKEY]}]
        self.vfs = [{'name': 'vf0', 'pf': 'physnet4', 'vm': None}]
        self.sm, self.drained = {'ok': True}, False
        self.vm_state, self.agent, self.problem, self.migration = 'attached', 'up', None, None
        self.dead_after = None  # it answers that many requests, then fails
        self.asked = []

    def answer(self, request, context):
        self.asked.append(request.path)
        if self.dead_after is not None and len(self.asked) > self.dead_after:
            context.status_code = 503
            return {'errors': [{'code': 'sm-busy', 'status': 503, 'detail': 'played: not now', 'request_id': 'r'}]}
        if request.path == '/v1/status':
            return {'host': 'played', 'libvirt': {'connected': True}, 'sm': self.sm, 'vf_error': None,
                    'drained': self.drained,
                    'pfs': self.pfs, 'vfs': self.vfs}
        if self.vm_state is None:
            context.status_code = 404
            return {'errors': [{'code': 'not-found', 'status': 404, 'detail': 'none', 'request_id': 'r'}]}
        return {'uuid': request.path.rsplit('/', 1)[1], 'host': 'played', 'state': self.vm_state,
                'problem': self.problem, 'agent': {'state': self.agent}, 'migration': self.migration}


class IbServers(sriov._PCIServersWithMigrationTestBase):
    PCI_DEVICE_SPEC = sriov.SRIOVServersTest.PCI_DEVICE_SPEC
    PCI_ALIAS = []
    ADMIN_API = True
    microversion = 'latest'

    def setUp(self):
        super().setUp()
        self.neutron = self.useFixture(base.LibvirtNeutronFixture(self))
        self.daemon = Daemon()
        mock = requests_mock.Mocker(real_http=True)
        mock.start()
        self.addCleanup(mock.stop)
        mock.get(re.compile('^https://127.0.0.1:7611/'), json=self.daemon.answer)
        self.flags(confirm_timeout=1, request_timeout=1, group='ibvmig')

    def _setup_compute_service(self):
        self.flags(compute_driver='ibvmig.IbvmigLibvirtDriver')

    def _port(self, **profile):
        port = dict(self.neutron.network_4_port_1)
        port['binding:vif_type'] = 'ib_hostdev'
        port['binding:profile'] = dict(port.get('binding:profile') or {}, **profile)
        self.neutron.create_port({'port': port})
        return port

    def _boot(self, **profile):
        self.start_compute('h0', pci_info=fakelibvirt.HostPCIDevicesInfo(num_pfs=1, num_vfs=4))
        self.start_compute('h1', pci_info=fakelibvirt.HostPCIDevicesInfo(num_pfs=1, num_vfs=2))
        port = self._port(**(profile or {'vguid': VGUID, 'pkey': PKEY}))
        server = self._create_server(networks=[{'port': port['id']}], host='h0')
        del self.daemon.asked[:]
        return server

    def _xml(self, server, host):
        conn = self.computes[host].driver._host.get_connection()
        return etree.fromstring(conn.lookupByUUIDString(server['id']).XMLDesc(0))

    def _events(self, server):
        action = next(a for a in self.admin_api.get_instance_actions(server['id']) if a['action'] == 'live-migration')
        detail = self.admin_api.api_get('/servers/%s/os-instance-actions/%s' % (server['id'], action['request_id']))
        return {e['event']: e for e in detail.body['instanceAction']['events'] if e['event'].startswith('ibvmig_')}

    def _migrate_async(self, server):
        self.api.post_server_action(server['id'], {'os-migrateLive': {'host': None, 'block_migration': 'auto'}})


class TestLiveMigration(IbServers):

    def test_there(self):
        server = self._boot()
        server = self._live_migrate(server, 'completed')
        self.assertEqual('h1', server['OS-EXT-SRV-ATTR:host'])
        events = self._events(server)
        self.assertEqual({'ibvmig_check_destination', 'ibvmig_check_source', 'ibvmig_arm', 'ibvmig_confirm',
                          'ibvmig_release'}, set(events))
        self.assertEqual({'Success'}, {e['result'] for e in events.values()})

    def test_domain_has_no_hostdev(self):
        server = self._boot()
        xml = self._xml(server, 'h0')
        self.assertEqual([], xml.findall('./devices/hostdev'))

    def _check_fails(self, server, event, words):
        """The API's 202 is a call in these fixtures: the conductor's refusal comes back through it."""
        self.assertRaises(api_client.OpenStackApiException, self._migrate_async, server)
        server = self._wait_for_state_change(server, 'ACTIVE')
        self.assertEqual('h0', server['OS-EXT-SRV-ATTR:host'])
        self.assertIn(words, self._events(server)[event]['details'])

    def test_no_free_vf_there(self):
        server = self._boot()
        self.daemon.vfs[0]['vm'] = 'other'
        self._check_fails(server, 'ibvmig_check_destination', 'PF physnet4 of played has no free VF')

    def test_drained(self):
        server = self._boot()
        self.daemon.drained = True
        self._check_fails(server, 'ibvmig_check_destination', 'host played is drained: ibvmig undrain played')

    def test_no_pkey_there(self):
        server = self._boot()
        self.daemon.pfs[0]['pkeys'] = ['0xffff']
        self._check_fails(server, 'ibvmig_check_destination', 'has no PKey ' + PKEY)

    def test_no_such_pf_there(self):
        server = self._boot()
        self.daemon.pfs[0]['name'] = 'mlx5_7'
        self._check_fails(server, 'ibvmig_check_destination', 'has no PF physnet4, only mlx5_7')

    def test_sm_away(self):
        server = self._boot()
        self.daemon.sm = {'ok': False, 'error': 'no plugin'}
        self._check_fails(server, 'ibvmig_check_destination', 'cannot move addresses: no plugin')

    def test_daemon_fails(self):
        server = self._boot()
        self.daemon.dead_after = 0
        self._check_fails(server, 'ibvmig_check_destination', 'played: not now (sm-busy)')

    def test_no_agent(self):
        server = self._boot()
        self.daemon.agent = 'none'
        self._check_fails(server, 'ibvmig_check_source', 'no ibvmig-agent answers in the guest (none)')

    def test_without_its_vf(self):
        server = self._boot()
        self.daemon.vm_state, self.daemon.problem = 'without-vf', 'no VF was free'
        self._check_fails(server, 'ibvmig_check_source', 'the VM is without-vf on played: no VF was free')

    def test_arm_fails(self):
        """The VF has gone between the checks and libvirt's job: Nova rolls back, the server stays."""
        server = self._boot()
        seen = []

        def answer(request, context):
            if request.path.startswith('/v1/vms/'):
                seen.append(1)
                self.daemon.vm_state = 'without-vf' if len(seen) == 2 else 'attached'
                if len(seen) == 2:
                    for domain in self.computes['h0'].driver._host.get_connection().listAllDomains(3):
                        domain.fail_job()  # libvirt was never asked; Nova's monitor must see an end
            return Daemon.answer(self.daemon, request, context)
        with requests_mock.Mocker(real_http=True) as mock:
            mock.get(re.compile('^https://127.0.0.1:7611/'), json=answer)
            server = self._live_migrate(server, 'failed')
        self.assertEqual('h0', server['OS-EXT-SRV-ATTR:host'])
        events = self._events(server)
        self.assertEqual(('Error', 'Success'), (events['ibvmig_arm']['result'], events['ibvmig_confirm']['result']))
        self.assertIn('the VM is without-vf on played', events['ibvmig_arm']['details'])

    def test_parked_at_the_destination(self):
        server = self._boot()
        states = iter(['attached', 'attached'])

        def answer(request, context):
            if request.path.startswith('/v1/vms/') and next(states, None) is None:
                self.daemon.migration = {'id': 'm1', 'state': 'PARKED', 'ended': False, 'reason': 'port stays DOWN'}
            return Daemon.answer(self.daemon, request, context)
        with requests_mock.Mocker(real_http=True) as mock:
            mock.get(re.compile('^https://127.0.0.1:7611/'), json=answer)
            self._migrate_async(server)
            self._wait_for_migration_status(server, ['completed'])
            server = self._wait_for_server_parameter(server, {'OS-EXT-STS:task_state': None})
        self.assertEqual(('h1', 'ERROR'), (server['OS-EXT-SRV-ATTR:host'], server['status']))
        self.assertIn('port stays DOWN: mend it, then: ibvmig resolve m1',
                      self._events(server)['ibvmig_confirm']['details'])


class TestPorts(IbServers):

    def test_other_servers_are_left_alone(self):
        self.start_compute('h0')
        self.start_compute('h1')
        server = self._create_server(networks='none', host='h0')
        server = self._live_migrate(server, 'completed')
        asked = [path for path in self.daemon.asked if path != '/v1/status']  # which VFs there are
        self.assertEqual(('h1', [], {}), (server['OS-EXT-SRV-ATTR:host'], asked, self._events(server)))

    def test_beside_an_ordinary_port(self):
        self.start_compute('h0', pci_info=fakelibvirt.HostPCIDevicesInfo(num_pfs=1, num_vfs=4))
        self.start_compute('h1', pci_info=fakelibvirt.HostPCIDevicesInfo(num_pfs=1, num_vfs=4))
        server = self._create_server(networks=[{'port': self._port()['id']}, {'port': self.neutron.port_1['id']}],
                                     host='h0')
        self.assertEqual([self.neutron.port_1['mac_address']], [
            m.get('address') for m in self._xml(server, 'h0').findall('./devices/interface/mac')])
        server = self._live_migrate(server, 'completed')
        self.assertEqual('h1', server['OS-EXT-SRV-ATTR:host'])

    def test_two_ib_ports(self):
        self.start_compute('h0', pci_info=fakelibvirt.HostPCIDevicesInfo(num_pfs=1, num_vfs=4))
        other = dict(self.neutron.network_4_port_2, **{'binding:vif_type': 'ib_hostdev'})
        self.neutron.create_port({'port': other})
        server = self._create_server(networks=[{'port': self._port()['id']}, {'port': other['id']}], host='h0',
                                     expected_state='ERROR')
        self.assertIn('a server can have one InfiniBand port, not 2', server['fault']['message'])

    def _bad_profile(self, words, **profile):
        self.start_compute('h0', pci_info=fakelibvirt.HostPCIDevicesInfo(num_pfs=1, num_vfs=4))
        server = self._create_server(networks=[{'port': self._port(**profile)['id']}], host='h0',
                                     expected_state='ERROR')
        self.assertIn(words, server['fault']['message'])

    def test_bad_vguid(self):
        self._bad_profile('vguid 0x0000000000000000: must be 0x and 16 hex digits', vguid='0x' + '0' * 16)

    def test_bad_pkey(self):
        self._bad_profile('pkey 8001: must be 0x and 4 hex digits', pkey='8001')


class TestDevices(IbServers):

    def _devices(self):
        self.start_compute('h0', pci_info=fakelibvirt.HostPCIDevicesInfo(num_pfs=1, num_vfs=1))
        return {d['address']: d for d in jsonutils.loads(
            self.computes['h0'].driver._get_pci_passthrough_devices())}

    def test_a_providers_vfs_are_devices(self):
        self.daemon.vfs = [{'name': 'pf0vf1', 'pf': 'pf0', 'pci': '0000:77:00.1'},
                           {'name': 'pf0vf2', 'pf': 'pf0', 'pci': None},
                           {'name': 'vf0', 'pf': 'physnet4', 'pci': '0000:81:00.1'}]
        devices = self._devices()
        self.assertEqual(('ffff', 'type-VF', 'ibvmig_pf0vf1'), tuple(
            devices['0000:77:00.1'][k] for k in ('vendor_id', 'dev_type', 'label')))
        self.assertNotEqual('ffff', devices['0000:81:00.1']['vendor_id'])  # libvirt has told it

    def test_they_stay_while_the_daemon_is_away(self):
        self.daemon.vfs = [{'name': 'pf0vf1', 'pf': 'pf0', 'pci': '0000:77:00.1'}]
        before = self._devices()
        self.daemon.dead_after = 0
        after = jsonutils.loads(self.computes['h0'].driver._get_pci_passthrough_devices())
        self.assertEqual(set(before), {d['address'] for d in after})


class TestMetadata(IbServers):

    def _domain(self, **profile):
        """What libvirt is given: the fixtures' domains forget what they do not know."""
        caught = []
        real = fakelibvirt.Connection.defineXML

        def define(conn, xml):
            caught.append(xml)
            return real(conn, xml)
        self.useFixture(fixtures.MonkeyPatch('nova.tests.fixtures.libvirt.Connection.defineXML', define))
        self._boot(**profile)
        return etree.fromstring(caught[0])

    def _metadata(self, **profile):
        return self._domain(**profile).find('./metadata/{urn:ibvmig:1}vf')

    def test_the_agents_channel(self):
        channel = self._domain().find('./devices/channel')
        self.assertEqual('org.ibvmig.0', channel.find('target').get('name'))
        self.assertIsNone(channel.find('source'))  # libvirt's choice

    def test_the_vf_that_nova_claimed(self):
        self.assertRegex(self._metadata().get('pci'), '^0000:81:00.[1-9]$')

    def test_the_vf_that_nova_claimed_there(self):
        """The destination's XML names the destination's VF."""
        server = self._boot()
        guest = mock.Mock()
        guest.get_xml_desc.return_value = (
            '<domain><metadata><ibvmig:vf xmlns:ibvmig="urn:ibvmig:1" vguid="%s" pci="0000:81:00.4"/></metadata>'
            '</domain>' % VGUID)
        there = objects.VIFMigrateData(profile={'pci_slot': '0000:82:00.1'}, source_vif=objects.Instance.get_by_uuid(
            context.get_admin_context(), server['id'], expected_attrs=['info_cache']).get_network_info()[0])
        arriving = ib_vif.ArrivingGuest(guest, objects.LibvirtLiveMigrateData(vifs=[there]))
        vf = etree.fromstring(arriving.get_xml_desc(dump_migratable=True)).find('./metadata/{urn:ibvmig:1}vf')
        self.assertEqual('0000:82:00.1', vf.get('pci'))
        self.assertIs(guest.migrate, arriving.migrate)

    def test_from_the_profile(self):
        vf = self._metadata(vguid=VGUID.upper().replace('X', 'x'), pkey=PKEY)
        self.assertEqual({'pf': 'physnet4', 'vguid': VGUID, 'pkey': PKEY, 'index': '0'},
                         {k: v for k, v in vf.attrib.items() if k != 'pci'})

    def test_from_mac_and_configuration(self):
        self.flags(pf_by_physnet={'physnet4': 'mlx5_0'}, default_pkey='0x8002', group='ibvmig')
        vf = self._metadata(other='x')
        mac = self.neutron.network_4_port_1['mac_address'].replace(':', '')
        self.assertEqual({'pf': 'mlx5_0', 'vguid': '0x%sfffe%s' % (mac[:6], mac[6:]), 'pkey': '0x8002',
                          'index': '0'}, {k: v for k, v in vf.attrib.items() if k != 'pci'})
