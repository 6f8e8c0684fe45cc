"""Cost of Graphite's protocols: first the points that create all series, then the other points.

    python3 bench/graphite.py [--hosts 1] [--timers 7824] [--rounds 20] [--runs 1] [--bursts 0] [--protocol plaintext]
                              [--alternate 0] [--visible 0] [--deny 0] SYSTEM PROGRAM [SYSTEM PROGRAM ...]

SYSTEM is floodmark, victoriametrics, go-carbon or carbon; PROGRAM its binary, or for carbon, a directory with a Python environment that has carbon,
whisper and, for --visible, graphite-web. Several systems are measured in turn, `--runs` times, and a table of medians follows. `--protocol` is
plaintext, pickle or both (plaintext,pickle); VictoriaMetrics has no pickle.

The metrics are timers of 15 values each, as in the account of a stress test of carbon caches. Four connections send a
round of all metrics as fast as the server takes it, then the next. All systems get the same bytes. Between the two phases the server has time
until its CPU use falls below a tenth of a core. CPU seconds are the server's, including work after the last byte.

The `seconds until closed` end when the server has closed all connections. Floodmark does this when all points are durable. For Floodmark, a row
also shows the p99 of `floodmark_graphite_commit_seconds` during the phase: the bound of the bucket that contains it, and the share of the bodies
that were durable within the commit interval of 100 ms.

With `--alternate N` and both protocols, a server gets points of known series alternately over both: N pairs of phases in each run, and every other pair begins
with the other protocol. Then follow the medians of both protocols, and of the ratio of a pair. Not for VictoriaMetrics.

With `--visible N`, then come N bursts of new series, of which a query asks again and again until all are there. It waits between two queries as long as the
last one took, so that it does not take all of a processor. Measured are the seconds from the first byte until the end of the first query that finds all
names, and the time of this query. Floodmark and VictoriaMetrics are asked with PromQL for the number of points, go-carbon through its carbonserver
and carbon through graphite-web (with carbon's cache) for the names, and when all are there, for the points of one metric of each timer. Both carbons
find a name once it has a file. CPU seconds of graphite-web are not counted. In a burst, a carbon writes files of 17 KiB for each series.

With `--deny N`, Floodmark has a list of N expressions (graphite_deny), none of which is found in a name that is sent.

With `--bursts N`, then come N bursts, each of as many new series as above. Meanwhile, and before, two senders each write a point of a known series
as a line, ask with PromQL until it is there, and write the next (bench/known_points.py). Not for go-carbon and carbon, which have no PromQL. VictoriaMetrics
shows new points only after some seconds, also without other senders.
"""

import argparse
import json
import pickle
import socket
import statistics
import struct
import tempfile
import threading
import time
import urllib.parse
import urllib.request

from carbons import CARBON, SCHEMAS, Server, carbon_command, go_carbon, graphite_web, write_configuration
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
# until a burst counts as never readable
VISIBLE_PATIENCE_S = 600

parser = argparse.ArgumentParser()
parser.add_argument("systems", nargs="+", metavar="SYSTEM PROGRAM")
parser.add_argument("--hosts", type=int, default=1)
parser.add_argument("--timers", type=int, default=7824, help="timers of each host")
parser.add_argument("--rounds", type=int, default=20, help="points of each metric")
parser.add_argument("--carbon-rounds", type=int, default=6, help="points of each metric for carbon, which is slower")
parser.add_argument("--runs", type=int, default=1)
parser.add_argument("--bursts", type=int, default=0, help="bursts of new series, with senders of known ones beside them")
parser.add_argument("--protocol", default="plaintext")
parser.add_argument("--alternate", type=int, default=0, help="pairs of phases of known series on one server, over both protocols alternately")
parser.add_argument("--visible", type=int, default=0, help="bursts of new series, until a query finds all of them")
parser.add_argument("--deny", type=int, default=0, help="expressions in Floodmark's list of denied names")
args = parser.parse_args()
systems = list(zip(args.systems[::2], args.systems[1::2]))
protocols = args.protocol.split(",")
if len(args.systems) % 2 or any(name not in SYSTEMS for name, _ in systems) or set(protocols) - {"plaintext", "pickle"}:
    parser.error("pairs of a system (%s) and its program are needed, and the protocols plaintext, pickle" % ", ".join(SYSTEMS))
if args.alternate and sorted(protocols) != ["pickle", "plaintext"]:
    parser.error("--alternate needs --protocol plaintext,pickle")


