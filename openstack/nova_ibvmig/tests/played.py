# SPDX-License-Identifier: GPL-2.0-or-later
"""Servers with an IB port on computes of Nova's own fixtures, and their ibvmigds, played by requests_mock.

fakelibvirt's domains start, stop and migrate at once: what a daemon says of a VM follows from the domains of its host,
except where a test spoils it."""
import re
import time

import fixtures
from lxml import etree
from oslo_config import cfg
from oslo_messaging.rpc import client as rpc_client
import requests_mock

from nova.tests.fixtures import libvirt as fakelibvirt
from nova.tests.functional.api import client as api_client
from nova.tests.functional.libvirt import base
from nova.tests.functional.libvirt import test_pci_sriov_servers as sriov

from nova_ibvmig import driver  # noqa: F401  registers the options

VGUID = '0x00a1b2fffe000501'
PKEY = '0x8001'
PATIENCE = 240  # looks, 0.5 s apart at least: a loaded machine is no failure
# Nor is it within Nova's services, whose 60 s for a call of another pass there. An override would end with each test.
cfg.set_defaults(rpc_client._client_opts, rpc_response_timeout=600)
ENDED = ('cancelled', 'completed', 'error', 'failed')


def error(context, status, code, detail):
    context.status_code = status
    return {'errors': [{'code': code, 'status': status, 'detail': detail, 'request_id': 'r'}]}


def not_now(context):
    return error(context, 500, 'sm-failed', 'played: not now')


def migration(state, **more):
    return {'migration': dict({'id': 'm1', 'state': state, 'reached': state, 'back': False, 'ended': False}, **more)}


def parked(reached='ATTACH', **more):
    return migration('PARKED', reached=reached, **more)


class Daemon(object):
    """The ibvmigd of one host. Each field is one that a test may spoil."""

    def __init__(self, computes, host):
        self._computes, self.host = computes, host
        self.pfs = [{'name': 'physnet4', 'pkeys': ['0xffff', PKEY]}]
        self.vfs = [{'name': 'vf0', 'pf': 'physnet4', 'pci': None, 'vm': None}]
        self.sm = {'ok': True}
        self.fails = False
        self.vm = {}       # of what GET /v1/vms/UUID says
        self.left = None   # instead of 404, of a VM that is gone
        self.vm_then = []  # instead of vm, one look each; None: it fails
        self.asked = []
        self.fenced = []   # (VM, host that is off)
        self.fence = None  # instead of letting go: its refusal
        self.gone = set()  # VMs that Nova has seen gone

    def runs(self, uuid):
        try:
            domain = self._computes[self.host].driver._host.get_connection().lookupByUUIDString(uuid)
        except (KeyError, fakelibvirt.libvirtError):
            return False
        return domain._state in (fakelibvirt.VIR_DOMAIN_RUNNING, fakelibvirt.VIR_DOMAIN_PAUSED)

    def _fence(self, uuid, host, context):
        self.fenced.append((uuid, host))
        return error(context, 409, 'not-fenced', self.fence) if self.fence else {'vguids': [VGUID]}

    def answer(self, request, context):
        self.asked.append(request.path)
        if self.fails:
            return not_now(context)
        if request.path == '/v1/status':
            return {'host': self.host, 'libvirt': {'connected': True}, 'sm': self.sm, 'vf_error': None,
                    'pfs': self.pfs, 'vfs': self.vfs}
        uuid = request.path.split('/')[3]
        if request.method == 'POST':
            return self._fence(uuid, request.json()['host'], context)
        if self.runs(uuid):
            spoilt = self.vm_then.pop(0) if self.vm_then else self.vm
            if spoilt is None:
                return not_now(context)
        elif self.left:
            spoilt = self.left
        else:
            self.gone.add(uuid)
            return error(context, 404, 'not-found', 'none')
        return dict({'uuid': uuid, 'host': self.host, 'state': 'attached', 'problem': None, 'agent': {'state': 'up'},
                     'migration': None}, **spoilt)


