#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Serves keystone or placement: wsgi.py keystone|placement ADDRESS PORT. Their configuration is named by
OS_KEYSTONE_CONFIG_FILES and OS_PLACEMENT_CONFIG_DIR."""
import sys
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIServer, make_server


class Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 64


def application(name):
    if name == "keystone":
        from keystone.server.wsgi import initialize_public_application
        return initialize_public_application()
    from placement.wsgi import init_application
    return init_application()


if __name__ == "__main__":
    service, address, port = sys.argv[1:]
    sys.argv[1:] = []  # oslo.config would read them
    make_server(address, int(port), application(service), server_class=Server).serve_forever()