class MeasuredServer(Server):
    """A server that speaks Graphite's protocols on a fresh directory."""

    def __init__(self, system, program, data):
        self.system, self.program, self.data = system, program, data
        self.port, self.pickle, self.http, self.query = free_port(), free_port(), free_port(), free_port()
        self.url = "http://127.0.0.1:%d" % self.http
        carbon = CARBON.format(data=data, lines=self.port, pickle=self.pickle, query=self.query)
        carbonserver = self.http if args.visible else None
        write_configuration(data, storage_schemas=SCHEMAS, carbon=carbon,
                            go_carbon=go_carbon(data, lines=self.port, pickle=self.pickle, carbonserver=carbonserver))
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

    def get(self, path, **parameters):
        url = "%s%s?%s" % (self.url, path, urllib.parse.urlencode(parameters, doseq=True))
        with urllib.request.urlopen(url, timeout=VISIBLE_PATIENCE_S) as answer:
            return json.load(answer)

    def readable(self, prefix, now_s):
        """How many of a burst's series a query returns."""
        if self.system in ["floodmark", "victoriametrics"]:
            parameters = {"query": 'count({__name__=~"%s[.].*"})' % prefix, "time": now_s + 1, **self.at_once()}
            result = self.get("/api/v1/query", **parameters)["data"]["result"]
            return int(float(result[0]["value"][1])) if result else 0
        everything = prefix + ".host-*.*.*"
        render = {"target": prefix + ".host-*.*.p99", "from": now_s - 120, "until": now_s + 60, "format": "json", "noCache": 1}
        if self.system == "carbon":
            names = len(self.get("/metrics/expand", query=everything, leavesOnly=1)["results"])
        else:
            found = self.get("/metrics/find/", query=everything, format="json")["metrics"]
            names = sum(match.get("isLeaf", False) for pattern in found for match in pattern["matches"])
        if names < series_of_burst():
            return names
        answer = self.get("/render/", **render)
        if self.system == "carbon":
            with_point = sum(any(value is not None for value, _ in series["datapoints"]) for series in answer)
        else:
            with_point = sum(not all(series["isAbsent"]) for series in answer["metrics"])
        return names if with_point == args.hosts * args.timers else with_point

    def at_once(self):
        """Parameters of queries: otherwise VictoriaMetrics would not show the newest half minute."""
        return {"latency_offset": "1ms", "nocache": 1} if self.system == "victoriametrics" else {}

    def commits(self):
        """Cumulative counts of bodies by upper bound of the time until they were durable. Empty for others than Floodmark."""
        return buckets(self.url, COMMITS) if self.system == "floodmark" else {}


def series_of_burst():
    return args.hosts * args.timers * len(VALUES)


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
    points = series_of_burst() * len(bodies[0])
    p99_s, share = commit_figures(commits, server.commits())
    committed = "" if p99_s is None else ", p99 of commits at most %s ms, %.2f %% within %s ms" % (
        show_ms(p99_s), share * 100, show_ms(COMMIT_INTERVAL_S))
    print("%s: %s: %s: %d points, %.0f for each CPU second (%.0f until closed), %.2f seconds until closed, RSS %d MiB%s" % (
        server.system, protocol, name, points, points / max(cpu_s, 0.01), points / max(until_closed, 0.01), closed_s, server.rss_bytes() >> 20,
        committed), flush=True)
    return {name + " points/CPU s": points / max(cpu_s, 0.01), name + " closed s": closed_s, name + " commit p99 ms": p99_s and p99_s * 1e3}


def bursts(server, protocol):
    """Latency of points of known series, without other senders and during bursts of new series."""
    known = KnownPoints(server.port, server.http, parameters=server.at_once())
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
              server.system, protocol, args.bursts, series_of_burst(), statistics.median(closed),
              *map(show_ms, list(found.values())[:2]), len(quiet), *map(show_ms, list(found.values())[2:]), len(during), lost,
              "" if p99_s is None else "; p99 of commits at most %s ms, %.2f %% within 100 ms" % (show_ms(p99_s), share * 100)), flush=True)
    return {name: took_s and took_s * 1e3 for name, took_s in found.items()}


def until_visible(server, protocol, number):
    """Sends a burst. Returns the seconds until a query has found all of it (`None` if none did), those that this query took, and those until all
    connections were closed."""
    prefix, now_s, error, closed = "VISIBLE-%d" % number, int(time.time()), None, []
    parts = [[body(protocol, paths_of(connection, prefix), 0, now_s)] for connection in range(CONNECTIONS)]
    sender = threading.Thread(target=lambda: closed.append(send_all(server, protocol, parts)))
    start, found = time.monotonic(), 0
    sender.start()
    while True:
        began = time.monotonic()
        try:
            found = server.readable(prefix, now_s)
        except OSError as problem:
            error = problem
        ended = time.monotonic()
        if found == series_of_burst():
            sender.join()
            return ended - start, ended - began, closed[0]
        if ended - start > VISIBLE_PATIENCE_S:
            print("%s: only %d series are readable; the last error: %s" % (server.system, found, error), flush=True)
            sender.join()
            return None, ended - began, closed[0]
        time.sleep(max(0.02, ended - began))


