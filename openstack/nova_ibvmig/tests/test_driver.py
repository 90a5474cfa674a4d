# SPDX-License-Identifier: GPL-2.0-or-later
"""Live migrations: what Nova and its user see. Each reason for a refusal is in test_health."""
from nova import context
from nova import objects

from nova_ibvmig.tests import played


class TestLiveMigration(played.IbServers):

    def _migrate(self, server, block='auto'):
        self.api.post_server_action(server['id'], {'os-migrateLive': {'host': None, 'block_migration': block}})

    def _hold(self):
        """libvirt's job goes on until the test ends it."""
        held = []

        def migrate(domain, destination, params, flags):
            held.append((domain, destination, params, flags))
        self.useFixture(played.fixtures.MonkeyPatch('nova.tests.fixtures.libvirt.Domain.migrateToURI3', migrate))
        return held

    def test_there(self):
        server = self._boot()
        server = self._live_migrate(server, 'completed')
        self.assertEqual('h1', server['OS-EXT-SRV-ATTR:host'])
        self.assertEqual(dict.fromkeys(['check_destination', 'check_source', 'arm', 'migrate', 'confirm', 'release'],
                                       'Success'), self._results(server))
        self.assertEqual([], played.etree.fromstring(
            self._domain(server, 'h1').XMLDesc(0)).findall('./devices/hostdev'))

    def _check_fails(self, server, event, words):
        self._refused(self._migrate, server)
        server = self._wait_for_state_change(server, 'ACTIVE')
        self.assertEqual('h0', server['OS-EXT-SRV-ATTR:host'])
        self.assertIn(words, self._events(server)[event]['details'])

    def test_check_at_the_destination_fails(self):
        server = self._boot()
        self.daemons['h1'].sm = {'ok': False, 'error': 'no plugin'}
        self._check_fails(server, 'check_destination', 'cannot move addresses (`ibvmig doctor` there '
                          'says more): no plugin')

    def test_daemon_at_the_destination_fails(self):
        server = self._boot()
        self.daemons['h1'].fails = True
        self._check_fails(server, 'check_destination', 'played: not now (sm-failed)')

    def test_check_at_the_source_fails(self):
        server = self._boot()
        self.daemons['h0'].vm = {'agent': {'state': 'none'}}
        self._check_fails(server, 'check_source', 'no ibvmig-agent answers in the guest (none)')

    def test_arm_fails(self):
        """The VF has gone between the checks and libvirt's job: Nova rolls back, the server stays."""
        server = self._boot()
        self.daemons['h0'].vm_then = [{}, {'state': 'without-vf'}]
        self._domain(server, 'h0').fail_job()  # libvirt is never asked; Nova's monitor must see an end
        server = self._live_migrate(server, 'failed')
        self.assertEqual('h0', server['OS-EXT-SRV-ATTR:host'])
        events = self._events(server)
        self.assertEqual(('Error', 'Success'), (events['arm']['result'], events['confirm']['result']))
        self.assertIn('the VM is without-vf on h0', events['arm']['details'])

    def _libvirt_fails(self, server, reason, words='canceled by client', meanwhile=lambda: None, confirmed='Success'):
        """libvirt says these words; `server event show` is to give that reason."""
        self._migration_fails(words, meanwhile)
        self._migrate(server)
        self._wait_for_migration_status(server, ['failed', 'error'])
        self.assertEqual('h0', self._idle(server)['OS-EXT-SRV-ATTR:host'])
        events = self._events(server)
        self.assertEqual(('Error', 'Migration error: ' + reason),
                         (events['migrate']['result'], events['migrate']['details']))
        self.assertEqual(confirmed, events['confirm']['result'])

    def test_libvirt_refuses(self):
        server = self._boot()
        self._libvirt_fails(
            server, 'no VF is free', 'Hook script execution failed: internal error: Child process (LC_ALL=C '
            'hooks/qemu x migrate begin -) unexpected exit status 1: no VF is free\n')
        owner = self.api_fixture.api
        owner.microversion = 'latest'
        event = self._all_events(server, 'live-migration', owner)['ibvmig_migrate']
        self.assertEqual('Error', event['result'])
        self.assertEqual(set(), {'details', 'traceback', 'host'} & set(event), 'Nova shows administrators these')

    def test_walked_back(self):
        """ibvmigd's reason, once it has one, and libvirt's."""
        def walk_back():
            daemon = self.daemons['h0']
            daemon.vm_then = 2 * [played.migration('SWITCH', back=True)]
            daemon.vm = played.migration('ABORTED', ended=True, reason='the peer g2 is gone')
        self._libvirt_fails(self._boot(), 'the peer g2 is gone (libvirt: canceled by client)', meanwhile=walk_back)

    def test_the_reason_of_an_earlier_migration_is_not_told(self):
        server = self._boot()
        self.daemons['h0'].vm = played.migration('ABORTED', id='m0', ended=True, reason='of old')
        self._libvirt_fails(server, 'no route to h1', 'no route to h1')

    def test_daemon_fails_when_libvirt_does(self):
        self._libvirt_fails(self._boot(), 'ibvmigd: played: not now (sm-failed) (libvirt: no route to h1)',
                            'no route to h1', lambda: self.daemons['h0'].vm_then.append(None))

    def _in_error_on(self, server, host, other):
        """And Nova's books are in order: what the other host had for the server is free."""
        server = self._idle(server)
        self.assertEqual((host, 'ERROR'), (server['OS-EXT-SRV-ATTR:host'], server['status']))
        self.assertIn('mend this, then: ibvmig resolve m1', server['fault']['message'])

        def one_host():
            self.assertEqual({host: 'ACTIVE'}, {h: b['status'] for h, b in self.neutron._port_bindings[
                self.neutron.network_4_port_1['id']].items()})
            self.assertPCIDeviceCounts(host, total=5, free=3)
            self.assertPCIDeviceCounts(other, total=5, free=5)
            self.assertEqual([host], [h for h in ('h0', 'h1') if self._get_provider_usages(
                self.compute_rp_uuids[h])['VCPU']])
        self._wait_for_assert(one_host, max_retries=played.PATIENCE)
        return server

    def _goes_on(self, server):
        """Once ibvmigd has its VF again."""
        self.useFixture(played.fixtures.MonkeyPatch('nova.tests.fixtures.libvirt.Domain.migrateToURI3',
                                                    self._migrate_stub))
        for daemon in self.daemons.values():
            daemon.vm = {}
        self.admin_api.post_server_action(server['id'], {'os-resetState': {'state': 'active'}})
        self._live_migrate(server, 'completed')

    def test_parked_when_libvirt_fails(self):
        """Also Nova's rollback comes to its end."""
        def park():
            self.daemons['h0'].vm = played.parked(reached='SWITCH', back=True, trouble='VF busy')
        self._disks_are_not_shared()
        server = self._boot()
        self._libvirt_fails(server, 'its migration is PARKED on h0 (undo from SWITCH); mend this, then: '
                            'ibvmig resolve m1: VF busy (libvirt: canceled by client)', meanwhile=park,
                            confirmed='Error')
        self._wait_for_migration_status(server, ['failed'])
        self._goes_on(self._in_error_on(server, 'h0', 'h1'))

    def test_parked_at_the_destination(self):
        server = self._boot()
        self.daemons['h1'].vm = played.parked(trouble=400 * 'too long ' + 'port stays DOWN')
        self._migrate(server)
        self._wait_for_migration_status(server, ['completed'])
        server = self._in_error_on(server, 'h1', 'h0')
        for told in (self._events(server)['confirm']['details'], server['fault']['message']):
            self.assertIn('mend this, then: ibvmig resolve m1: too long', told)
            self.assertTrue(told.endswith('port stays DOWN'), told)
        self._goes_on(server)

    def test_no_end_at_the_destination(self):
        self.flags(confirm_timeout=1, group='ibvmig')
        server = self._boot()
        self.daemons['h1'].vm = dict(played.migration('RESUME'), state='incoming')
        self._migrate(server)
        self._wait_for_migration_status(server, ['completed'])
        server = self._idle(server)
        self.assertEqual(('h1', 'ERROR'), (server['OS-EXT-SRV-ATTR:host'], server['status']))
        self.assertIn('after 1 s its migration is in RESUME on h1',
                      self._events(server)['confirm']['details'])

    def test_parked_at_the_source(self):
        """Said, but the server is well."""
        server = self._boot()
        self.daemons['h0'].left = dict(played.parked(trouble='the VF stays busy'), state='leaving')
        server = self._live_migrate(server, 'completed')
        self.assertEqual(('h1', 'ACTIVE'), (server['OS-EXT-SRV-ATTR:host'], server['status']))
        self.assertIn('mend this, then: ibvmig resolve m1: the VF stays busy',
                      self._events(server)['release']['details'])

    def _aborted(self):
        server = self._boot()
        self._hold()
        self._migrate(server)
        migration = self._wait_for_migration_status(server, ['running'])
        self.api.api_delete('/servers/%s/migrations/%s' % (server['id'], migration['id']))
        self._wait_for_migration_status(server, ['cancelled'])
        server = self._idle(server)
        self.assertEqual(('h0', 'ACTIVE'), (server['OS-EXT-SRV-ATTR:host'], server['status']))
        self.assertEqual('Success', self._results(server)['confirm'])
        return server

    def test_abort(self):
        self._aborted()

    def test_abort_that_libvirt_has_ended_when_nova_looks(self):
        def abort(domain):
            domain._job_type = played.fakelibvirt.VIR_DOMAIN_JOB_NONE
        self.useFixture(played.fixtures.MonkeyPatch('nova.tests.fixtures.libvirt.Domain.abortJob', abort))
        server = self._aborted()
        self._migration_fails('no route to h1')
        self._live_migrate(server, 'failed')

    def test_abort_that_libvirt_refuses(self):
        """The migration goes on, and what ends it then is no abort."""
        def refuse(domain):
            raise played.fakelibvirt.libvirtError('busy')
        self.useFixture(played.fixtures.MonkeyPatch('nova.tests.fixtures.libvirt.Domain.abortJob', refuse))
        server = self._boot()
        driver = self.computes['h0'].driver
        instance = objects.Instance.get_by_uuid(context.get_admin_context(), server['id'])
        self.assertRaises(played.fakelibvirt.libvirtError, driver.live_migration_abort, instance)
        self.assertEqual(set(), driver._aborted)

    def test_force_complete(self):
        """Upstream would pause the guest; ours has to answer while its VF leaves."""
        server = self._boot()
        held = self._hold()
        self._migrate(server)
        migration = self._wait_for_migration_status(server, ['running'])
        self.api.force_complete_migration(server['id'], migration['id'])
        self.assertEqual([], list(self.computes['h0'].driver.active_migrations[server['id']]))
        self._wait_for_assert(lambda: self.assertTrue(held), max_retries=played.PATIENCE)
        played.IbServers._migrate_stub(self, *held[0])
        self._wait_for_migration_status(server, ['completed'])
        self.assertEqual('h1', self._idle(server)['OS-EXT-SRV-ATTR:host'])

    def test_block_migration(self):
        """Disks that are not shared."""
        server = self._boot()
        asked = []
        real = self._migrate_stub

        def migrate(domain, destination, params, flags):
            asked.append(flags)
            real(domain, destination, params, flags)
        self.useFixture(played.fixtures.MonkeyPatch('nova.tests.fixtures.libvirt.Domain.migrateToURI3', migrate))
        self._disks_are_not_shared()
        server = self._live_migrate(server, 'completed')
        self.assertEqual('h1', server['OS-EXT-SRV-ATTR:host'])
        self.assertTrue(asked[0] & played.fakelibvirt.VIR_MIGRATE_NON_SHARED_INC)
        self.assertEqual('Success', self._results(server)['confirm'])


