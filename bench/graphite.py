"""Cost of Graphite's protocols: first the points that create all series, then the other points.

    FLOODMARK=path/to/floodmark python3 bench/graphite.py SYSTEM PROGRAM [--hosts 1] [--timers 7824] [--rounds 20] [--protocol plaintext]

SYSTEM is floodmark, victoriametrics, go-carbon or carbon; PROGRAM its binary, or for carbon, a directory with a Python environment that has
carbon and whisper. The metrics are timers of 15 values each, as in the account of a stress test of carbon caches. Four connections send a
round of all metrics as fast as the server takes it, then the next. All systems get the same bytes. Between the two phases the server has time
until its CPU use falls below a tenth of a core. CPU seconds are the server's, including work after the last byte.

The `seconds until closed` end when the server has closed all connections. Floodmark does this when all points are durable.
"""

import argparse
import os
import pickle
import socket
import struct
import subprocess
import tempfile
import threading
import time

from floodmark_bench import Process, free_port

CONNECTIONS = 4
VALUES = [
    "count", "m1_rate", "m5_rate", "m15_rate", "max", "mean", "mean_rate", "min", "p50", "p75", "p95", "p98", "p99", "p999", "stddev",
]

parser = argparse.ArgumentParser()
parser.add_argument("system", choices=["floodmark", "victoriametrics", "go-carbon", "carbon"])
parser.add_argument("program")
parser.add_argument("--hosts", type=int, default=1)
parser.add_argument("--timers", type=int, default=7824, help="timers of each host")
parser.add_argument("--rounds", type=int, default=20, help="points of each metric")
parser.add_argument("--protocol", choices=["plaintext", "pickle"], default="plaintext")
args = parser.parse_args()

# both carbons: a day of points, one a minute, and nothing throttled
SCHEMAS = "[default]\npattern = .*\nretentions = 60s:1d\n"
CARBON = """[cache]
STORAGE_DIR = {data}/storage/
CONF_DIR = {data}/conf/
LOG_DIR = {data}/storage/log/
PID_DIR = {data}/storage/
LOCAL_DATA_DIR = {data}/whisper/
USER =
MAX_CACHE_SIZE = inf
MAX_UPDATES_PER_SECOND = inf
MAX_CREATES_PER_MINUTE = inf
LINE_RECEIVER_INTERFACE = 127.0.0.1
LINE_RECEIVER_PORT = {port}
PICKLE_RECEIVER_INTERFACE = 127.0.0.1
PICKLE_RECEIVER_PORT = {pickle}
CACHE_QUERY_INTERFACE = 127.0.0.1
CACHE_QUERY_PORT = {query}
LOG_UPDATES = False
LOG_CREATES = False
CACHE_WRITE_STRATEGY = sorted
WHISPER_FALLOCATE_CREATE = True
ENABLE_TAGS = False
"""
GO_CARBON = """[common]
user = ""
max-cpu = 2
metric-interval = "1m0s"
[whisper]
data-dir = "{data}/whisper/"
schemas-file = "{data}/conf/storage-schemas.conf"
workers = 2
enabled = true
[udp]
enabled = false
[tcp]
listen = "127.0.0.1:{port}"
enabled = true
[pickle]
listen = "127.0.0.1:{pickle}"
enabled = true
[carbonlink]
enabled = false
[carbonserver]
enabled = false
[grpc]
enabled = false
"""


