# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs unittest names given as arguments and prints TAP; ends with 1 if one failed or none ran.

--upstream: Nova's own tests, unchanged, where they ask for its libvirt driver with ours in its place."""
import sys
import unittest


class Tap(unittest.TestResult):
    def _say(self, verdict, test, detail=''):
        print('%s %d - %s' % (verdict, self.testsRun, test.id()), flush=True)
        for line in detail.strip().splitlines()[-30:]:
            print('# ' + line, flush=True)

    def addSuccess(self, test):
        super().addSuccess(test)
        self._say('ok', test)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        print('ok %d - %s # SKIP %s' % (self.testsRun, test.id(), reason), flush=True)

    def _bad(self, test, text):
        self._say('not ok', test, text)

    def addError(self, test, err, details=None):
        self.errors.append((test, ''))
        self._bad(test, self._text(test, err, details))

    def addFailure(self, test, err, details=None):
        self.failures.append((test, ''))
        self._bad(test, self._text(test, err, details))

    def _text(self, test, err, details):
        if details and 'traceback' in details:
            return details['traceback'].as_text().split('}}}')[-1]  # without what was logged
        return self._exc_info_to_string(err, test) if err else ''


def main(names):
    if names[:1] == ['--upstream']:
        from nova_ibvmig.tests import upstream  # eventlet's patches come first
        upstream.prepare()
        names = names[1:]
    result = Tap()
    unittest.defaultTestLoader.loadTestsFromNames(names).run(result)
    print('1..%d' % result.testsRun)
    return 1 if result.errors or result.failures or not result.testsRun else 0


sys.exit(main(sys.argv[1:]))
