# SPDX-License-Identifier: GPL-2.0-or-later
"""ibvmigd's REST API as Nova needs it. Each failure is a MigrationError with the daemon's own sentence."""
import time

from keystoneauth1 import adapter
from keystoneauth1 import exceptions as ks_exc
from keystoneauth1 import loading as ks_loading
from keystoneauth1 import noauth

from nova import exception

# Only reads: what libvirt's hook and events have begun is asked about, never begun twice.
POLL_S = 0.3


def _why(response):
    try:
        error = response.json()['errors'][0]
        return '%s (%s)' % (error['detail'], error['code'])
    except (ValueError, KeyError, IndexError, TypeError):
        return 'HTTP %d' % response.status_code


class Client(object):
    """The daemon of this host."""

    def __init__(self, conf):
        self._conf = conf.ibvmig
        session = ks_loading.load_session_from_conf_options(conf, 'ibvmig', auth=noauth.NoAuth())
        self._http = adapter.Adapter(session, endpoint_override=self._conf.endpoint, raise_exc=False,
                                     connect_retries=2)

    def _get(self, path, context, none_for_404=False):
        try:
            response = self._http.get(path, timeout=self._conf.request_timeout,
                                      headers={'X-Request-Id': context.global_id or context.request_id})
        except ks_exc.ClientException as e:
            raise exception.MigrationError(reason='ibvmigd at %s does not answer: %s' % (self._conf.endpoint, e))
        if none_for_404 and response.status_code == 404:
            return None
        if response.status_code != 200:
            raise exception.MigrationError(reason='ibvmigd: ' + _why(response))
        return response.json()

    def status(self, context):
        """The host: VFs, PFs, whether the subnet manager's side is reached."""
        return self._get('/v1/status', context)

    def vm(self, context, uuid):
        """The VM's VF, agent and last migration on this host; None: it has no VF metadata, or is not here."""
        return self._get('/v1/vms/' + uuid, context, none_for_404=True)

    def wait_vm(self, context, uuid, settled, seconds):
        """The VM once settled(vm) is true. MigrationError with what was seen last after that many seconds."""
        end = time.monotonic() + seconds
        while True:
            vm = self.vm(context, uuid)
            if settled(vm):
                return vm
            if time.monotonic() > end:
                raise exception.MigrationError(reason='after %d s %s' % (seconds, tell(vm)))
            time.sleep(POLL_S)


def migration_of(vm):
    """The VM's migration that has not ended, or None."""
    migration = (vm or {}).get('migration')
    return migration if migration and not migration.get('ended') else None


def tell(vm):
    """One line on a VM: where its VF is, and what is wrong."""
    if vm is None:
        return 'ibvmigd knows of no VF of this VM'
    parts = ['the VM is %s on %s' % (vm['state'], vm['host'])]
    migration = migration_of(vm)
    if migration:
        parts.append('its migration is in %s' % migration['state'])
        parts += [m for m in (migration.get('reason'), migration.get('trouble')) if m]
        if migration['state'] == 'PARKED':
            parts.append('mend it, then: ibvmig resolve %s' % migration['id'])
    elif vm.get('problem'):
        parts.append(vm['problem'])
    return ': '.join(parts)
