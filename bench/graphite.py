"""Cost of Graphite's protocols: first the points that create all series, then the other points.

    python3 bench/graphite.py [--hosts 1] [--timers 7824] [--rounds 20] [--runs 1] [--bursts 0] [--protocol plaintext]
                              [--deny 0] SYSTEM PROGRAM [SYSTEM PROGRAM ...]

SYSTEM is floodmark, victoriametrics, go-carbon or carbon; PROGRAM its binary, or for carbon, a directory with a Python environment that has
carbon and whisper. Several systems are measured in turn, `--runs` times, and a table of medians follows. `--protocol` is plaintext, pickle or both
(plaintext,pickle); VictoriaMetrics has no pickle.

The metrics are timers of 15 values each, as in the account of a stress test of carbon caches. Four connections send a
round of all metrics as fast as the server takes it, then the next. All systems get the same bytes. Between the two phases the server has time
until its CPU use falls below a tenth of a core. CPU seconds are the server's, including work after the last byte.

The `seconds until closed` end when the server has closed all connections. Floodmark does this when all points are durable. For Floodmark, a row
also shows the p99 of `floodmark_graphite_commit_seconds` during the phase: the bound of the bucket that contains it, and the share of the bodies
that were durable within the commit interval of 100 ms.

With `--deny N`, Floodmark has a list of N expressions (graphite_deny), none of which is found in a name that is sent.

With `--bursts N`, then come N bursts, each of as many new series as above. Meanwhile, and before, two senders each write a point of a known series
as a line, ask with PromQL until it is there, and write the next (bench/known_points.py). Not for go-carbon and carbon, which have no PromQL. VictoriaMetrics
shows new points only after some seconds, also without other senders.
"""

import argparse
import pickle
import socket
import statistics
import struct
import tempfile
import threading
import time

from carbons import CARBON, SCHEMAS, Server, carbon_command, go_carbon, write_configuration
from floodmark_bench import buckets, free_port
from known_points import KnownPoints, percentile

CONNECTIONS = 4
VALUES = [
    "count", "m1_rate", "m5_rate", "m15_rate", "max", "mean", "mean_rate", "min", "p50", "p75", "p95", "p98", "p99", "p999", "stddev",
]

SYSTEMS = ["floodmark", "victoriametrics", "go-carbon", "carbon"]
COMMITS = "floodmark_graphite_commit_seconds"
COMMIT_INTERVAL_S = 0.1
QUIET_S = 5

parser = argparse.ArgumentParser()
parser.add_argument("systems", nargs="+", metavar="SYSTEM PROGRAM")
parser.add_argument("--hosts", type=int, default=1)
parser.add_argument("--timers", type=int, default=7824, help="timers of each host")
parser.add_argument("--rounds", type=int, default=20, help="points of each metric")
parser.add_argument("--carbon-rounds", type=int, default=6, help="points of each metric for carbon, which is slower")
parser.add_argument("--runs", type=int, default=1)
parser.add_argument("--bursts", type=int, default=0, help="bursts of new series, with senders of known ones beside them")
parser.add_argument("--protocol", default="plaintext")
parser.add_argument("--deny", type=int, default=0, help="expressions in Floodmark's list of denied names")
args = parser.parse_args()
systems = list(zip(args.systems[::2], args.systems[1::2]))
protocols = args.protocol.split(",")
if len(args.systems) % 2 or any(name not in SYSTEMS for name, _ in systems) or set(protocols) - {"plaintext", "pickle"}:
    parser.error("pairs of a system (%s) and its program are needed, and the protocols plaintext, pickle" % ", ".join(SYSTEMS))


