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

    def test_parked_names_the_way_out(self):
        parked = vm(state='incoming', **migration('PARKED', reason='port stays DOWN', trouble='19 tries'))
        self.assertFalse(health.has_vf(parked))
        self.assertEqual('the VM is incoming on h0: its migration is in PARKED: port stays DOWN: 19 tries: '
                         'mend it, then: ibvmig resolve m1', health.tell(parked))
