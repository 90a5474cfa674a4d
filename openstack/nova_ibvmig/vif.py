# SPDX-License-Identifier: GPL-2.0-or-later
"""IB ports: what they are called in the domain, and that Nova itself plugs nothing."""
import re

from lxml import etree
import nova.conf
from nova import exception
from nova.network import model as network_model
from nova.virt.libvirt import config as vconfig
from nova.virt.libvirt import vif as libvirt_vif

CONF = nova.conf.CONF
NAMESPACE = 'urn:ibvmig:1'
AGENT_CHANNEL = 'org.ibvmig.0'
IB = network_model.VIF_TYPE_IB_HOSTDEV


def split(vifs):
    """(IB ports, the others)."""
    ib = [v for v in vifs or [] if v['type'] == IB]
    return ib, network_model.NetworkInfo([v for v in vifs or [] if v['type'] != IB])


def vguid(vif):
    """binding:profile's "vguid", or the port's MAC as EUI-64 (ff:fe in the middle). 0x and 16 hex digits."""
    given = (vif['profile'] or {}).get('vguid')
    if given is None:
        digits = vif['address'].replace(':', '').lower()
        given = '0x%sfffe%s' % (digits[:6], digits[6:])
    if not re.fullmatch('0x[0-9a-fA-F]{16}', given) or not int(given, 16):
        raise exception.InvalidInput(reason='port %s: vguid %s: must be 0x and 16 hex digits, not all zero'
                                            % (vif['id'], given))
    return given.lower()


def pkey(vif):
    """binding:profile's "pkey", or that of the network, which the mechanism driver ibvmig puts into the binding, or
    [ibvmig] default_pkey."""
    of_network = vif['details'].get('pkey', CONF.ibvmig.default_pkey)
    given = (vif['profile'] or {}).get('pkey', of_network)
    if not re.fullmatch('0x[0-9a-fA-F]{4}', given):
        raise exception.InvalidInput(reason='port %s: pkey %s: must be 0x and 4 hex digits' % (vif['id'], given))
    return given.lower()


def pf(vif):
    """The PF on this host that serves the port's physical network."""
    physnet = (vif['profile'] or {}).get('physical_network') or vif.get_physical_network()
    if not physnet:
        raise exception.NetworkMissingPhysicalNetwork(network_uuid=vif['network']['id'])
    return CONF.ibvmig.pf_by_physnet.get(physnet, physnet)


class VfsMetadata(vconfig.LibvirtConfigObject):
    """<ibvmig:vfs>, with a <vf> for each IB port: by them ibvmigd gives the VM its VFs, at its start and after each
    migration. In one element, because libvirt keeps one of a namespace."""

    def __init__(self, vifs):
        super().__init__(root_name='vfs', ns_prefix='ibvmig', ns_uri=NAMESPACE)
        self.vfs = [_attributes(vif, index) for index, vif in enumerate(vifs)]

    def format_dom(self):
        node = super().format_dom()
        node.extend(self._new_node('vf', **attributes) for attributes in self.vfs)
        return node


def _attributes(vif, index):
    attributes = {'pf': pf(vif), 'vguid': vguid(vif), 'pkey': pkey(vif), 'index': str(index)}
    slot = (vif['profile'] or {}).get('pci_slot')
    if slot:
        attributes['pci'] = slot  # the VF that Nova has claimed
    return attributes


class Channel(vconfig.LibvirtConfigGuestChannel):
    """A virtio-serial port of the guest. libvirt chooses its socket on the host, anew after each migration."""

    def __init__(self, name):
        super().__init__()
        self.type, self.target_name, self.source_path = 'unix', name, ''

    def format_dom(self):
        node = super().format_dom()
        node.remove(node.find('source'))
        return node


def pci_device(vf):
    """A VF of ibvmigd's that libvirt does not list (a provider program's), as Nova describes PCI devices. No
    vendor has the number ffff: [pci] device_spec chooses such VFs by it."""
    return {'address': vf['pci'], 'dev_id': 'ibvmig_' + vf['name'], 'label': 'ibvmig_' + vf['name'],
            'vendor_id': 'ffff', 'product_id': 'ffff', 'dev_type': 'type-VF', 'parent_ifname': vf['pf'],
            'numa_node': None}


class ArrivingGuest(object):
    """The guest as it will be at the destination: its metadata name the VF that Nova has claimed there."""

    def __init__(self, guest, migrate_data):
        self._guest = guest
        vifs = migrate_data.vifs if 'vifs' in migrate_data and migrate_data.vifs else []
        self._pci = {vguid(v.source_vif): v.profile.get('pci_slot') for v in vifs
                     if v.source_vif['type'] == IB}

    def __getattr__(self, name):
        return getattr(self._guest, name)

    def get_xml_desc(self, *args, **kwargs):
        domain = etree.fromstring(self._guest.get_xml_desc(*args, **kwargs))
        for node in domain.iterfind('./metadata//{%s}vf' % NAMESPACE):
            slot = self._pci.get(node.get('vguid'))
            if slot:
                node.set('pci', slot)
        return etree.tostring(domain, encoding='unicode')


class IbvmigVifDriver(libvirt_vif.LibvirtGenericVIFDriver):
    """Upstream's calls ebrctl for IB ports and describes them as <hostdev>; here ibvmigd owns the VFs."""

    def get_config_ib_hostdev(self, instance, vif, image_meta, flavor, virt_type):
        raise exception.InvalidInput(reason='InfiniBand port %s cannot be attached to, or detached from, a server: '
                                            'give it when the server is created' % vif['id'])

    def plug_ib_hostdev(self, instance, vif):
        """ibvmigd does it when the domain starts."""

    def unplug_ib_hostdev(self, instance, vif):
        """ibvmigd does it when the domain ends, or has left."""
