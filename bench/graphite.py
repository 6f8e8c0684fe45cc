"""Cost of Graphite's protocols: first the points that create all series, then the other points.

    FLOODMARK=path/to/floodmark python3 bench/graphite.py SYSTEM PROGRAM [--hosts 1] [--timers 7824] [--rounds 20] [--protocol plaintext]

SYSTEM is floodmark, victoriametrics, go-carbon or carbon; PROGRAM its binary, or for carbon, a directory with a Python environment that has
carbon and whisper. The metrics are timers of 15 values each, as in the account of a stress test of carbon caches. Four connections send a
round of all metrics as fast as the server takes it, then the next. All systems get the same bytes. Between the two phases the server has time
until its CPU use falls below a tenth of a core. CPU seconds are the server's, including work after the last byte.

The `seconds until closed` end when the server has closed all connections. Floodmark does this when all points are durable.
"""

import argparse
import pickle
import socket
import struct
import tempfile
import threading
import time

from carbons import CARBON, SCHEMAS, Server, carbon_command, go_carbon, write_configuration
from floodmark_bench import free_port

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


class Measured(Server):
    """A server that speaks Graphite's protocols on a fresh directory."""

    def __init__(self, data):
        self.data, self.port, self.pickle = data, free_port(), free_port()
        is_plaintext = args.protocol == "plaintext"
        carbon = CARBON.format(data=data, lines=self.port, pickle=self.pickle, query=free_port())
        write_configuration(data, storage_schemas=SCHEMAS, carbon=carbon, go_carbon=go_carbon(data, lines=self.port, pickle=self.pickle))
        address = "127.0.0.1:%d"
        command = {
            "floodmark": [
                args.program, "serve", "--data-dir", data + "/floodmark", "--http", address % free_port(), "--self-monitoring-interval", "never",
                *(["--graphite", address % self.port] if is_plaintext else ["--graphite-pickle", address % self.pickle]),
            ],
            "victoriametrics": [
                args.program, "-storageDataPath=" + data + "/vm", "-httpListenAddr=" + address % free_port(), "-retentionPeriod=10y",
                "-graphiteListenAddr=" + address % self.port,
            ],
            "go-carbon": [args.program, "-config", data + "/conf/go-carbon.conf"],
            "carbon": carbon_command(args.program, data),
        }[args.system]
        super().__init__(command, data, self.port if is_plaintext else self.pickle)

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
    server = Measured(data)
    try:
        server.until_idle()
        phase(server, "new series", [part[:1] for part in bodies])
        phase(server, "known series", [part[1:] for part in bodies])
    finally:
        server.stop()
