# SPDX-License-Identifier: GPL-2.0-or-later
"""VFs as inventory of the compute node, for flavors with resources:CUSTOM_IB_VF."""
from nova_ibvmig import driver
from nova_ibvmig.tests import played


class TestPlacement(played.IbServers):

    def _vfs(self):
        """(total, reserved), after nova-compute has looked."""
        self._run_periodics()
        inventory = self._get_provider_inventory(self.compute_rp_uuids['h0'])['CUSTOM_IB_VF']
        return inventory['total'], inventory['reserved']

    def _time_passes(self):
        """So much that a daemon which does not answer is taken to be away."""
        self.computes['h0'].driver._away_since_s -= driver.AWAY_S

    def _server(self, flavor, **kwargs):
        return self._create_server(flavor_id=flavor, networks='none', host='h0', **kwargs)

    def test_inventory(self):
        self.start_compute('h0')
        daemon = self.daemons['h0']
        flavor = self._create_flavor(extra_spec={'resources:CUSTOM_IB_VF': '1'})
        self.assertEqual((1, 0), self._vfs())
        daemon.sm = {'ok': False, 'error': 'no plugin'}
        self.assertEqual((1, 1), self._vfs())
        self.assertIn('No valid host', self._server(flavor, expected_state='ERROR')['fault']['message'])
        daemon.sm, daemon.vfs = {'ok': True}, daemon.vfs * 2
        self.assertEqual((2, 0), self._vfs())
        daemon.fails = True
        self.assertEqual((2, 0), self._vfs(), 'it may just be restarting')
        self._time_passes()
        self.assertEqual((2, 2), self._vfs())
        daemon.fails = False
        self.assertEqual((2, 0), self._vfs())
        daemon.fails = True
        self.assertEqual((2, 0), self._vfs(), 'it has answered meanwhile')
        daemon.fails = False
        self._server(flavor)
        self.assertEqual(1, self._get_provider_usages(self.compute_rp_uuids['h0'])['CUSTOM_IB_VF'])

    def test_drained_before_it_is_away(self):
        """What it said last still holds."""
        self.start_compute('h0')
        daemon = self.daemons['h0']
        self.assertEqual((1, 0), self._vfs())
        daemon.sm = {'ok': False, 'error': 'no plugin'}
        self.assertEqual((1, 1), self._vfs())
        daemon.fails = True
        self.assertEqual((1, 1), self._vfs())
