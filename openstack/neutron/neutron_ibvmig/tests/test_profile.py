# SPDX-License-Identifier: GPL-2.0-or-later
"""What binding:profile may say."""
import unittest

from neutron_ibvmig import profile


class TestProfile(unittest.TestCase):

    def test_pkey_of_vlan(self):
        self.assertEqual(['0x8001', '0x8ffe'], [profile.pkey_of_vlan(vlan) for vlan in (1, 4094)])

    def test_good(self):
        for given, vlan in (({}, 1), ({'pci_slot': '0000:03:00.1'}, 1), ({'vguid': '0x00A1b2fffe000101'}, 1),
                            ({'pkey': '0x8001'}, 1), ({'pkey': '0x0001'}, 1), ({'pkey': '0x8ABC'}, 0xabc),
                            ({'pkey': '0xffff'}, None), ({'pkey': '0x7fff'}, None)):
            self.assertIsNone(profile.problem(given, vlan), (given, vlan))

    def test_bad(self):
        """The sentence names the value."""
        for given, vlan, words in (
                ({'vguid': '00a1b2fffe000101'}, 1, 'vguid 00a1b2fffe000101 '),
                ({'vguid': '0x00a1b2fffe00010'}, 1, 'vguid 0x00a1b2fffe00010 '),
                ({'vguid': '0x00a1b2fffe000101\n'}, 1, 'vguid 0x00a1b2fffe000101\n '),
                ({'vguid': '0x0000000000000000'}, 1, 'not all zero'),
                ({'vguid': ''}, 1, 'vguid  in'),
                ({'vguid': 5}, 1, 'vguid 5 '),
                ({'pkey': 0x8001}, 1, 'pkey 32769 '),
                ({'pkey': ['0x8001']}, 1, "pkey ['0x8001'] "),
                ({'pkey': '8001'}, None, 'pkey 8001 '),
                ({'pkey': '0x8000'}, None, 'pkey 0x8000 '),
                ({'pkey': '0x0000'}, None, 'pkey 0x0000 '),
                ({'pkey': '0x8002'}, 1, 'pkey 0x8002 in binding:profile is not that of the network, whose VLAN id 1 '
                                        'means 0x8001')):
            self.assertIn(words, profile.problem(given, vlan) or '', (given, vlan))
