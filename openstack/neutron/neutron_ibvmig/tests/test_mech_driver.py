# SPDX-License-Identifier: GPL-2.0-or-later
"""The driver in Neutron's own ML2 plugin, called by the API as Nova calls it, on a database in memory."""
from unittest import mock

from neutron.conf.plugins.ml2 import config
from neutron.conf.plugins.ml2.drivers import driver_type
from neutron.tests.common import helpers
from neutron.tests.unit.db import test_db_base_plugin_v2
from neutron_lib import context as neutron_context
from neutron_lib.plugins import directory
from neutron_lib.plugins.ml2 import api
from oslo_config import cfg

from neutron_ibvmig import mech_driver

VLAN, PKEY = 5, '0x8005'
DIRECT = {'binding:vnic_type': 'direct'}


class Ml2(test_db_base_plugin_v2.NeutronDbPluginV2TestCase):

    def setUp(self):
        config.register_ml2_plugin_opts()
        driver_type.register_ml2_drivers_vlan_opts()
        driver_type.register_ml2_drivers_flat_opts()
        for group, option, value in (('ml2', 'mechanism_drivers', ['ibvmig', 'openvswitch']),
                                     ('ml2', 'type_drivers', ['vlan', 'flat']),
                                     ('ml2', 'tenant_network_types', ['vlan']),
                                     ('ml2_type_vlan', 'network_vlan_ranges', ['ib0net:1:100', 'eth0net:1:100']),
                                     ('ml2_ibvmig', 'physical_networks', ['ib0net'])):
            cfg.CONF.set_override(option, value, group)
        super().setUp('ml2')
        directory.get_plugin().start_rpc_listeners()

    def call(self, method, path, body=None, status=200):
        """What the API answers an administrator."""
        resource, ident, sub, host, action = (path.split('/') + 4 * [None])[:5]
        answer = self._req(method, resource, body, id=ident, subresource=sub, sub_id=host, action=action,
                           context=neutron_context.get_admin_context()).get_response(self.api)
        self.assertEqual(status, answer.status_int, answer.body)
        return answer.json if answer.body else None

    def net(self, physnet='ib0net', **kind):
        kind = kind or {'provider:network_type': 'vlan', 'provider:segmentation_id': VLAN}
        net = self.call('POST', 'networks', {'network': {
            'name': 'ib', 'tenant_id': self._tenant_id, 'provider:physical_network': physnet, **kind}},
                        201)['network']['id']
        self.call('POST', 'subnets', {'subnet': {'network_id': net, 'tenant_id': self._tenant_id, 'ip_version': 4,
                                                 'cidr': '10.9.0.0/24', 'enable_dhcp': False}}, 201)
        return net

    def make_port(self, net=None, status=201, **given):
        given = {'network_id': net or self.net(), 'tenant_id': self._tenant_id, 'device_owner': 'compute:nova',
                 'device_id': '11111111-2222-4333-8444-555555555555', **DIRECT, **given}
        answer = self.call('POST', 'ports', {'port': given}, status)
        return answer['port'] if status == 201 else answer['NeutronError']['message']

    def port_of(self, port):
        return self.call('GET', 'ports/' + port['id'])['port']

    def update(self, port, status=200, **given):
        answer = self.call('PUT', 'ports/' + port['id'], {'port': given}, status)
        return answer['port'] if status == 200 else answer['NeutronError']['message']

    def bind(self, port, host, status=201, **given):
        answer = self.call('POST', 'ports/%s/bindings' % port['id'], {'binding': {
            'host': host, 'tenant_id': self._tenant_id, **given}}, status)
        return answer.get('binding')

    def bindings(self, port):
        return {b['host']: b['status'] for b in self.call('GET', 'ports/%s/bindings' % port['id'])['bindings']}