class Carbon(Process):
    """A server that speaks Graphite's protocols on a fresh directory."""

    def __init__(self, data):
        self.data, self.port, self.pickle = data, free_port(), free_port()
        names = {"data": data, "port": self.port, "pickle": self.pickle, "query": free_port()}
        for folder in ["conf", "storage/log", "whisper"]:
            os.makedirs(os.path.join(data, folder))
        for name, text in [("storage-schemas.conf", SCHEMAS), ("carbon.conf", CARBON), ("go-carbon.conf", GO_CARBON)]:
            with open(os.path.join(data, "conf", name), "w") as file:
                file.write(text.format(**names))
        address = "127.0.0.1:%d"
        command = {
            "floodmark": [
                args.program, "serve", "--data-dir", data + "/floodmark", "--http", address % free_port(), "--self-monitoring-interval", "never",
                *(["--graphite", address % self.port] if args.protocol == "plaintext" else ["--graphite-pickle", address % self.pickle]),
            ],
            "victoriametrics": [
                args.program, "-storageDataPath=" + data + "/vm", "-httpListenAddr=" + address % free_port(), "-retentionPeriod=10y",
                "-graphiteListenAddr=" + address % self.port,
            ],
            "go-carbon": [args.program, "-config", data + "/conf/go-carbon.conf"],
            "carbon": [
                args.program + "/bin/python", args.program + "/bin/carbon-cache.py", "--config=" + data + "/conf/carbon.conf", "--nodaemon",
                "start",
            ],
        }[args.system]
        environment = {**os.environ, "GRAPHITE_ROOT": data, "GRAPHITE_CONF_DIR": data + "/conf", "GRAPHITE_STORAGE_DIR": data + "/storage"}
        log = open(data + "/log", "w")
        self.process = subprocess.Popen(command, cwd=data, env=environment, stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port if args.protocol == "plaintext" else self.pickle), 1).close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit("not started: " + open(data + "/log").read()[-2000:])
                time.sleep(0.05)

    def until_idle(self):
        """Waits until the server uses less than a tenth of a core for three seconds."""
        quiet = 0
        while quiet < 3:
            before = self.cpu_seconds()
            time.sleep(1)
            quiet = quiet + 1 if self.cpu_seconds() - before < 0.1 else 0


def lines_of(connection):
    """Paths of the metrics that a connection sends."""
    for host in range(args.hosts):
        for timer in range(connection, args.timers, CONNECTIONS):
            for value in VALUES:
                yield "STRESS.host-%d.timer-%d.%s" % (host, timer, value)


def body(paths, round, at_s):
    """One point of each path. The values change from round to round, with up to four decimals."""
    points = [(path, (number * 7919 + round * 104729) % 1_000_003 / 10_000) for number, path in enumerate(paths)]
    if args.protocol == "plaintext":
        return "".join("%s %s %d\n" % (path, value, at_s) for path, value in points).encode()
    frames = []
    for start in range(0, len(points), 500):
        frame = pickle.dumps([(path, (at_s, value)) for path, value in points[start : start + 500]], protocol=2)
        frames.append(struct.pack("!L", len(frame)) + frame)
    return b"".join(frames)


def send(server, bodies):
    """Sends what belongs to one connection, and waits until the server closes the connection."""
    port = server.port if args.protocol == "plaintext" else server.pickle
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for part in bodies:
            connection.sendall(part)
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(60)
        try:
            connection.recv(1)
        except TimeoutError:
            pass


def phase(server, name, bodies):
    """Sends `bodies`, a list for each connection, and prints the cost."""
    before, began = server.cpu_seconds(), time.monotonic()
    threads = [threading.Thread(target=send, args=(server, part)) for part in bodies]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    closed_s, until_closed = time.monotonic() - began, server.cpu_seconds() - before
    server.until_idle()
    cpu_s = server.cpu_seconds() - before
    points = args.hosts * args.timers * len(VALUES) * len(bodies[0])
    print("%s: %s: %d points, %.0f for each CPU second (%.0f until closed), %.2f seconds until closed, RSS %d MiB" % (
        args.system, name, points, points / max(cpu_s, 0.01), points / max(until_closed, 0.01), closed_s, server.rss_bytes() >> 20), flush=True)


paths = [list(lines_of(connection)) for connection in range(CONNECTIONS)]
# whole minutes, so that each point of a metric has a slot of its own in the files of carbon
begin_s = int(time.time()) // 60 * 60 - args.rounds * 60
bodies = [[body(part, round, begin_s + round * 60) for round in range(args.rounds)] for part in paths]
with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as data:
    server = Carbon(data)
    try:
        server.until_idle()
        phase(server, "new series", [part[:1] for part in bodies])
        phase(server, "known series", [part[1:] for part in bodies])
    finally:
        server.process.terminate()
        server.process.wait()
