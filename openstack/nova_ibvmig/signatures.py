# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether the installed Nova still has what the driver relies on: python3 -m nova_ibvmig.signatures. Ends with 1 and a
line for each thing that has changed."""
import inspect
import sys

import nova.monkey_patch  # noqa: F401
from nova.virt.libvirt import driver
from nova.virt.libvirt import vif

# class, method, the parameters that the driver names or passes on by position
RELIED_ON = [
    (driver.LibvirtDriver, '__init__', ['self', 'virtapi']),
    (driver.LibvirtDriver, 'update_provider_tree', ['self', 'provider_tree', 'nodename', 'allocations']),
    (driver.LibvirtDriver, '_get_guest_config', ['self', 'instance', 'network_info']),
    (driver.LibvirtDriver, '_get_pci_passthrough_devices', ['self']),
    (driver.LibvirtDriver, '_live_migration_operation',
     ['self', 'context', 'instance', 'dest', 'block_migration', 'migrate_data', 'guest', 'device_names']),
    (driver.LibvirtDriver, '_create_guest_with_network',
     ['self', 'context', 'xml', 'instance', 'network_info']),
    (driver.LibvirtDriver, 'rebuild', ['self', 'context', 'instance']),
    (driver.LibvirtDriver, '_destroy', ['self', 'instance']),
    (driver.LibvirtDriver, 'suspend', ['self', 'context', 'instance']),
    (driver.LibvirtDriver, 'live_migration',
     ['self', 'context', 'instance', 'dest', 'post_method', 'recover_method', 'block_migration', 'migrate_data']),
    (driver.LibvirtDriver, 'live_migration_abort', ['self', 'instance']),
    (driver.LibvirtDriver, 'live_migration_force_complete', ['self', 'instance']),
    (driver.LibvirtDriver, 'check_can_live_migrate_destination', ['self', 'context', 'instance']),
    (driver.LibvirtDriver, 'check_can_live_migrate_source', ['self', 'context', 'instance']),
    (driver.LibvirtDriver, '_detach_direct_passthrough_vifs', ['self', 'context', 'migrate_data', 'instance']),
    (driver.LibvirtDriver, 'detach_interface', ['self', 'context', 'instance', 'vif']),
    (driver.LibvirtDriver, '_reattach_instance_vifs', ['self', 'context', 'instance', 'network_info']),
    (driver.LibvirtDriver, 'post_live_migration_at_source', ['self', 'context', 'instance', 'network_info']),
    (driver.LibvirtDriver, 'rollback_live_migration_at_destination', ['self', 'context', 'instance', 'network_info']),
    (vif.LibvirtGenericVIFDriver, '__init__', ['self', 'host']),
    (vif.LibvirtGenericVIFDriver, 'get_config_ib_hostdev',
     ['self', 'instance', 'vif', 'image_meta', 'flavor', 'virt_type']),
    (vif.LibvirtGenericVIFDriver, 'plug_ib_hostdev', ['self', 'instance', 'vif']),
    (vif.LibvirtGenericVIFDriver, 'unplug_ib_hostdev', ['self', 'instance', 'vif']),
]


def changes(relied_on):
    """One line for each method that is gone, or whose first parameters are others."""
    for cls, name, want in relied_on:
        method = getattr(cls, name, None)
        if method is None:
            yield '%s.%s is gone' % (cls.__name__, name)
            continue
        have = list(inspect.signature(method).parameters)
        if have[:len(want)] != want:
            yield '%s.%s(%s) was (%s, ...)' % (cls.__name__, name, ', '.join(have), ', '.join(want))


def main():
    found = list(changes(RELIED_ON))
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == '__main__':
    sys.exit(main())