class TestBinding(Ml2):

    def test_bound_by_nova(self):
        """As Nova does for a server: the port is there, then it gets host, device and the VF that is claimed."""
        port = self.make_port(**{'binding:profile': {'vguid': '0x00a1b2fffe000101'}})
        self.assertEqual(('unbound', 'DOWN'), (port['binding:vif_type'], port['status']))
        profile = dict(port['binding:profile'], pci_slot='0000:81:00.1')
        port = self.update(port, **{'binding:host_id': 'h0', 'binding:profile': profile})
        self.assertEqual(('ib_hostdev', profile), (port['binding:vif_type'], port['binding:profile']))
        self.assertEqual({'port_filter': False, 'connectivity': 'l2', 'physical_network': 'ib0net', 'vlan': '5',
                          'pkey': PKEY, 'bound_drivers': {'0': 'ibvmig'}}, self.port_of(port)['binding:vif_details'])
        self.assertEqual('ACTIVE', self.port_of(port)['status'])

    def test_flat(self):
        """The port's own PKey, or nova-compute's."""
        port = self.make_port(self.net(**{'provider:network_type': 'flat'}), **{
            'binding:host_id': 'h0', 'binding:profile': {'pkey': '0x8001'}})
        self.assertEqual({'port_filter': False, 'connectivity': 'l2', 'physical_network': 'ib0net'},
                         port['binding:vif_details'])
        self.assertEqual(('ib_hostdev', 'ACTIVE'), (port['binding:vif_type'], self.port_of(port)['status']))

    def test_live_migration(self):
        """The destination's binding beside the source's; then it is activated, and the source's deleted."""
        port = self.make_port(**{'binding:host_id': 'h0', 'binding:profile': {'pci_slot': '0000:81:00.1'}})
        there = self.bind(port, 'h1', vnic_type='direct', profile={'pci_slot': '0000:82:00.1'})
        self.assertEqual(('INACTIVE', 'ib_hostdev', PKEY), (
            there['status'], there['vif_type'], there['vif_details']['pkey']))
        self.assertEqual({'h0': 'ACTIVE', 'h1': 'INACTIVE'}, self.bindings(port))
        told = mock.patch.object(mech_driver.provisioning_blocks, 'provisioning_complete',
                                 wraps=mech_driver.provisioning_blocks.provisioning_complete)
        with told as complete:
            self.call('PUT', 'ports/%s/bindings/h1/activate' % port['id'], {'port_id': port['id']})
        self.assertEqual(1, complete.call_count)
        port = self.port_of(port)
        self.assertEqual(('h1', '0000:82:00.1', 'ib_hostdev', 'ACTIVE'), (
            port['binding:host_id'], port['binding:profile']['pci_slot'], port['binding:vif_type'], port['status']))
        self.call('DELETE', 'ports/%s/bindings/h0' % port['id'], status=204)
        self.assertEqual({'h1': 'ACTIVE'}, self.bindings(port))

    def test_rolled_back(self):
        port = self.make_port(**{'binding:host_id': 'h0'})
        self.bind(port, 'h1', vnic_type='direct')
        self.call('DELETE', 'ports/%s/bindings/h1' % port['id'], status=204)
        self.assertEqual({'h0': 'ACTIVE'}, self.bindings(port))
        self.assertEqual(('h0', 'ACTIVE'), tuple(self.port_of(port)[k] for k in ('binding:host_id', 'status')))

    def test_cold_migration(self):
        """The one binding moves."""
        port = self.make_port(**{'binding:host_id': 'h0'})
        self.update(port, **{'binding:host_id': 'h1'})
        self.assertEqual({'h1': 'ACTIVE'}, self.bindings(port))
        self.assertEqual('ACTIVE', self.port_of(port)['status'])
        self.update(port, **{'binding:host_id': '', 'device_id': '', 'binding:profile': {}})
        self.assertEqual(('unbound', 'DOWN'), tuple(self.port_of(port)[k] for k in ('binding:vif_type', 'status')))

    def test_down_while_its_administrator_wants_so(self):
        port = self.make_port(**{'binding:host_id': 'h0', 'admin_state_up': False})
        self.assertEqual('DOWN', self.port_of(port)['status'])
        self.update(port, admin_state_up=True)
        self.assertEqual('ACTIVE', self.port_of(port)['status'])

    def test_only_on_its_hosts(self):
        cfg.CONF.set_override('hosts', ['h0', 'h2'], 'ml2_ibvmig')
        port = self.make_port(**{'binding:host_id': 'h0'})
        for _ in range(2):
            with self.assertLogs(mech_driver.LOG.logger, 'ERROR') as log:
                self.bind(port, 'h1', status=500, vnic_type='direct')
            self.assertEqual(['not bound on host h1: port %s: [ml2_ibvmig] hosts names only h0, h2' % port['id']],
                             [r.getMessage() for r in log.records], 'once for each request')
        self.assertEqual({'h0': 'ACTIVE'}, self.bindings(port))

    def test_two_refused_by_one_request(self):
        net = self.net()
        ports = [self.make_port(net) for _ in range(2)]
        cfg.CONF.set_override('hosts', ['h0'], 'ml2_ibvmig')
        context = neutron_context.get_admin_context()
        with self.assertLogs(mech_driver.LOG.logger, 'ERROR') as log:
            for port in ports:
                directory.get_plugin().update_port(context, port['id'], {'port': {'binding:host_id': 'h1'}})
        self.assertEqual(2, len(log.records))


