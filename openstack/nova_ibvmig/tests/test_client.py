# SPDX-License-Identifier: GPL-2.0-or-later
import unittest
from unittest import mock

from oslo_config import cfg
import requests
import requests_mock

from nova import exception

from nova_ibvmig import client
from nova_ibvmig import conf as ibvmig_conf

CONTEXT = mock.Mock(global_id='req-1')
STATUS = {'host': 'h0', 'libvirt': {}, 'sm': {}, 'pfs': [], 'vfs': []}
VM = {'host': 'h0', 'state': 'attached', 'agent': {}}


class TestClient(unittest.TestCase):

    def setUp(self):
        self.http = requests_mock.Mocker()
        self.http.start()
        self.addCleanup(self.http.stop)
        pause = mock.patch('keystoneauth1.session.time.sleep')  # between tries
        pause.start()
        self.addCleanup(pause.stop)

    def _client(self, **options):
        conf = cfg.ConfigOpts()
        conf([])
        ibvmig_conf.register_opts(conf)
        for name, value in options.items():
            conf.set_override(name, value, 'ibvmig')
        return client.Client(conf)

    def _answers(self, *answers):
        self.http.get(requests_mock.ANY, list(answers))

    def _fails(self, words, call=None):
        call = call or (lambda: self._client().status(CONTEXT))
        failure = self.assertRaises(exception.MigrationError, call)
        self.assertIn(words, failure.format_message())

    def assertRaises(self, kind, call):
        with super().assertRaises(kind) as caught:
            call()
        return caught.exception

    def test_request(self):
        self._answers({'json': STATUS})
        self.assertEqual(STATUS, self._client(endpoint='https://node1:7611', certfile='/c', keyfile='/k', cafile='/a',
                                              request_timeout=7).status(CONTEXT))
        sent = self.http.last_request
        self.assertEqual(('https://node1:7611/v1/status', ('/c', '/k'), '/a', 7),
                         (sent.url, sent.cert, sent.verify, sent.timeout))
        self.assertEqual(('req-1', 'ib-migration 1.0'),
                         (sent.headers['X-Request-Id'], sent.headers['OpenStack-API-Version']))

    def test_errors_are_the_daemons(self):
        detail = {'errors': [{'code': 'no-role', 'status': 403, 'detail': 'CN nova has no role', 'request_id': 'r'}]}
        self._answers({'json': detail, 'status_code': 403})
        self._fails('ibvmigd: CN nova has no role (no-role)')

    def test_errors_of_others(self):
        self._answers({'text': '<html>', 'status_code': 502})
        self._fails('ibvmigd: HTTP 502')
        self._answers({'text': '<html>'})
        self._fails('does not answer in JSON')
        self._answers({'json': {'host': 'h0'}})
        self._fails('answers without libvirt, sm, pfs, vfs: its version does not fit')
        self._answers({'json': []})
        self._fails('answers without host, libvirt')

    def test_no_answer(self):
        for cause in (requests.exceptions.ConnectionError('refused'), requests.exceptions.ReadTimeout('slow'),
                      requests.exceptions.SSLError('unknown CA'), OSError('no file /c')):
            self._answers({'exc': cause})
            self._fails('ibvmigd at https://127.0.0.1:7611 does not answer')

    def test_the_cause_is_last_and_is_kept(self):
        self._answers({'exc': requests.exceptions.ConnectionError(400 * 'x' + ': [Errno 111] refused')})
        self._fails('[Errno 111] refused')
        detail = {'errors': [{'code': 'sm-failed', 'detail': 400 * 'x'}]}
        self._answers({'json': detail, 'status_code': 500})
        failure = self.assertRaises(exception.MigrationError, lambda: self._client().status(CONTEXT))
        self.assertLess(len(failure.format_message()), 255)
        self.assertIn('x (sm-failed)', failure.format_message())

    def test_reads_are_tried_again(self):
        busy = {'json': {'errors': [{'code': 'busy', 'detail': 'later'}]}, 'status_code': 503}
        self._answers(busy, dict(busy, status_code=429), {'json': STATUS})
        self.assertEqual(STATUS, self._client().status(CONTEXT))
        self._answers({'exc': requests.exceptions.ConnectTimeout('slow')}, {'json': STATUS})
        self.assertEqual(STATUS, self._client().status(CONTEXT))
        self._answers(busy)
        self._fails('later (busy)')
        self.assertEqual(3 + 2 + 3, self.http.call_count)

    def test_vm(self):
        self._answers({'json': VM})
        self.assertEqual(VM, self._client().vm(CONTEXT, 'u'))
        self._answers({'json': {'errors': []}, 'status_code': 404})
        self.assertIsNone(self._client().vm(CONTEXT, 'u'))
        self._fails('HTTP 404')  # status is always there

    def test_fence(self):
        self.http.post('https://127.0.0.1:7611/v1/vms/u/fence', [
            {'exc': requests.exceptions.ConnectTimeout('slow')}, {'json': {'vguids': []}}])
        self._client().fence(CONTEXT, 'u', 'h0')
        self.assertEqual(({'host': 'h0'}, 'req-1'),
                         (self.http.last_request.json(), self.http.last_request.headers['X-Request-Id']))
        refusal = {'errors': [{'code': 'not-fenced', 'detail': 'host h0 is not off'}]}
        self.http.post(requests_mock.ANY, json=refusal, status_code=409)
        self._fails('host h0 is not off (not-fenced)', lambda: self._client().fence(CONTEXT, 'u', 'h0'))

    def test_time_outs(self):
        self._answers({'json': dict(STATUS, **VM)})
        self.http.post(requests_mock.ANY, json={'vguids': []})
        asked = self._client(request_timeout=7, fence_timeout=45)
        for seconds, verb in ((7, lambda: asked.status(CONTEXT)), (7, lambda: asked.vm(CONTEXT, 'u')),
                              (7, lambda: asked.wait_vm(CONTEXT, 'u', bool, 3600)),
                              (45, lambda: asked.fence(CONTEXT, 'u', 'h0'))):
            verb()
            self.assertEqual(seconds, self.http.last_request.timeout, self.http.last_request.path)

    def test_wait(self):
        self._answers({'json': dict(VM, state='attaching')}, {'json': VM})
        with mock.patch.object(client, 'POLL_S', 0):
            self.assertEqual(VM, self._client().wait_vm(CONTEXT, 'u', lambda vm: vm['state'] == 'attached', 3600))

    def test_wait_ends(self):
        self._answers({'json': dict(VM, state='attaching')})
        self._fails('after 0 s the VM is attaching on h0',
                    lambda: self._client().wait_vm(CONTEXT, 'u', lambda vm: False, 0))
