# SPDX-License-Identifier: GPL-2.0-or-later
"""What lies beside the code: the sample file, the entry point, the Debian package, release notes."""
import configparser
import importlib
import io
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest
from unittest import mock

from oslo_config import cfg
from oslo_config import generator
import yaml

TOP = pathlib.Path(os.path.realpath(__file__)).parents[2]


def entry_point():
    """(name, function) of oslo.config.opts in setup.cfg."""
    setup = configparser.ConfigParser()
    setup.read(TOP / 'setup.cfg')
    name, where = (s.strip() for s in setup['entry_points']['oslo.config.opts'].strip().split('='))
    module, function = where.split(':')
    return name, getattr(importlib.import_module(module), function)


class TestConfiguration(unittest.TestCase):

    def _generate(self):
        """As `oslo-config-generator --config-file etc/config-generator.conf` once the package is installed."""
        name, list_opts = entry_point()
        conf = cfg.ConfigOpts()
        generator.register_cli_opts(conf)
        conf(['--config-file', str(TOP / 'etc/config-generator.conf')])
        self.assertEqual([name], conf.namespace)
        out = io.StringIO()
        with mock.patch.object(generator, '_get_raw_opts_loaders', lambda names: [(name, list_opts)]):
            generator.generate(conf, out)
        return out.getvalue()

    def test_sample_is_up_to_date(self):
        sample = TOP / 'etc/nova-ibvmig.conf.sample'
        self.assertEqual(sample.read_text(), self._generate(),
                         'make it anew: oslo-config-generator --config-file etc/config-generator.conf')

    def test_every_option_has_help(self):
        _, list_opts = entry_point()
        for group, options in list_opts():
            self.assertTrue(group.help)
            for option in options:
                self.assertTrue(option.help, option.name)


class TestDebianPackage(unittest.TestCase):

    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.dir)

    def test_build(self):
        shutil.copytree(TOP, self.dir / 'source', ignore=shutil.ignore_patterns('__pycache__', 'check'))
        done = subprocess.run(['dpkg-buildpackage', '-b', '-d', '-us', '-uc'], cwd=self.dir / 'source',
                              capture_output=True, text=True, timeout=300,
                              env={k: v for k, v in os.environ.items() if k != 'PYTHONPATH'})
        self.assertEqual(0, done.returncode, done.stdout[-1000:] + done.stderr[-3000:])
        package, = self.dir.glob('*.deb')
        root = self.dir / 'root'
        subprocess.run(['dpkg-deb', '-x', package, root], check=True)
        site = root / 'usr/lib/python3/dist-packages'
        self.assertEqual({'nova/virt/ibvmig/__init__.py'} | {
            str(p.relative_to(TOP)) for p in (TOP / 'nova_ibvmig').glob('*.py')},
            {str(p.relative_to(site)) for p in site.rglob('*.py')})
        self.assertIn('nova_ibvmig = nova_ibvmig.conf:list_opts',
                      (site / 'nova_ibvmig.egg-info/entry_points.txt').read_text())
        self.assertTrue((root / 'usr/share/doc/python3-nova-ibvmig/nova-ibvmig.conf.sample').is_file())


class TestNotes(unittest.TestCase):

    def test_release_notes(self):
        notes = list((TOP / 'releasenotes/notes').glob('*.yaml'))
        self.assertTrue(notes)
        for note in notes:
            sections = yaml.safe_load(note.read_text())
            self.assertLessEqual(set(sections), {'prelude', 'features', 'issues', 'upgrade', 'fixes', 'security'}, note)

    def test_devstack_plugin_parses(self):
        for script in ('settings', 'plugin.sh'):
            subprocess.run(['bash', '-n', TOP / 'devstack' / script], check=True)
