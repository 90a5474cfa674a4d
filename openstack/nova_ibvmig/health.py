# SPDX-License-Identifier: GPL-2.0-or-later
"""What ibvmigd's answers mean for a server with InfiniBand ports: one sentence on what is wrong, or None. Pure."""
import re

DOCTOR = ' (`ibvmig doctor` there says more)'
# Nova keeps 255 bytes of an event's details, and of a server's fault: first its own words, and how long we waited.
ROOM_BYTES = 255 - len('Failed to deploy instance: after 600 s ')
REASONS_BYTES = 60  # at least, where what comes before them is long: Nova cuts off the end
CUT, AFTER = ' ... ', ', after: '


def of_host(host):
    """host: the answer of GET /v1/status. Whether servers may come to it."""
    if not host['libvirt']['connected']:
        return 'ibvmigd on %s has no connection to libvirt%s' % (host['host'], DOCTOR)
    if host.get('drained'):
        return 'host %s is drained: ibvmig undrain %s ends that' % (host['host'], host['host'])
    if not host['sm']['ok']:
        return _because('ibvmigd on %s cannot move addresses%s' % (host['host'], DOCTOR), host['sm'].get('error'))
    if host.get('vf_error'):
        return _because('ibvmigd on %s has no inventory of VFs%s' % (host['host'], DOCTOR), host['vf_error'])
    return None


def of_destination(host, wanted):
    """host as above; wanted: the PF of each port. Its partition is the vGUID's matter, not the PF's."""
    problem = of_host(host)
    if problem:
        return problem
    for name in wanted:
        pf = next((p for p in host['pfs'] if p['name'] == name), None)
        if not pf:
            return '%s has no PF %s, only %s' % (host['host'], name, ', '.join(p['name'] for p in host['pfs']))
        free = sum(v['pf'] == name and not v.get('vm') for v in host['vfs'])
        needed = wanted.count(name)
        if free < needed:
            return 'PF %s of %s has %s free VF, needed: %d' % (name, host['host'], free or 'no', needed)
    return None


def of_source(vm):
    """vm: the answer of GET /v1/vms/UUID, or None. Whether it can begin to migrate."""
    if not has_vf(vm):
        return tell(vm)
    if vm['agent']['state'] != 'up':
        return 'no ibvmig-agent answers in the guest (%s)' % vm['agent']['state']
    for vf in vm.get('vfs', ()):
        if vf.get('membership') == 'none':
            return 'vGUID %s is no member of the partition of PKey %s' % (vf['vguid'], vf['pkey'])
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
    if migration_of(vm):
        return tell(vm)
    reason = vm['migration'].get('reason')
    return reason and shortened(reason)


def with_libvirt(told, error):
    """What ibvmigd and libvirt say of a failure, in one line: what ibvmigd says first, which matters most, and what the
    hook has said without the command line that libvirt tells with it."""
    error = re.sub(r'.*Child process \(.*\) unexpected [^:]*: ', '', error, flags=re.DOTALL).strip()
    error = shortened(error)
    if not told or told in error:
        return error
    return '%s (libvirt: %s)' % (told, error)


def tell(vm):
    """One line on a VM: where its VF is, or how far its migration is, and what is wrong."""
    if vm is None:
        return 'ibvmigd knows of no VF of this VM'
    migration = migration_of(vm)
    if not migration:
        return _because('the VM is %s on %s' % (vm['state'], vm['host']), vm.get('problem'))
    return _because(_how_far(migration, vm['host']), migration.get('trouble'), migration.get('reason'))


def _how_far(migration, host):
    """Not where the VF is: whoever looks in the middle of a step, or after one that has failed, cannot be certain."""
    if migration['state'] != 'PARKED':
        return 'its migration is in %s%s on %s' % (
            'the undo of ' if migration.get('back') else '', migration['state'], host)
    way = 'undo from' if migration.get('back') else 'came to'
    return 'its migration is PARKED on %s (%s %s); mend this, then: ibvmig resolve %s' % (
        host, way, migration.get('reached'), migration['id'])


def _because(what, *reasons):
    """`what`, with what has to be done, so that this is never cut off; then the reasons, the last one first."""
    reasons = list(dict.fromkeys(r for r in reasons if r))
    if not reasons:
        return what
    room = ROOM_BYTES - len((what + ': ' + (len(reasons) - 1) * AFTER).encode())
    return '%s: %s' % (what, AFTER.join(_share(max(room, REASONS_BYTES), reasons)))


def _share(room, texts):
    """Each in an equal part of the room, or in more where others need less."""
    fitted = {}
    for text in sorted(texts, key=lambda t: len(t.encode())):
        fitted[text] = shortened(text, room // (len(texts) - len(fitted)))
        room -= len(fitted[text].encode())
    return [fitted[t] for t in texts]


def shortened(text, room=ROOM_BYTES):
    """At most that many bytes of UTF-8. What is longer loses its middle: where it is, is at its begin, and the cause at
    its end."""
    encoded = text.encode()
    if len(encoded) <= room:
        return text
    head = (room - len(CUT)) // 3
    tail = room - len(CUT) - head
    return encoded[:head].decode(errors='ignore') + CUT + encoded[-tail:].decode(errors='ignore')
