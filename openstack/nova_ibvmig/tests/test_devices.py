# SPDX-License-Identifier: GPL-2.0-or-later
"""VFs as Nova's PCI devices: those that libvirt does not list, and that ibvmigd takes the one that Nova has claimed."""
from unittest import mock

from oslo_serialization import jsonutils

from nova import context
from nova import objects

from nova_ibvmig import vif as ib_vif
from nova_ibvmig.tests import played


class TestDevices(played.IbServers):

    def _devices(self):
        return {d['address']: d for d in jsonutils.loads(
            self.computes['h0'].driver._get_pci_passthrough_devices())}

    def test_a_providers_vfs_are_devices(self):
        self.start_compute('h0')
        self.daemons['h0'].vfs = [{'name': 'pf0vf1', 'pf': 'pf0', 'pci': '0000:77:00.1'},
                                  {'name': 'pf0vf2', 'pf': 'pf0', 'pci': None},
                                  {'name': 'vf0', 'pf': 'physnet4', 'pci': '0000:81:00.1'}]
        devices = self._devices()
        self.assertEqual(('ffff', 'type-VF', 'ibvmig_pf0vf1'), tuple(
            devices['0000:77:00.1'][k] for k in ('vendor_id', 'dev_type', 'label')))
        self.assertNotEqual('ffff', devices['0000:81:00.1']['vendor_id'])  # libvirt has told it
        self.daemons['h0'].fails = True
        self.assertEqual(set(devices), set(self._devices()), 'they stay while the daemon is away')

    def test_the_vf_that_nova_claimed(self):
        self.start_compute('h0')
        defined = self._metadata('h0')
        server = self._create_server(networks=[{'port': self._port(vguid=played.VGUID)['id']}], host='h0')
        self.assertRegex(defined[0][0].get('pci'), '^0000:81:00.[1-9]$')
        self._there(server)

    def _there(self, server):
        """The destination's XML names the destination's VF."""
        guest = mock.Mock()
        guest.get_xml_desc.return_value = (
            '<domain><metadata><ibvmig:vf xmlns:ibvmig="urn:ibvmig:1" vguid="%s" pci="0000:81:00.4"/></metadata>'
            '</domain>' % played.VGUID)
        there = objects.VIFMigrateData(profile={'pci_slot': '0000:82:00.1'}, source_vif=objects.Instance.get_by_uuid(
            context.get_admin_context(), server['id'], expected_attrs=['info_cache']).get_network_info()[0])
        arriving = ib_vif.ArrivingGuest(guest, objects.LibvirtLiveMigrateData(vifs=[there]))
        vf = played.etree.fromstring(arriving.get_xml_desc(dump_migratable=True)).find(
            './metadata/{urn:ibvmig:1}vf')
        self.assertEqual('0000:82:00.1', vf.get('pci'))
        self.assertIs(guest.migrate, arriving.migrate)
