# SPDX-License-Identifier: GPL-2.0-or-later
"""What lies beside the code: the sample file, the entry point, what is installed how, release notes."""
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


PROJECTS = {TOP: 'nova-ibvmig.conf.sample', TOP / 'neutron': 'ml2-ibvmig.ini.sample'}


def entry_point(project):
    """(name, function) of oslo.config.opts in its setup.cfg."""
    setup = configparser.ConfigParser()
    setup.read(project / 'setup.cfg')
    name, where = (s.strip() for s in setup['entry_points']['oslo.config.opts'].strip().split('='))
    module, function = where.split(':')
    return name, getattr(importlib.import_module(module), function)


class TestConfiguration(unittest.TestCase):

    def _generate(self, project):
        """As `oslo-config-generator --config-file etc/config-generator.conf` once the package is installed."""
        name, list_opts = entry_point(project)
        conf = cfg.ConfigOpts()
        generator.register_cli_opts(conf)
        conf(['--config-file', str(project / 'etc/config-generator.conf')])
        self.assertEqual([name], conf.namespace)
        out = io.StringIO()
        with mock.patch.object(generator, '_get_raw_opts_loaders', lambda names: [(name, list_opts)]):
            generator.generate(conf, out)
        return out.getvalue()

    def test_sample_is_up_to_date(self):
        for project, sample in PROJECTS.items():
            self.assertEqual((project / 'etc' / sample).read_text(), self._generate(project),
                             'make it anew: oslo-config-generator --config-file etc/config-generator.conf')

    def test_every_option_has_help(self):
        for project in PROJECTS:
            _, list_opts = entry_point(project)
            for group, options in list_opts():
                self.assertTrue(group.help)
                for option in options:
                    self.assertTrue(option.help, option.name)


class Installed(unittest.TestCase):

    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.dir)

    def run_in(self, folder, *command, **environment):
        kept = {k: v for k, v in os.environ.items() if k != 'PYTHONPATH'}
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, env=kept | environment)
        self.assertEqual(0, done.returncode, done.stdout[-1000:] + done.stderr[-3000:])
        return done.stdout


class TestPip(Installed):
    """What `pip install` puts into the folder of Nova's or Neutron's own packages: by setup.py, without pip."""

    def _files(self, project):
        source = self.dir / project.name
        shutil.copytree(project, source, ignore=shutil.ignore_patterns('__pycache__', 'check', 'neutron'))
        self.run_in(source, '/usr/bin/python3', 'setup.py', '-q', 'install', '--root', str(self.dir), '--install-lib',
                    '/site', '--single-version-externally-managed', '--record', 'record', PBR_VERSION='0.1.0')
        site = self.dir / 'site'
        return {str(p.relative_to(site)) for p in site.rglob('*') if 'tests' not in p.parts and p.suffix == '.py'}

    def test_nova(self):
        self.assertEqual({'nova/virt/ibvmig/__init__.py'} | {
            'nova_ibvmig/' + p.name for p in (TOP / 'nova_ibvmig').glob('*.py')}, self._files(TOP))

    def test_neutron(self):
        self.assertEqual({'neutron_ibvmig/' + p.name for p in (TOP / 'neutron/neutron_ibvmig').glob('*.py')},
                         self._files(TOP / 'neutron'))


DEVSTACK = """
set -eu
function define_plugin { :; }
function is_service_enabled { true; }
function pip_install { echo "pip $*"; }
function iniget { echo openvswitch; }
function iniset { echo "$1 [$2] $3 = $4"; }
source "$TOP/devstack/settings"
for phase in 'stack install' 'stack post-config' "$LAST"; do
    source "$TOP/devstack/plugin.sh" $phase
done
"""


class TestDevstack(Installed):
    """With devstack's functions played."""

    def _stack(self, last):
        (self.dir / 'nova/virt').mkdir(parents=True, exist_ok=True)
        return self.run_in(self.dir, 'bash', '-c', DEVSTACK, TOP=str(TOP), LAST=last, NOVA_DIR=str(self.dir),
                           NOVA_CONF='nova.conf', NOVA_CPU_CONF='nova-cpu.conf', Q_PLUGIN_CONF_FILE='ml2.ini',
                           IBVMIG_PF_BY_PHYSNET='ib0net:pf0,ib1net:pf1').splitlines()

    def test_stack(self):
        done = self._stack('stack extra')
        self.assertLessEqual({'pip -e %s' % TOP, 'pip -e %s/neutron' % TOP,
                              'nova.conf [DEFAULT] compute_driver = ibvmig.IbvmigLibvirtDriver',
                              'nova.conf [ibvmig] pf_by_physnet = ib0net:pf0,ib1net:pf1',
                              '/ml2.ini [ml2] mechanism_drivers = ibvmig,openvswitch',
                              '/ml2.ini [ml2_ibvmig] physical_networks = ib0net,ib1net'}, set(done))
        self.assertEqual([], [line for line in done if 'nova-cpu.conf' in line], 'devstack writes that one later')
        self.assertTrue((self.dir / 'nova/virt/ibvmig/__init__.py').is_file())

    def test_clean(self):
        self._stack('clean')
        self.assertFalse((self.dir / 'nova/virt/ibvmig').exists())


class TestDebianPackage(Installed):

    def test_build(self):
        shutil.copytree(TOP, self.dir / 'source', ignore=shutil.ignore_patterns('__pycache__', 'check'))
        self.run_in(self.dir / 'source', 'dpkg-buildpackage', '-b', '-d', '-us', '-uc')
        site = self._unpack('python3-nova-ibvmig', TOP, 'nova_ibvmig', 'nova/virt/ibvmig/__init__.py')
        self.assertIn('nova_ibvmig = nova_ibvmig.conf:list_opts', site['nova_ibvmig'])
        self.assertNotIn('neutron', site['nova_ibvmig'])
        site = self._unpack('python3-neutron-ibvmig', TOP / 'neutron', 'neutron_ibvmig')
        self.assertIn('[neutron.ml2.mechanism_drivers]\nibvmig = neutron_ibvmig.mech_driver:IbvmigMechanismDriver\n',
                      site['neutron_ibvmig'])

    def _unpack(self, package, project, name, *more):
        """It has the code, without its tests, and a sample file: {distribution: its entry points}."""
        deb, = self.dir.glob(package + '_*.deb')
        root = self.dir / package
        subprocess.run(['dpkg-deb', '-x', deb, root], check=True)
        site = root / 'usr/lib/python3/dist-packages'
        self.assertEqual({*more} | {str(p.relative_to(project)) for p in (project / name).glob('*.py')},
                         {str(p.relative_to(site)) for p in site.rglob('*.py')})
        self.assertTrue((root / 'usr/share/doc' / package / PROJECTS[project]).is_file())
        return {p.parent.stem: p.read_text() for p in site.glob('*.egg-info/entry_points.txt')}


class TestNotes(unittest.TestCase):

    def test_release_notes(self):
        notes = list((TOP / 'releasenotes/notes').glob('*.yaml'))
        self.assertTrue(notes)
        for note in notes:
            sections = yaml.safe_load(note.read_text())
            self.assertLessEqual(set(sections), {'prelude', 'features', 'issues', 'upgrade', 'fixes', 'security'}, note)