class TestPorts(played.IbServers):

    def test_other_servers_are_left_alone(self):
        self.start_compute('h0')
        self.start_compute('h1')
        server = self._create_server(networks='none', host='h0')
        server = self._live_migrate(server, 'completed')
        self.assertEqual(('h1', {}), (server['OS-EXT-SRV-ATTR:host'], self._events(server)))
        self.assertNotIn('/v1/vms/' + server['id'], self.daemons['h0'].asked + self.daemons['h1'].asked)

    def test_beside_an_ordinary_port(self):
        self.start_compute('h0')
        self.start_compute('h1')
        server = self._create_server(networks=[{'port': self._port()['id']}, {'port': self.neutron.port_1['id']}],
                                     host='h0')
        self.assertEqual([self.neutron.port_1['mac_address']], [
            n['mac'] for n in self._domain(server, 'h0')._def['devices']['nics']])
        server = self._live_migrate(server, 'completed')
        self.assertEqual('h1', server['OS-EXT-SRV-ATTR:host'])

    def test_beside_an_sriov_port(self):
        """That one leaves before pre-copy and comes back after, as upstream does it; ours stays."""
        self.start_compute('h0')
        self.start_compute('h1')
        other = self.neutron.network_4_port_2
        self.neutron.create_port({'port': other})
        server = self._create_server(networks=[{'port': self._port()['id']}, {'port': other['id']}], host='h0')
        server = self._live_migrate(server, 'completed')
        self.assertEqual('h1', server['OS-EXT-SRV-ATTR:host'])
        self.assertEqual([other['mac_address']], [n['mac'] for n in self._domain(server, 'h1')._def['devices']['nics']])

    def _fault(self, ports, words):
        self.start_compute('h0')
        server = self._create_server(networks=[{'port': p['id']} for p in ports], host='h0', expected_state='ERROR')
        self.assertIn(words, server['fault']['message'])

    def test_bad_vguid(self):
        self._fault([self._port(vguid='0x' + '0' * 16)], 'vguid 0x0000000000000000: must be 0x and 16 hex digits')

    def test_coming_and_going(self):
        """Ports of a running server: refused, and the server is as before."""
        server = self._boot(hosts=['h0'])
        self._refused(self._detach_interface, server, self.neutron.network_4_port_1['id'])
        other = self._port(self.neutron.network_4_port_2)
        self._refused(self._attach_interface, server, other['id'])
        self.assertEqual('ACTIVE', self._idle(server)['status'])


