# SPDX-License-Identifier: GPL-2.0-or-later
"""What ibvmigd's answers mean for a server with InfiniBand ports: one sentence on what is wrong, or None. Pure."""


DOCTOR = ' (`ibvmig doctor` there says more)'


def of_host(host):
    """host: the answer of GET /v1/status. Whether servers may come to it."""
    if not host['libvirt']['connected']:
        return 'ibvmigd on %s has no connection to libvirt%s' % (host['host'], DOCTOR)
    if host.get('drained'):
        return 'host %s is drained: ibvmig undrain %s ends that' % (host['host'], host['host'])
    if not host['sm']['ok']:
        return 'ibvmigd on %s cannot move addresses: %s%s' % (host['host'], host['sm'].get('error'), DOCTOR)
    if host.get('vf_error'):
        return 'ibvmigd on %s: %s%s' % (host['host'], host['vf_error'], DOCTOR)
    return None


def of_destination(host, wanted):
    """host as above; wanted: (PF, PKey in lower case) of each port."""
    problem = of_host(host)
    if problem:
        return problem
    for name, key in wanted:
        pf = next((p for p in host['pfs'] if p['name'] == name), None)
        if not pf:
            return '%s has no PF %s, only %s' % (host['host'], name, ', '.join(p['name'] for p in host['pfs']))
        if key not in [k.lower() for k in pf['pkeys']]:
            return 'PF %s of %s has no PKey %s' % (name, host['host'], key)
        free = sum(v['pf'] == name and not v.get('vm') for v in host['vfs'])
        needed = sum(n == name for n, _ in wanted)
        if free < needed:
            return 'PF %s of %s has %s free VF, needed: %d' % (name, host['host'], free or 'no', needed)
    return None


def of_source(vm):
    """vm: the answer of GET /v1/vms/UUID, or None. Whether it can begin to migrate."""
    if not has_vf(vm):
        return tell(vm)
    if vm['agent']['state'] != 'up':
        return 'no ibvmig-agent answers in the guest (%s)' % vm['agent']['state']
    return None


def has_vf(vm):
    """It runs with its VF, and no migration is under way."""
    return vm is not None and vm['state'] == 'attached' and not migration_of(vm)


def has_settled(vm):
    """Nothing more will happen to its VF by itself: it is there, or somebody has to do something."""
    migration = migration_of(vm)
    if migration:
        return migration['state'] == 'PARKED'
    return vm is not None and vm['state'] in ('attached', 'without-vf')


def migration_of(vm):
    """The VM's migration that has not ended, or None."""
    migration = (vm or {}).get('migration')
    return migration if migration and not migration.get('ended') else None


def tell(vm):
    """One line on a VM: where its VF is, and what is wrong."""
    if vm is None:
        return 'ibvmigd knows of no VF of this VM'
    parts = ['the VM is %s on %s' % (vm['state'], vm['host'])]
    migration = migration_of(vm)
    if migration:
        parts.append('its migration is in %s' % migration['state'])
        parts += [m for m in (migration.get('reason'), migration.get('trouble')) if m]
        if migration['state'] == 'PARKED':
            parts.append('mend it, then: ibvmig resolve %s' % migration['id'])
    elif vm.get('problem'):
        parts.append(vm['problem'])
    return ': '.join(parts)