class TestOthers(Ml2):
    """What is not ours stays with the drivers beside it."""

    def test_other_ports(self):
        helpers.register_ovs_agent(host='h0', bridge_mappings={'ib0net': 'br-ib', 'eth0net': 'br-eth'})
        ib, ethernet = self.net(), self.net('eth0net')
        for net, vnic_type, vif_type in ((ib, 'normal', 'ovs'), (ib, 'macvtap', 'binding_failed'),
                                         (ethernet, 'direct', 'binding_failed')):
            port = self.make_port(net, **{'binding:vnic_type': vnic_type, 'binding:host_id': 'h0',
                                          'binding:profile': {'pkey': 'anything'}})
            self.assertEqual(vif_type, port['binding:vif_type'], (net, vnic_type))
            self.assertEqual('DOWN', self.port_of(port)['status'], 'until its agent reports it')

    def test_no_physical_network(self):
        cfg.CONF.set_override('physical_networks', [], 'ml2_ibvmig')
        with self.assertLogs(mech_driver.LOG.logger, 'WARNING') as log:
            mech_driver.IbvmigMechanismDriver().initialize()
        self.assertIn('no port will be bound', log.records[0].getMessage())
        self.assertEqual('binding_failed', self.make_port(**{'binding:host_id': 'h0'})['binding:vif_type'])

    def test_vlan_transparency(self):
        """No objection to other drivers' networks."""
        driver = mech_driver.IbvmigMechanismDriver()
        for physnet, fits in (('ib0net', False), ('eth0net', True)):
            segment = {api.NETWORK_TYPE: 'vlan', api.PHYSICAL_NETWORK: physnet, api.SEGMENTATION_ID: VLAN}
            self.assertEqual(fits, driver.check_vlan_transparency(mock.Mock(network_segments=[segment])))

    def test_hosts_of_agents(self):
        """Neutron's choice of hosts for DHCP agents still works, and takes none for an InfiniBand network."""
        driver = mech_driver.IbvmigMechanismDriver()
        self.assertTrue(driver.is_host_filtering_supported())
        self.assertEqual(set(), driver.filter_hosts_with_segment_access(None, [], {'h0'}, None))


class TestProfile(Ml2):
    """The API refuses what could not be bound, and names the value."""

    def test_new_port(self):
        net = self.net()
        for profile, words in (({'vguid': '0x12'}, 'vguid 0x12 '), ({'pkey': '0x8006'}, 'pkey 0x8006 ')):
            self.assertIn(words, self.make_port(net, status=400, **{'binding:profile': profile}))
        self.assertEqual([], self.call('GET', 'ports')['ports'])

    def test_changed_port(self):
        port = self.make_port(**{'binding:profile': {'pkey': PKEY}})
        message = self.update(port, 400, **{'binding:profile': {'pkey': '0x12345'}})
        self.assertIn('port %s: pkey 0x12345 ' % port['id'], message)
        self.assertEqual({'pkey': PKEY}, self.port_of(port)['binding:profile'])

    def test_port_that_becomes_direct(self):
        port = self.make_port(**{'binding:vnic_type': 'normal', 'binding:profile': {'pkey': 'x'}})
        self.assertIn('pkey x ', self.update(port, 400, **DIRECT))

    def test_port_from_before_this_driver(self):
        """May be changed otherwise."""
        cfg.CONF.set_override('physical_networks', [], 'ml2_ibvmig')
        port = self.make_port(**{'binding:profile': {'pkey': 'x'}})
        cfg.CONF.set_override('physical_networks', ['ib0net'], 'ml2_ibvmig')
        self.assertEqual('renamed', self.update(port, name='renamed')['name'])

    def test_binding_of_a_live_migration(self):
        port = self.make_port(**{'binding:host_id': 'h0'})
        with self.assertLogs(mech_driver.LOG.logger, 'ERROR') as log:
            self.bind(port, 'h1', status=500, vnic_type='direct', profile={'pkey': '0x9000'})
        self.assertIn('pkey 0x9000 ', log.records[0].getMessage())
        self.assertEqual({'h0': 'ACTIVE'}, self.bindings(port))
