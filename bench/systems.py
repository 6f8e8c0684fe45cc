"""The compared servers: how to start each on a directory, and the URLs for writes and queries.

SYSTEM is floodmark, victoriametrics, prometheus or cortex; PROGRAM its binary. All run with their defaults, except for addresses,
data directories, retention and Cortex' limits (bench/cortex.yaml). Arguments after `--` are passed on to the server.
"""

import http.client
import os
import subprocess
import sys
import time
import urllib.parse
import urllib.request

from floodmark_bench import Process, free_port

NAMES = ["floodmark", "victoriametrics", "prometheus", "cortex"]


def arguments(parser, *further):
    """Adds SYSTEM, PROGRAM and `further` to a script's arguments. Returns the parsed arguments, and the arguments for the server. A name
    that ends in `*` is an argument that may be repeated or missing."""
    parser.add_argument("system", choices=NAMES)
    for name in ["program", *further]:
        parser.add_argument(name.rstrip("*"), nargs="*" if name.endswith("*") else None)
    own, flags = sys.argv[1:], []
    if "--" in own:
        own, flags = own[: own.index("--")], own[own.index("--") + 1 :]
    return parser.parse_args(own), flags


class System(Process):
    """A server of any kind on the directory `data`, which is created if absent. `prepare` runs in the new process."""

    def __init__(self, name, program, data, *flags, prepare=None):
        self.name, self.program, self.data, self.flags = name, os.path.abspath(program), os.path.abspath(data), flags
        self.prepare = prepare
        # Cortex needs some folders to exist
        for folder in ["", "bucket", "rules", "alerts"] if name == "cortex" else [""]:
            os.makedirs(os.path.join(self.data, folder), exist_ok=True)
        self.start()

    def start(self, port=None):
        """Starts the server, on a free port unless one is given; returns the seconds until it was ready."""
        port = port or free_port()
        self.base = "http://127.0.0.1:%d" % port
        self.write_url = self.base + ("/api/v1/push" if self.name == "cortex" else "/api/v1/write")
        self.read_url = self.base + ("/prometheus" if self.name == "cortex" else "")
        began = time.monotonic()
        environment = {**os.environ, "DATA": self.data, "PORT": str(port), "GRPC_PORT": str(free_port())}
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "preexec_fn": self.prepare}
        self.process = subprocess.Popen([*self._command(port), *self.flags], cwd=self.data, env=environment, **quiet)
        ready = {"victoriametrics": "/health", "cortex": "/ready"}.get(self.name, "/-/ready")
        while True:
            try:
                if urllib.request.urlopen(self.base + ready, timeout=1).status == 200:
                    return time.monotonic() - began
            except OSError:
                if self.process.poll() is not None or time.monotonic() - began > 120:
                    self.stop()
                    raise SystemExit("%s did not become ready: %s" % (self.name, " ".join(self._command(port))))
                time.sleep(0.01)

    def _command(self, port):
        address, here = "127.0.0.1:%d" % port, os.path.dirname(os.path.abspath(__file__))
        return [self.program] + {
            "floodmark": ["serve", "--data-dir", self.data, "--http", address, "--self-monitoring-interval", "never"],
            "victoriametrics": ["-storageDataPath=" + self.data, "-httpListenAddr=" + address, "-retentionPeriod=10y"],
            "prometheus": [
                "--config.file=/dev/null",
                "--storage.tsdb.path=" + self.data,
                "--web.listen-address=" + address,
                "--storage.tsdb.retention.time=10y",
                "--web.enable-remote-write-receiver",
                "--web.enable-admin-api",
            ],
            "cortex": ["-config.file=" + os.path.join(here, "cortex.yaml"), "-config.expand-env=true"],
        }[self.name]

    def question(self, kind, text, start, end, step):
        """Path and query string of a request. `kind` is range, instant, or labels (values of the label `text`)."""
        # otherwise VictoriaMetrics would answer repeated queries from its cache
        params = {"nocache": "1"} if self.name == "victoriametrics" else {}
        if self.name == "floodmark" and "RESOLUTION" in os.environ and kind != "labels":
            params = {"resolution": os.environ["RESOLUTION"]}
        if kind == "labels":
            path = "label/%s/values" % text
            params |= {"start": start, "end": end}
        elif kind == "range":
            path = "query_range"
            params |= {"query": text, "start": start, "end": end, "step": step}
        else:
            path = "query"
            params |= {"query": text, "time": end}
        prefix = urllib.parse.urlparse(self.read_url).path
        return "%s/api/v1/%s?%s" % (prefix, path, urllib.parse.urlencode(params))

    def connect(self):
        """A kept-alive connection, for `ask`."""
        return http.client.HTTPConnection(urllib.parse.urlparse(self.base).netloc, timeout=60)

    def post(self, path):
        """Sends a POST without a body; returns the body of the answer."""
        request = urllib.request.Request(self.base + path, data=b"", method="POST")
        return urllib.request.urlopen(request, timeout=600).read()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.terminate()
        self.process.wait()


def ask(connection, question):
    """Sends a query; returns the latency in milliseconds. Any status other than 200 ends the script."""
    began = time.perf_counter()
    connection.request("GET", question)
    answer = connection.getresponse()
    body = answer.read()
    took = (time.perf_counter() - began) * 1000
    if answer.status != 200:
        raise SystemExit("%s: %d %s" % (question, answer.status, body[:200]))
    return took


def queries(path, names=()):
    """Lines of a file of queries: a name, a kind (see `System.question`), and an expression or a label."""
    with open(path) as file:
        lines = [line.strip().split(" ", 2) for line in file if line.strip() and not line.startswith("#")]
    return [line for line in lines if not names or line[0] in names]