class IbServers(sriov._PCIServersWithMigrationTestBase):
    PCI_DEVICE_SPEC = sriov.SRIOVServersTest.PCI_DEVICE_SPEC
    PCI_ALIAS = []
    ADMIN_API = True
    microversion = 'latest'

    def setUp(self):
        super().setUp()
        self.neutron = self.useFixture(base.LibvirtNeutronFixture(self))
        self.useFixture(fixtures.MonkeyPatch('nova.tests.fixtures.libvirt.Domain.abortJob', self._abort_job))
        self.daemons = {}
        mock = requests_mock.Mocker(real_http=True)
        mock.start()
        self.addCleanup(mock.stop)
        mock.register_uri(requests_mock.ANY, re.compile('^https://h[01]:7611/'), json=self._answer)

    def _answer(self, request, context):
        return self.daemons[request.hostname].answer(request, context)

    def _setup_compute_service(self):
        self.flags(compute_driver='ibvmig.IbvmigLibvirtDriver')

    def start_compute(self, hostname='h0', **kwargs):
        self.daemons[hostname] = Daemon(self.computes, hostname)
        self.flags(endpoint='https://%s:7611' % hostname, group='ibvmig')
        kwargs.setdefault('pci_info', fakelibvirt.HostPCIDevicesInfo(num_pfs=1, num_vfs=4))
        return super().start_compute(hostname=hostname, **kwargs)

    # ---- libvirt ----

    def _migrate_stub(self, domain, destination, params, flags):
        """Upstream leaves the VM running at the source too."""
        super()._migrate_stub(domain, destination, params, flags)
        domain.destroy()

    def _migration_fails(self, words, meanwhile=lambda: None):
        """libvirt's migrations do, with these words, after that."""
        def migrate(domain, destination, params, flags):
            domain._job_type = fakelibvirt.VIR_DOMAIN_JOB_NONE  # as libvirt once there is none any more
            meanwhile()
            raise fakelibvirt.make_libvirtError(fakelibvirt.libvirtError, words)
        self.useFixture(fixtures.MonkeyPatch('nova.tests.fixtures.libvirt.Domain.migrateToURI3', migrate))

    def _disks_are_not_shared(self):
        upstream = 'nova.virt.libvirt.driver.LibvirtDriver.'
        self.useFixture(fixtures.MockPatch(upstream + '_check_shared_storage_test_file', return_value=False))
        self.useFixture(fixtures.MockPatch(upstream + '_get_instance_disk_info', return_value=[]))
        self.useFixture(fixtures.MockPatch('nova.virt.libvirt.utils.get_instance_path_at_destination',
                                           return_value=self.useFixture(fixtures.TempDir()).join('there')))

    def _abort_job(self, domain):
        domain._job_type = fakelibvirt.VIR_DOMAIN_JOB_CANCELLED

    def _domain(self, server, host):
        return self.computes[host].driver._host.get_connection().lookupByUUIDString(server['id'])

    def _metadata(self, host):
        """What the domains of that host are defined with from now on: ([<ibvmig:vf>...], [channel...]) of each."""
        caught = []
        conn = self.computes[host].driver._host.get_connection()
        real = conn.defineXML

        def define(xml):
            root = etree.fromstring(xml)
            channels = [t.get('name') for t in root.findall('./devices/channel/target')]
            caught.append((root.findall('./metadata/{urn:ibvmig:1}vfs/{urn:ibvmig:1}vf'), channels))
            return real(xml)
        conn.defineXML = define
        return caught

    # ---- the API ----

    def _port(self, like=None, **profile):
        port = dict(like or self.neutron.network_4_port_1)
        port['binding:vif_type'] = 'ib_hostdev'
        port['binding:profile'] = dict(port.get('binding:profile') or {}, **profile)
        self.neutron.create_port({'port': port})
        return port

    def _boot(self, hosts=('h0', 'h1')):
        for host in hosts:
            self.start_compute(host)
        port = self._port(vguid=VGUID, pkey=PKEY)
        return self._create_server(networks=[{'port': port['id']}], host='h0')

    def _all_events(self, server, action, api=None):
        """By name, of the newest action of that kind, as an administrator or as api's user sees them."""
        api = api or self.admin_api
        action = next(a for a in api.get_instance_actions(server['id']) if a['action'] == action)
        detail = api.api_get('/servers/%s/os-instance-actions/%s' % (server['id'], action['request_id']))
        return {e['event']: e for e in detail.body['instanceAction']['events']}

    def _events(self, server, action='live-migration'):
        """Ours, without "ibvmig_"."""
        return {name[7:]: e for name, e in self._all_events(server, action).items() if name.startswith('ibvmig_')}

    def _results(self, server, action='live-migration'):
        return {name: e['result'] for name, e in self._events(server, action).items()}

    def _refused(self, call, *args):
        """The API's 202 is a call in these fixtures: a refusal comes back through it."""
        return str(self.assertRaises(api_client.OpenStackApiException, call, *args))

    def _idle(self, server):
        return self._wait_for_server_parameter(server, {'OS-EXT-STS:task_state': None})

    def _wait_for_server_parameter(self, server, expected_params, max_retries=PATIENCE, api=None):
        return super()._wait_for_server_parameter(server, expected_params, max(max_retries, PATIENCE), api)

    def _wait_for_migration_status(self, server, expected_statuses):
        """Of the newest migration; one that has ended otherwise is not waited for."""
        for _ in range(PATIENCE):
            newest = max((m for m in self.admin_api.api_get('/os-migrations').body['migrations']
                          if m['instance_uuid'] == server['id']), key=lambda m: m['id'], default={'status': 'none'})
            if newest['status'] in expected_statuses:
                return newest
            if newest['status'] in ENDED:
                break
            time.sleep(0.5)
        self.fail('the migration is %s, not %s' % (newest['status'], ' or '.join(expected_statuses)))
