# SPDX-License-Identifier: GPL-2.0-or-later
"""VFs as Nova's PCI devices: those that libvirt does not list; ibvmigd takes the one that Nova has claimed; PKeys."""
import unittest
from unittest import mock

from oslo_serialization import jsonutils

from nova.network import model as network_model
from nova import objects

from nova_ibvmig import vif as ib_vif
from nova_ibvmig.tests import played


class TestChannel(unittest.TestCase):

    def test_libvirt_chooses_its_socket(self):
        """A path here would be the other host's after a migration."""
        channel = played.etree.fromstring(ib_vif.Channel(ib_vif.AGENT_CHANNEL).to_xml())
        self.assertEqual(('unix', 'org.ibvmig.0'), (channel.get('type'), channel.find('target').get('name')))
        self.assertIsNone(channel.find('source'))


class TestPkey(unittest.TestCase):

    def test_of_port_of_network_of_configuration(self):
        for profile, details, pkey in (({'pkey': '0x0005'}, {'pkey': '0x8005'}, '0x0005'),
                                       (None, {'pkey': '0x8005'}, '0x8005'), ({}, {}, '0xffff')):
            self.assertEqual(pkey, ib_vif.pkey(network_model.VIF(profile=profile, details=details)))


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
        self._create_server(networks=[{'port': self._port(vguid=played.VGUID)['id']}], host='h0')
        (vf,), _ = defined[0]
        self.assertRegex(vf.get('pci'), '^0000:81:00.[1-9]$')

    def test_the_vfs_that_nova_claimed_at_the_destination(self):
        """Each vGUID's, whatever the order."""
        vguids = ['0x00a1b2fffe000501', '0x00a1b2fffe000502']
        slots = ['0000:82:00.1', '0000:82:00.2']
        there = [objects.VIFMigrateData(profile={'pci_slot': slot}, source_vif=network_model.VIF(
            type='ib_hostdev', profile={'vguid': vguid})) for slot, vguid in zip(slots, vguids)]
        guest = mock.Mock()
        guest.get_xml_desc.return_value = (
            '<domain><metadata><i:vfs xmlns:i="urn:ibvmig:1"><i:vf vguid="%s" pci="0000:81:00.5"/>'
            '<i:vf vguid="%s" pci="0000:81:00.4"/></i:vfs></metadata></domain>' % tuple(reversed(vguids)))
        arriving = ib_vif.ArrivingGuest(guest, objects.LibvirtLiveMigrateData(vifs=there))
        xml = played.etree.fromstring(arriving.get_xml_desc(dump_migratable=True))
        self.assertEqual(dict(zip(vguids, slots)), {
            vf.get('vguid'): vf.get('pci') for vf in xml.iter('{urn:ibvmig:1}vf')})
        self.assertIs(guest.migrate, arriving.migrate)
