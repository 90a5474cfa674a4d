# SPDX-License-Identifier: GPL-2.0-or-later
import unittest

from nova import exception
from nova.compute import utils as compute_utils

from nova_ibvmig import health


def host(**spoilt):
    return dict({'host': 'h1', 'libvirt': {'connected': True}, 'sm': {'ok': True}, 'vf_error': None,
                 'pfs': [{'name': 'pf0', 'pkeys': ['0xFFFF']}],
                 'vfs': [{'name': 'vf0', 'pf': 'pf0', 'vm': None}]}, **spoilt)


def vm(**spoilt):
    return dict({'host': 'h0', 'state': 'attached', 'agent': {'state': 'up'}, 'migration': None}, **spoilt)


def migration(state, **more):
    return {'migration': dict({'id': 'm1', 'state': state, 'reached': state, 'back': False, 'ended': False}, **more)}


def parked(reached='ATTACH', **more):
    return migration('PARKED', reached=reached, **more)


class TestDestination(unittest.TestCase):

    def _is(self, words, wanted=('pf0',), **spoilt):
        self.assertEqual(words, health.of_destination(host(**spoilt), wanted))

    def test_well(self):
        self._is(None)

    def test_daemon_not_well(self):
        more = ' (`ibvmig doctor` there says more)'
        self._is('ibvmigd on h1 has no connection to libvirt' + more, libvirt={'connected': False})
        self._is('ibvmigd on h1 cannot move addresses%s: no plugin' % more, sm={'ok': False, 'error': 'no plugin'})
        self._is('ibvmigd on h1 has no inventory of VFs%s: the provider fails' % more, vf_error='the provider fails')

    def test_drained(self):
        self._is('host h1 is drained: ibvmig undrain h1 ends that', drained=True)

    def test_not_there(self):
        self._is('h1 has no PF pf1, only pf0', wanted=['pf1'])
        self._is('PF pf0 of h1 has 1 free VF, needed: 2', wanted=['pf0', 'pf0'])
        self._is('PF pf0 of h1 has no free VF, needed: 1', vfs=[
            {'name': 'vf0', 'pf': 'pf0', 'vm': 'other'}, {'name': 'vf1', 'pf': 'pf1', 'vm': None}])


class TestVm(unittest.TestCase):

    def test_source(self):
        self.assertIsNone(health.of_source(vm()))
        self.assertEqual('ibvmigd knows of no VF of this VM', health.of_source(None))
        self.assertEqual('no ibvmig-agent answers in the guest (none)', health.of_source(vm(agent={'state': 'none'})))
        self.assertEqual('the VM is without-vf on h0: no VF was free',
                         health.of_source(vm(state='without-vf', problem='no VF was free')))
        self.assertEqual('its migration is in HOLD on h0', health.of_source(vm(**migration('HOLD'))))

    def test_partition(self):
        """The vGUID's right to it counts; a limited member, or one of which nobody knows, may go."""
        def vf(membership):
            return vm(vfs=[{'vguid': '0x01', 'pkey': '0x8001', 'membership': membership}])
        for membership in ('full', 'limited', None):
            self.assertIsNone(health.of_source(vf(membership)))
        self.assertEqual('vGUID 0x01 is no member of the partition of PKey 0x8001', health.of_source(vf('none')))

    def test_migration_that_has_ended_is_none(self):
        self.assertIsNone(health.of_source(vm(migration={'id': 'm1', 'state': 'DONE', 'ended': True})))

    def test_settled(self):
        for settled, seen in ((False, None), (False, vm(state='attaching')), (False, vm(**migration('RESUME'))),
                              (True, vm()), (True, vm(state='without-vf')), (True, vm(**migration('PARKED')))):
            self.assertEqual(settled, health.has_settled(seen), seen)

    def test_ended(self):
        """Else libvirt's failure would be told before its cause is known."""
        for ended, seen in ((True, None), (True, vm(state='attaching')), (False, vm(**migration('UNDO_SWITCH'))),
                            (True, vm(**migration('PARKED'))), (True, vm(**migration('ABORTED', ended=True)))):
            self.assertEqual(ended, health.has_ended(seen), seen)

    def test_why_failed(self):
        aborted = vm(**migration('ABORTED', ended=True, reason='the peer g2 migrates'))
        self.assertEqual('the peer g2 migrates', health.why_failed(aborted, None))
        self.assertEqual('the peer g2 migrates', health.why_failed(aborted, 'm0'))
        self.assertIsNone(health.why_failed(aborted, 'm1'), 'that was an earlier one')
        self.assertIsNone(health.why_failed(vm(), None))
        self.assertIsNone(health.why_failed(None, 'm1'))
        self.assertIn('mend this, then: ibvmig resolve m1: port stays DOWN',
                      health.why_failed(vm(**parked(reason='port stays DOWN')), None))

    def test_with_libvirt(self):
        hook = ('Hook script execution failed: internal error: Child process (LC_ALL=C PATH=/bin '
                '/etc/libvirt/hooks/qemu g1 migrate begin -) unexpected exit status 1: no VF (of pf0) is free\n')
        self.assertEqual('no VF (of pf0) is free', health.with_libvirt(None, hook))
        self.assertEqual('no VF (of pf0) is free', health.with_libvirt('no VF (of pf0) is free', hook))
        self.assertEqual('the peer g2 migrates (libvirt: canceled by client)',
                         health.with_libvirt('the peer g2 migrates', 'canceled by client'))

    def test_parked_names_the_way_out(self):
        there = vm(state='incoming', **parked(trouble='19 tries'))
        self.assertFalse(health.has_vf(there))
        self.assertEqual('its migration is PARKED on h0 (came to ATTACH); mend this, then: ibvmig resolve m1: '
                         '19 tries', health.tell(there))

    def test_where_the_vf_is_is_not_told_while_it_is_not_certain(self):
        """ibvmigd says `attached` until the VM has left."""
        way_back = {'back': True, 'reason': 'the peer g2 is gone', 'trouble': 'no room'}
        self.assertEqual('its migration is PARKED on h0 (undo from SWITCH); mend this, then: '
                         'ibvmig resolve m1: no room, after: the peer g2 is gone',
                         health.tell(vm(**parked('SWITCH', **way_back))))
        self.assertEqual('its migration is in the undo of SWITCH on h0: no room, after: the peer g2 is gone',
                         health.tell(vm(**migration('SWITCH', **way_back))))
        self.assertEqual('its migration is in CANCEL on h0: no room',
                         health.tell(vm(**migration('CANCEL', reason='no room', trouble='no room'))))


