# SPDX-License-Identifier: GPL-2.0-or-later
import unittest

from nova_ibvmig import signatures


class Changed(object):
    def same(self, a, b, more=None):
        pass

    def other(self, b, a):
        pass


class TestSignatures(unittest.TestCase):

    def test_installed_nova_fits(self):
        self.assertEqual([], list(signatures.changes(signatures.RELIED_ON)))

    def test_changes_are_named(self):
        self.assertEqual(['Changed.other(self, b, a) was (self, a, ...)', 'Changed.gone is gone'],
                         list(signatures.changes([(Changed, 'same', ['self', 'a', 'b']),
                                                  (Changed, 'other', ['self', 'a']),
                                                  (Changed, 'gone', ['self'])])))
