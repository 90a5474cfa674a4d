# SPDX-License-Identifier: GPL-2.0-or-later
"""What ibvmigd's answers mean for a server with InfiniBand ports: one sentence on what is wrong, or None. Pure."""
import re

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


def has_ended(vm):
    """No migration of it is under way, or one waits for somebody to do something."""
    migration = migration_of(vm)
    return not migration or migration['state'] == 'PARKED'


def has_settled(vm):
    """Nothing more will happen to its VF by itself: it is there, or somebody has to do something."""
    if migration_of(vm):
        return has_ended(vm)
    return vm is not None and vm['state'] in ('attached', 'without-vf')


def migration_of(vm):
    """The VM's migration that has not ended, or None."""
    migration = (vm or {}).get('migration')
    return migration if migration and not migration.get('ended') else None


def last_migration(vm):
    """The id of the VM's newest migration on this host, ended or not, or None."""
    return ((vm or {}).get('migration') or {}).get('id')


def why_failed(vm, earlier):
    """Why the migration of this VM, which has ended or is parked, failed; None: ibvmigd has begun none since the one
    with the id `earlier`, or does not say."""
    if last_migration(vm) in (None, earlier):
        return None
    return tell(vm) if migration_of(vm) else vm['migration'].get('reason')


def with_libvirt(told, error):
    """What ibvmigd and libvirt say of a failure, in one line. An event's details have 255 bytes: so what matters comes
    first, and what the hook has said comes without the command line that libvirt tells with it."""
    error = re.sub(r'.*Child process \(.*\) unexpected [^:]*: ', '', error, flags=re.DOTALL).strip()
    if not told or told in error:
        return error
    return '%s (libvirt: %s)' % (told, error)


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
