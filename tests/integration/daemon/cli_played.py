# SPDX-License-Identifier: GPL-2.0-or-later
"""A daemon that is played for tests of the command line, and their results. No VM."""
import json
import os
import socketserver
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path

TOP = Path(__file__).resolve().parents[3]
BIN = TOP / os.environ.get("BUILD", "build") / "bin"
HANG_UP = "the connection is closed without an answer"


class Handler(BaseHTTPRequestHandler):
    def answer(self):
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size)) if size else None
        self.server.seen.append((self.command, self.path, body))
        found = self.server.answers.get((self.command, self.path))
        if isinstance(found, list):  # the answers come one after the other; the last one stays
            found = found.pop(0) if len(found) > 1 else found[0]
        if callable(found):  # and takes its time
            found = found()
        if found == HANG_UP:
            return
        status, answer = found if found else (404, error(404, f"no {self.path}"))
        data = json.dumps(answer).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except BrokenPipeError:  # the asker has been stopped
            pass

    do_GET = do_POST = answer

    def address_string(self):
        return "unix"

    def log_message(self, *_):
        pass


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    seen, answers = [], {}


def error(status, detail):
    return {"errors": [{"code": "x", "status": status, "detail": detail}]}


class Played:
    """answers: {(method, path): (status, body), or HANG_UP, or a list of these, or a function that makes it}."""

    def __init__(self, answers=None):
        self.tmp = tempfile.TemporaryDirectory(prefix="ibvmig-cli-")
        self.socket = f"{self.tmp.name}/sock"
        self.server = Server(self.socket, Handler)
        self.server.answers, self.server.seen = answers or {}, []
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def run(self, *args, **kw):
        return subprocess.run([BIN / "ibvmig", "--socket", self.socket, *args], text=True,
                              capture_output=True, timeout=120, **kw)

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.tmp.cleanup()


results = []


def check(what, ok, detail=""):
    results.append(bool(ok))
    print(f"{'ok' if ok else 'not ok'} {len(results)} - {what}")
    for line in str(detail).splitlines() if not ok else ():
        print(f"# {line}")


def finish():
    print(f"1..{len(results)}")
    sys.exit(0 if results and all(results) else 1)
