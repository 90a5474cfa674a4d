# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs unittest names given as arguments and prints TAP; ends with 1 if one failed or none ran.

--upstream: Nova's own tests, unchanged, where they ask for its libvirt driver with ours in its place; without names
those of upstream-tests."""
import sys
import unittest


class Tap(unittest.TestResult):
    @staticmethod
    def says_nothing():
        """Why a test that has passed shows nothing of what is tested; None: it does."""

    def _say(self, verdict, test, detail=''):
        print('%s %d - %s' % (verdict, self.testsRun, test.id()), flush=True)
        for line in detail.strip().splitlines()[-30:]:
            print('# ' + line, flush=True)

    def addSuccess(self, test):
        why = self.says_nothing()
        if why:
            self.addSkip(test, why)
            return
        super().addSuccess(test)
        self._say('ok', test)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        print('ok %d - %s # SKIP %s' % (self.testsRun, test.id(), reason), flush=True)

    def fails(self, test, text):
        """text: why, its last 30 lines are shown."""
        self.failures.append((test, ''))
        self._say('not ok', test, text)

    def addError(self, test, err, details=None):
        self.fails(test, self._text(test, err, details))

    addFailure = addError

    def addExpectedFailure(self, test, err, details=None):
        self.addSuccess(test)

    def _text(self, test, err, details):
        if details and 'traceback' in details:
            return details['traceback'].as_text().split('}}}')[-1]  # without what was logged
        return self._exc_info_to_string(err, test) if err else ''


def main(names):
    result = Tap()
    if names[:1] == ['--upstream']:
        from nova_ibvmig.tests import upstream  # eventlet's patches come first
        upstream.run(names[1:], result)
    else:
        unittest.defaultTestLoader.loadTestsFromNames(names).run(result)
    print('1..%d' % result.testsRun)
    return 1 if result.failures or not result.testsRun else 0


sys.exit(main(sys.argv[1:]))
