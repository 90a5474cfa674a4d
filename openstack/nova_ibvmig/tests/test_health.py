# SPDX-License-Identifier: GPL-2.0-or-later
import unittest

from nova_ibvmig import health


def host(**spoilt):
    return dict({'host': 'h1', 'libvirt': {'connected': True}, 'sm': {'ok': True}, 'vf_error': None,
                 'pfs': [{'name': 'pf0', 'pkeys': ['0xFFFF', '0x8001']}],
                 'vfs': [{'name': 'vf0', 'pf': 'pf0', 'vm': None}]}, **spoilt)


def vm(**spoilt):
    return dict({'host': 'h0', 'state': 'attached', 'agent': {'state': 'up'}, 'migration': None}, **spoilt)


def migration(state, **more):
    return {'migration': dict({'id': 'm1', 'state': state, 'ended': False}, **more)}


class TestDestination(unittest.TestCase):

    def _is(self, words, wanted=(('pf0', '0x8001'),), **spoilt):
        self.assertEqual(words, health.of_destination(host(**spoilt), wanted))

    def test_well(self):
        self._is(None)
        self._is(None, wanted=[('pf0', '0xffff')])

    def test_daemon_not_well(self):
        more = ' (`ibvmig doctor` there says more)'
        self._is('ibvmigd on h1 has no connection to libvirt' + more, libvirt={'connected': False})
        self._is('ibvmigd on h1 cannot move addresses: no plugin' + more, sm={'ok': False, 'error': 'no plugin'})
        self._is('ibvmigd on h1: the provider fails' + more, vf_error='the provider fails')

    def test_drained(self):
        self._is('host h1 is drained: ibvmig undrain h1 ends that', drained=True)

    def test_not_there(self):
        self._is('h1 has no PF pf1, only pf0', wanted=[('pf1', '0x8001')])
        self._is('PF pf0 of h1 has no PKey 0x8002', wanted=[('pf0', '0x8002')])
        self._is('PF pf0 of h1 has 1 free VF, needed: 2', wanted=[('pf0', '0x8001'), ('pf0', '0xffff')])
        self._is('PF pf0 of h1 has no free VF, needed: 1', vfs=[{'name': 'vf0', 'pf': 'pf0', 'vm': 'other'},
                                                     {'name': 'vf1', 'pf': 'pf1', 'vm': None}])


class TestVm(unittest.TestCase):

    def test_source(self):
        self.assertIsNone(health.of_source(vm()))
        self.assertEqual('ibvmigd knows of no VF of this VM', health.of_source(None))
        self.assertEqual('no ibvmig-agent answers in the guest (none)', health.of_source(vm(agent={'state': 'none'})))
        self.assertEqual('the VM is without-vf on h0: no VF was free',
                         health.of_source(vm(state='without-vf', problem='no VF was free')))
        self.assertEqual('the VM is attached on h0: its migration is in HOLD', health.of_source(vm(**migration('HOLD'))))

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
        self.assertIn('mend it, then: ibvmig resolve m1',
                      health.why_failed(vm(**migration('PARKED', reason='port stays DOWN')), None))

    def test_with_libvirt(self):
        hook = ('Hook script execution failed: internal error: Child process (LC_ALL=C PATH=/bin '
                '/etc/libvirt/hooks/qemu g1 migrate begin -) unexpected exit status 1: no VF (of pf0) is free\n')
        self.assertEqual('no VF (of pf0) is free', health.with_libvirt(None, hook))
        self.assertEqual('no VF (of pf0) is free', health.with_libvirt('no VF (of pf0) is free', hook))
        self.assertEqual('the peer g2 migrates (libvirt: canceled by client)',
                         health.with_libvirt('the peer g2 migrates', 'canceled by client'))

    def test_parked_names_the_way_out(self):
        parked = vm(state='incoming', **migration('PARKED', reason='port stays DOWN', trouble='19 tries'))
        self.assertFalse(health.has_vf(parked))
        self.assertEqual('the VM is incoming on h0: its migration is in PARKED: port stays DOWN: 19 tries: '
                         'mend it, then: ibvmig resolve m1', health.tell(parked))