class MeasuredServer(Server):
    """A server that speaks Graphite's protocols on a fresh directory."""

    def __init__(self, system, program, data):
        self.system, self.data = system, data
        self.port, self.pickle, self.http = free_port(), free_port(), free_port()
        self.url = "http://127.0.0.1:%d" % self.http
        carbon = CARBON.format(data=data, lines=self.port, pickle=self.pickle, query=free_port())
        write_configuration(data, storage_schemas=SCHEMAS, carbon=carbon, go_carbon=go_carbon(data, lines=self.port, pickle=self.pickle))
        address = "127.0.0.1:%d"
        command = {
            "floodmark": [
                program, "serve", "--data-dir", data + "/floodmark", "--http", address % self.http, "--self-monitoring-interval", "never",
                "--graphite", address % self.port, "--graphite-pickle", address % self.pickle,
            ],
            "victoriametrics": [
                program, "-storageDataPath=" + data + "/vm", "-httpListenAddr=" + address % self.http, "-retentionPeriod=10y",
                "-graphiteListenAddr=" + address % self.port,
            ],
            "go-carbon": [program, "-config", data + "/conf/go-carbon.conf"],
            "carbon": carbon_command(program, data),
        }[system]
        if system == "floodmark" and args.deny:
            with open(data + "/conf/deny.conf", "w") as file:
                file.writelines("^DENIED\\.host-%d\\.[a-z]+-\\d+\\.(mean|p99)$\n" % number for number in range(args.deny))
            command += ["--graphite-deny", data + "/conf/deny.conf"]
        super().__init__(command, data, self.port)

    def until_idle(self):
        """Waits until the server uses less than a tenth of a core for three seconds."""
        quiet = 0
        while quiet < 3:
            before = self.cpu_seconds()
            time.sleep(1)
            quiet = quiet + 1 if self.cpu_seconds() - before < 0.1 else 0

    def commits(self):
        """Cumulative counts of bodies by upper bound of the time until they were durable. Empty for others than Floodmark."""
        return buckets(self.url, COMMITS) if self.system == "floodmark" else {}


def paths_of(connection, prefix="STRESS"):
    """Paths of the metrics that a connection sends."""
    return [
        "%s.host-%d.timer-%d.%s" % (prefix, host, timer, value)
        for host in range(args.hosts)
        for timer in range(connection, args.timers, CONNECTIONS)
        for value in VALUES
    ]


def body(protocol, paths, round, at_s):
    """One point of each path. The values change from round to round, with up to four decimals."""
    points = [(path, (number * 7919 + round * 104729) % 1_000_003 / 10_000) for number, path in enumerate(paths)]
    if protocol == "plaintext":
        return "".join("%s %s %d\n" % (path, value, at_s) for path, value in points).encode()
    frames = []
    for start in range(0, len(points), 500):
        frame = pickle.dumps([(path, (at_s, value)) for path, value in points[start : start + 500]], protocol=2)
        frames.append(struct.pack("!L", len(frame)) + frame)
    return b"".join(frames)


