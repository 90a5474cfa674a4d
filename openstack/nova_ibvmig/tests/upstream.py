# SPDX-License-Identifier: GPL-2.0-or-later
"""Nova's own tests on our driver: for servers without an InfiniBand port it must be as upstream's."""
import fnmatch
import os
import pathlib
import unittest

from nova import exception
from nova.tests.functional import integrated_helpers
from nova.tests.unit.virt.libvirt import test_driver
import nova.virt.libvirt
from nova.virt.libvirt import driver as libvirt_driver

from nova_ibvmig import client
from nova_ibvmig import driver
from nova_ibvmig.tests import played

LIST = pathlib.Path(os.path.realpath(__file__)).parents[2] / 'upstream-tests'
made = []  # drivers of ours, by the test that runs


class Ours(driver.IbvmigLibvirtDriver):
    def __init__(self, *args, **kwargs):
        made.append(self)
        super().__init__(*args, **kwargs)


class Module(object):
    """nova.virt.libvirt.driver, but with our class for tests that make one themselves. (In the module itself
    LibvirtDriver calls upon its base by that name.)"""
    LibvirtDriver = Ours

    def __getattr__(self, name):
        return getattr(libvirt_driver, name)

    def __setattr__(self, name, value):
        setattr(libvirt_driver, name, value)

    def __delattr__(self, name):
        delattr(libvirt_driver, name)


WAITS = ('_wait_for_server_parameter', '_wait_for_migration_status', '_wait_for_instance_action_event',
         '_wait_for_assert')
LOOKS = 10  # of each


def _patient(wait):
    """The helper gives up after 5 s, which on a loaded machine is no failure."""
    def longer(self, *args, **kwargs):
        for _ in range(played.PATIENCE // LOOKS):
            try:
                return wait(self, *args, **kwargs)
            except self.failureException as e:
                failure = e
        raise failure
    return longer


def _no_daemon(self, context):
    raise exception.MigrationError(reason='played: no ibvmigd')


def _prepare():
    """compute_driver=libvirt.LibvirtDriver is ours from now on, on hosts without ibvmigd."""
    nova.virt.libvirt.LibvirtDriver = Ours
    test_driver.libvirt_driver = Module()
    helpers = integrated_helpers.InstanceHelperMixin
    for wait in WAITS:
        setattr(helpers, wait, _patient(getattr(helpers, wait)))
    client.Client.status = _no_daemon


def _listed():
    """(names, {test that cannot pass: why}) of upstream-tests."""
    lines = [line for line in LIST.read_text().splitlines() if not line.startswith('#')]
    return ([line for line in lines if not line.startswith('-')],
            dict(line[1:].strip().split(': ', 1) for line in lines if line.startswith('-')))


def _tests(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from _tests(test)
        else:
            yield test


def _named(name):
    """name: a module, a class or a test, or a module or class, a dot and a pattern (*) for the rest."""
    whole = name.partition('*')[0].rpartition('.')[0] if '*' in name else name
    found = [test for test in _tests(unittest.defaultTestLoader.loadTestsFromName(whole))
             if whole == name or fnmatch.fnmatch(test.id(), name)]
    if not found:
        raise SystemExit('Nova has no test %s' % name)
    return found


def _cannot_pass(test, why, result):
    """It is run all the same: what passes is not to be left out."""
    alone = unittest.TestResult()
    test.run(alone)
    result.startTest(test)
    if alone.wasSuccessful():
        result.fails(test, 'it passes: take it out of upstream-tests, where it is said to fail: %s' % why)
    else:
        result.addSkip(test, why)
    result.stopTest(test)


def run(names, result):
    """Those tests, or all of upstream-tests. One that passes without our driver has shown nothing, and is skipped."""
    _prepare()
    listed, cannot = _listed()
    result.says_nothing = lambda: None if made else 'makes no libvirt driver'
    for test in (test for name in names or listed for test in _named(name)):
        made.clear()
        why = cannot.pop(test.id(), None)
        if why:
            _cannot_pass(test, why, result)
        else:
            test.run(result)
    if not names and cannot:
        raise SystemExit('Nova has no test %s' % ', '.join(cannot))
