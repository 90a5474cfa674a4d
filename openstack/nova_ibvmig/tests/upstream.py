# SPDX-License-Identifier: GPL-2.0-or-later
"""Nova's own tests on our driver: for servers without an InfiniBand port it must be as upstream's."""
from nova import exception
from nova.tests.functional import integrated_helpers
import nova.virt.libvirt

from nova_ibvmig import client
from nova_ibvmig import driver
from nova_ibvmig.tests import played


def _patient(wait):
    """The helper gives up after 5 s, which on a loaded machine is no failure."""
    def longer(self, server, expected_params, max_retries=None, api=None):
        return wait(self, server, expected_params, played.PATIENCE, api)
    return longer


def _no_daemon(self, context):
    raise exception.MigrationError(reason='played: no ibvmigd')


def prepare():
    """compute_driver=libvirt.LibvirtDriver is ours from now on, on hosts without ibvmigd."""
    nova.virt.libvirt.LibvirtDriver = driver.IbvmigLibvirtDriver
    helpers = integrated_helpers.InstanceHelperMixin
    helpers._wait_for_server_parameter = _patient(helpers._wait_for_server_parameter)
    client.Client.status = _no_daemon