LENGTHS = (100, 255, 400, 2000)
ID = '4f7a662c-1ade-43f7-b188-4e6cf6987843'
# of 1 to 4 bytes: a cut between two bytes may come within each
ALPHABETS = ('x', 'x\u00fc', 'xy\u4e2d', 'x\U0001f6d1')


def text(length, alphabet, name):
    """That many bytes, or a few more, with recognizable ends."""
    inside = ''
    while len(inside.encode()) < length - 2 * len(name) - 10:
        inside += alphabet
    return '%s-begin%s%s-end' % (name, inside, name)


class TestLength(unittest.TestCase):
    """Nova cuts the words of a failure: by its own code."""

    def _kept(self, reason):
        kept = compute_utils.exception_to_dict(exception.MigrationError(reason=reason))['message']
        self.assertNotIn('\ufffd', kept)
        return kept

    def _each(self):
        for alphabet in ALPHABETS:
            for length in LENGTHS:
                for shift in range(4):
                    yield text(length, alphabet, shift * 's' + 'one'), text(length, alphabet, 'other')

    def test_parked(self):
        for trouble, reason in self._each():
            seen = vm(host='compute-17.rack-4.example.org',
                      **parked('SWITCH', id=ID, back=True, trouble=trouble, reason=reason))
            told = health.with_libvirt(health.why_failed(seen, None), text(400, 'l', 'libvirt'))
            for said in (health.tell(seen), told):
                kept = self._kept(said)
                self.assertIn('PARKED on compute-17.rack-4.example.org (undo from SWITCH)', kept)
                self.assertIn('then: ibvmig resolve %s: ' % ID, kept)
                self.assertIn('one-end, after: ', kept)
            self.assertTrue(self._kept(told).startswith(health.tell(seen), len('Migration error: ')))

    def test_both_reasons_of_a_short_host_are_kept_to_their_ends(self):
        for trouble, reason in self._each():
            kept = self._kept(health.tell(vm(**parked('SWITCH', id=ID, back=True, trouble=trouble, reason=reason))))
            self.assertIn('one-end, after: ', kept)
            self.assertTrue(kept.endswith('other-end'), kept)

    def test_long_host(self):
        """The command comes before all that has to be cut."""
        seen = vm(host=64 * 'h', **parked('SWITCH', id=ID, back=True, trouble=2000 * 't', reason=2000 * 'r'))
        self.assertIn('then: ibvmig resolve %s: t' % ID, self._kept(health.tell(seen)))

    def test_others(self):
        """What is wrong comes first, and the cause, which is last, is not cut off."""
        for cause, _ in self._each():
            aborted = vm(**migration('ABORTED', ended=True, reason=cause))
            for begin, said in (
                    ('Migration error: the VM is without-vf', health.tell(vm(state='without-vf', problem=cause))),
                    ('Migration error: ibvmigd on h1 cannot move addresses (`ibvmig doctor` there says more): ',
                     health.of_host(host(sm={'ok': False, 'error': cause}))),
                    ('Migration error: ', health.why_failed(aborted, None)),
                    ('Migration error: ', health.with_libvirt(None, cause)),
                    ('Migration error: ', health.with_libvirt(health.why_failed(aborted, None), cause))):
                kept = self._kept(said)
                self.assertTrue(kept.startswith(begin) and kept.endswith('one-end'), kept)

    def test_short_ones_are_left_as_they_are(self):
        short = text(30, 'x\u00fc', 'one')
        self.assertEqual(short, health.shortened(short))
        seen = vm(**parked('SWITCH', id=ID, back=True, trouble=short, reason=text(2000, 'x', 'other')))
        self.assertIn(': %s, after: other-begin' % short, health.tell(seen))
