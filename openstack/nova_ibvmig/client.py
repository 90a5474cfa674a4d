# SPDX-License-Identifier: GPL-2.0-or-later
"""ibvmigd's REST API as Nova needs it. Each failure is a MigrationError with the daemon's own sentence."""
import time

from keystoneauth1 import adapter
from keystoneauth1 import exceptions as ks_exc
from keystoneauth1 import loading as ks_loading
from keystoneauth1 import noauth

from nova import exception

from nova_ibvmig import health

POLL_S = 0.3
SERVICE_TYPE, MICROVERSION = 'ib-migration', '1.0'
# Safe to ask again, as all that is asked here: what did not get through, was one too many, or met a busy daemon.
RETRIES = {'connect_retries': 2, 'status_code_retries': 2, 'retriable_status_codes': [429, 503]}
NEEDED = {'status': ('host', 'libvirt', 'sm', 'pfs', 'vfs'), 'vm': ('host', 'state', 'agent')}


def _why(response):
    try:
        error = response.json()['errors'][0]
        return '%s (%s)' % (error['detail'], error['code'])
    except (ValueError, KeyError, IndexError, TypeError):
        return 'HTTP %d' % response.status_code


class Client(object):
    """The daemon of this host, over mutual TLS ([ibvmig] cafile, certfile, keyfile). Reads, but for fence(): what
    libvirt's hook and events have begun is asked about, never begun twice."""

    def __init__(self, conf):
        self._conf = conf.ibvmig
        self._endpoint = self._conf.endpoint
        session = ks_loading.load_session_from_conf_options(conf, 'ibvmig', auth=noauth.NoAuth())
        self._http = adapter.Adapter(session, endpoint_override=self._endpoint, raise_exc=False,
                                     service_type=SERVICE_TYPE, default_microversion=MICROVERSION)

    def _fail(self, reason):
        raise exception.MigrationError(reason=health.shortened('ibvmigd at %s %s' % (self._endpoint, reason)))

    def _request(self, path, method, context, seconds, **kwargs):
        try:
            return self._http.request(path, method, timeout=seconds, **RETRIES, **kwargs,
                                      headers={'X-Request-Id': context.global_id or context.request_id})
        except (ks_exc.ClientException, OSError) as e:  # OSError: a certificate's file that is not there
            self._fail('does not answer: %s' % e)

    def _get(self, path, context, needed, none_for_404=False):
        response = self._request(path, 'GET', context, self._conf.request_timeout)
        if none_for_404 and response.status_code == 404:
            return None
        return self._checked(response, needed)

    def _checked(self, response, needed):
        if response.status_code != 200:
            raise exception.MigrationError(reason=health.shortened('ibvmigd: ' + _why(response)))
        try:
            answer = response.json()
        except ValueError:
            self._fail('does not answer in JSON: is it ibvmigd?')
        missing = [k for k in needed if not isinstance(answer, dict) or k not in answer]
        if missing:
            self._fail('answers without %s: its version does not fit nova_ibvmig' % ', '.join(missing))
        return answer

    def status(self, context):
        """The host: VFs, PFs, whether the subnet manager's side is reached."""
        return self._get('/v1/status', context, NEEDED['status'])

    def vm(self, context, uuid):
        """The VM's VF, agent and last migration on this host; None: it has no VF metadata, or is not here."""
        return self._get('/v1/vms/' + uuid, context, NEEDED['vm'], none_for_404=True)

    def fence(self, context, uuid, host):
        """That host is off: what the VM has bound there is let go, so that it can start here. Again: nothing more."""
        self._checked(self._request('/v1/vms/%s/fence' % uuid, 'POST', context, self._conf.fence_timeout,
                                    json={'host': host}), ('vguids',))

    def wait_vm(self, context, uuid, settled, seconds):
        """The VM once settled(vm) is true. MigrationError with what was seen last after that many seconds."""
        end = time.monotonic() + seconds
        while True:
            vm = self.vm(context, uuid)
            if settled(vm):
                return vm
            if time.monotonic() > end:
                raise exception.MigrationError(reason='after %d s %s' % (seconds, health.tell(vm)))
            time.sleep(POLL_S)