def visible(server, protocol):
    """Seconds until whole bursts are readable."""
    reader = graphite_web(server.program, server.data, server.http, server.query) if server.system == "carbon" else None
    times = []
    try:
        for number in range(args.visible):
            server.until_idle()
            times.append(until_visible(server, protocol, number))
            print("%s: %s: burst of %d new series: all readable after %s s (a query of %.2f s), closed after %.2f s" % (
                server.system, protocol, series_of_burst(), "-" if times[-1][0] is None else "%.2f" % times[-1][0], *times[-1][1:]), flush=True)
    finally:
        if reader:
            reader.stop()
    seconds = [readable_s for readable_s, _, _ in times if readable_s is not None]
    return {"burst readable s": statistics.median(seconds) if seconds else None, "its query s": statistics.median(asked_s for _, asked_s, _ in times)}


def bodies_of(protocol, begin_s, rounds):
    """What each connection sends: a point of each metric and minute."""
    return [[body(protocol, part, round, begin_s + round * 60) for round in range(rounds)] for part in paths]


def measure(system, program, protocol, run):
    """Figures of a fresh server by protocol."""
    rounds = min(args.rounds, args.carbon_rounds) if system == "carbon" else args.rounds
    phases = 2 * args.alternate if system != "victoriametrics" else 0
    # whole minutes, so that each point of a metric has a slot of its own in the files of carbon
    begin_s = int(time.time()) // 60 * 60 - (rounds * max(phases, 1) + 1) * 60
    with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as data:
        server = MeasuredServer(system, program, data)
        try:
            server.until_idle()
            found = {protocol: phase(server, protocol, "new", bodies_of(protocol, begin_s, 1))}
            begin_s += 60
            for number in range(phases):
                # plaintext, pickle, pickle, plaintext, ...; the next run begins with pickle
                over = protocols[(number // 2 + number + run) % 2]
                figures = phase(server, over, "known", bodies_of(over, begin_s + number * rounds * 60, rounds))
                found.setdefault(over, {}).setdefault(ALTERNATED, []).append(figures["known points/CPU s"])
            if not phases:
                found[protocol] |= phase(server, protocol, "known", bodies_of(protocol, begin_s, rounds - 1))
            if args.bursts and system in ["floodmark", "victoriametrics"]:
                found[protocol] |= bursts(server, protocol)
            if args.visible:
                found[protocol] |= visible(server, protocol)
        finally:
            server.stop()
    return found


def three(values):
    """The median, the smallest and the largest."""
    return tuple("%.0f" % value if value >= 1000 else "%.2f" % value for value in (statistics.median(values), min(values), max(values)))


def show_pairs(system, runs):
    """What the phases of known series cost over both protocols. `runs` are the figures of each run by protocol."""
    over = {protocol: [value for run in runs for value in run[protocol][ALTERNATED]] for protocol in protocols}
    for protocol, values in over.items():
        print("%-16s %-10s %-22s %10s (%s to %s)" % (system, protocol, "alternately, points/CPU s", *three(values)))
    ratios = [one / other for one, other in zip(over["pickle"], over["plaintext"])]
    print("%-16s %d pairs: ratio of pickle to plaintext %s (%s to %s); pickle is higher in %d" % (
        system, len(ratios), *three(ratios), sum(ratio > 1 for ratio in ratios)))


ALTERNATED = "by turns"
paths = [paths_of(connection) for connection in range(CONNECTIONS)]
found = {}
for run in range(args.runs):
    for protocol in protocols:
        for system, program in systems:
            # a server that gets both by turns is started once in a run, and creates the series over the protocols in turn
            both = args.alternate and system != "victoriametrics"
            if protocol == protocols[run % 2] if both else (system, protocol) != ("victoriametrics", "pickle"):
                found.setdefault(system, []).append(measure(system, program, protocol, run))
print("\nmedians of %d runs, with the smallest and the largest" % args.runs)
for system, runs in found.items():
    for protocol in protocols:
        figures = [run[protocol] for run in runs if protocol in run]
        for name in dict.fromkeys(name for each in figures for name in each if name != ALTERNATED):
            values = [each[name] for each in figures if each.get(name) is not None]
            if values:
                print("%-16s %-10s %-22s %10s (%s to %s)" % (system, protocol, name, *three(values)))
    if args.alternate and system != "victoriametrics":
        show_pairs(system, runs)