class TestSeveralPorts(played.IbServers):
    """Two IB ports of one server, beside an ordinary one."""

    def setUp(self):
        super().setUp()
        for host in ('h0', 'h1'):
            self.start_compute(host)
            self.daemons[host].vfs = 2 * self.daemons[host].vfs
        self.ports = [self._port(vguid=played.VGUID, pkey=played.PKEY),
                      self._port(self.neutron.network_4_port_2, vguid='0x00a1b2fffe000502')]
        self.defined = self._metadata('h0')
        self.server = self._create_server(networks=[{'port': p['id']} for p in [self.neutron.port_1] + self.ports],
                                          host='h0')

    def _is_on(self, here, there):
        """All bindings and claims."""
        for port in self.ports:
            bindings = self.neutron._port_bindings[port['id']]
            self.assertEqual({here: 'ACTIVE'}, {host: b['status'] for host, b in bindings.items()})
        slots = {self.neutron._port_bindings[p['id']][here]['profile']['pci_slot'] for p in self.ports}
        self.assertEqual(2, len(slots))
        self.assertPCIDeviceCounts(here, total=5, free=2)  # nor is their PF free
        self.assertPCIDeviceCounts(there, total=5, free=5)

    def test_created(self):
        vfs, channels = self.defined[0]
        self.assertEqual([('0', 'physnet4', played.VGUID, played.PKEY),
                          ('1', 'physnet4', '0x00a1b2fffe000502', '0xffff')],
                         [tuple(vf.get(k) for k in ('index', 'pf', 'vguid', 'pkey')) for vf in vfs])
        slots = [self.neutron._port_bindings[p['id']]['h0']['profile']['pci_slot'] for p in self.ports]
        self.assertEqual(slots, [vf.get('pci') for vf in vfs])
        self.assertEqual(1, channels.count('org.ibvmig.0'))
        self.assertEqual([self.neutron.port_1['mac_address']], [
            n['mac'] for n in self._domain(self.server, 'h0')._def['devices']['nics']])

    def test_there_and_back(self):
        self._is_on('h0', 'h1')
        for here, there in (('h1', 'h0'), ('h0', 'h1')):
            self.server = self._live_migrate(self.server, 'completed')
            self.assertEqual(here, self.server['OS-EXT-SRV-ATTR:host'])
            self.assertEqual({'Success'}, set(self._results(self.server).values()))
            self._is_on(here, there)

    def test_one_vf_is_not_enough(self):
        self.daemons['h1'].vfs = self.daemons['h1'].vfs[:1]
        self._refused(self._live_migrate, self.server)
        self._idle(self.server)
        self.assertIn('PF physnet4 of h1 has 1 free VF, needed: 2',
                      self._events(self.server)['check_destination']['details'])
        self._is_on('h0', 'h1')

    def test_walked_back(self):
        """Nova gives the destination's claims back there, which it only asks for where disks are not shared."""
        self._disks_are_not_shared()
        self._migration_fails('canceled by client')
        self.daemons['h1'].left = dict(played.parked(back=True, trouble='port stays DOWN'), state='incoming')
        self.server = self._live_migrate(self.server, 'failed')
        self.assertEqual(('h0', 'ACTIVE'), (self.server['OS-EXT-SRV-ATTR:host'], self._idle(self.server)['status']))
        self._wait_for_assert(lambda: self._is_on('h0', 'h1'), max_retries=played.PATIENCE)
        self.assertIn('ibvmig resolve m1: port stays DOWN', self._events(self.server)['rollback']['details'])