def send(port, bodies):
    """Sends what belongs to one connection, and waits until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for part in bodies:
            connection.sendall(part)
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(60)
        try:
            connection.recv(1)
        except TimeoutError:
            pass


def send_all(server, protocol, bodies):
    """Sends `bodies`, a list for each connection, at the same time. Returns the seconds until the server has closed all connections."""
    began = time.monotonic()
    port = server.port if protocol == "plaintext" else server.pickle
    threads = [threading.Thread(target=send, args=(port, part)) for part in bodies]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    return time.monotonic() - began


def show_ms(seconds):
    return "-" if seconds is None else "%.1f" % (seconds * 1e3)


def commit_figures(before, after):
    """Upper bound (seconds) of the p99 of the commits between two times, and the share within the commit interval."""
    counts = {bound: after[bound] - before[bound] for bound in after}
    total = max(counts.values(), default=0)
    if not total:
        return None, None
    return min(bound for bound, count in counts.items() if count >= 0.99 * total), counts[COMMIT_INTERVAL_S] / total


def phase(server, protocol, name, bodies):
    """Sends `bodies`, a list for each connection. Prints and returns the cost."""
    before, commits = server.cpu_seconds(), server.commits()
    closed_s = send_all(server, protocol, bodies)
    until_closed = server.cpu_seconds() - before
    server.until_idle()
    cpu_s = server.cpu_seconds() - before
    points = args.hosts * args.timers * len(VALUES) * len(bodies[0])
    p99_s, share = commit_figures(commits, server.commits())
    committed = "" if p99_s is None else ", p99 of commits at most %s ms, %.2f %% within %s ms" % (
        show_ms(p99_s), share * 100, show_ms(COMMIT_INTERVAL_S))
    print("%s: %s: %s: %d points, %.0f for each CPU second (%.0f until closed), %.2f seconds until closed, RSS %d MiB%s" % (
        server.system, protocol, name, points, points / max(cpu_s, 0.01), points / max(until_closed, 0.01), closed_s, server.rss_bytes() >> 20,
        committed), flush=True)
    return {name + " points/CPU s": points / max(cpu_s, 0.01), name + " closed s": closed_s, name + " commit p99 ms": p99_s and p99_s * 1e3}


def bursts(server, protocol):
    """Latency of points of known series, without other senders and during bursts of new series."""
    # otherwise VictoriaMetrics would not show the newest half minute
    known = KnownPoints(server.port, server.http, parameters={"latency_offset": "1ms", "nocache": 1} if server.system == "victoriametrics" else {})
    commits, began = server.commits(), time.monotonic()
    time.sleep(QUIET_S)
    quiet_until, times, closed = time.monotonic(), [], []
    for number in range(args.bursts):
        now_s = int(time.time())
        parts = [[body(protocol, paths_of(connection, "BURST-%d" % number), 0, now_s)] for connection in range(CONNECTIONS)]
        time.sleep(1)
        start = time.monotonic()
        closed.append(send_all(server, protocol, parts))
        times.append((start, time.monotonic()))
    points, _, _ = known.stop()
    lost = sum(took_s is None for _, took_s in points)
    quiet = [took_s for start, took_s in points if took_s is not None and began <= start < quiet_until]
    # points that were under way during a part of a burst
    during = [took_s for start, took_s in points if took_s is not None and any(start < end and start + took_s > first for first, end in times)]
    found = {"known alone p50 ms": percentile(quiet, 0.5), "known alone p99 ms": percentile(quiet, 0.99)}
    found |= {"known p50 ms": percentile(during, 0.5), "known p99 ms": percentile(during, 0.99), "known max ms": max(during, default=None)}
    p99_s, share = commit_figures(commits, server.commits())
    print("%s: %s: %d bursts of %d new series, closed after %.2f s (median); a known point until it is read back: alone p50 %s p99 %s ms (%d points), "
          "during bursts p50 %s p99 %s max %s ms (%d points), %d lost%s" % (
              server.system, protocol, args.bursts, args.hosts * args.timers * len(VALUES), statistics.median(closed),
              *map(show_ms, list(found.values())[:2]), len(quiet), *map(show_ms, list(found.values())[2:]), len(during), lost,
              "" if p99_s is None else "; p99 of commits at most %s ms, %.2f %% within 100 ms" % (show_ms(p99_s), share * 100)), flush=True)
    return {name: took_s and took_s * 1e3 for name, took_s in found.items()}


def measure(system, program, protocol, bodies):
    with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as data:
        server = MeasuredServer(system, program, data)
        try:
            server.until_idle()
            found = phase(server, protocol, "new", [part[:1] for part in bodies])
            found |= phase(server, protocol, "known", [part[1:] for part in bodies])
            if args.bursts and system in ["floodmark", "victoriametrics"]:
                found |= bursts(server, protocol)
        finally:
            server.stop()
    return found


paths = [paths_of(connection) for connection in range(CONNECTIONS)]
# whole minutes, so that each point of a metric has a slot of its own in the files of carbon
begin_s = int(time.time()) // 60 * 60 - args.rounds * 60
found = {}
for run in range(args.runs):
    for protocol in protocols:
        bodies = [[body(protocol, part, round, begin_s + round * 60) for round in range(args.rounds)] for part in paths]
        for system, program in systems:
            if (system, protocol) != ("victoriametrics", "pickle"):
                rounds = min(args.rounds, args.carbon_rounds) if system == "carbon" else args.rounds
                figures = measure(system, program, protocol, [part[:rounds] for part in bodies])
                found.setdefault((system, protocol), []).append(figures)
print("\nmedians of %d runs, with the smallest and the largest" % args.runs)
for (system, protocol), runs in found.items():
    for name in runs[0]:
        values = sorted(run[name] for run in runs if run[name] is not None)
        if values:
            shown = tuple("%.0f" % value if value >= 1000 else "%.2f" % value for value in (statistics.median(values), values[0], values[-1]))
            print("%-16s %-10s %-22s %10s (%s to %s)" % (system, protocol, name, *shown))
