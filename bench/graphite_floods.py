"""What floods of Graphite's ports, and searches that select too much, do to a server and to known series.

    FLOODMARK=path/to/floodmark python3 bench/graphite_floods.py [--memory 512] [--duration 20] [--names 1000000]
                                                                [--names-memory 1024] [--json FILE] [FLOOD ...]

Each flood gets a fresh server in a memory control group of --memory MiB, and lasts for --duration seconds, or until everything is sent:

- "datagrams": two senders of UDP datagrams with points of new series and with text that is not a point, as fast as they can.
- "malformed lines": bytes that are not lines, lines that never end, points of new series, and points without a value.
- "connections": ten thousand connections with a point of a new series and an unfinished line, which stay open.
- "pickle bombs": nested lists, memoized objects, a long path that is repeated in each point, lists that contain each other.
- "braces": /render, /metrics/find and /metrics/expand with braces, sets and wildcards that stand for very much, over a tenth of --names metrics.
- "a million metrics": patterns that select all of --names metrics, in a group of --names-memory MiB.

Meanwhile, and without a flood ("nothing"), two senders each write a point of a known series as a line, ask with PromQL until it is there, and write the
next (bench/known_points.py). A row has the peak of the server's RSS, and the memory that it may use; the median, the p99 and the slowest time until such a
point is there; points that were not there within twenty seconds; how often the server closed a connection of the two, which then send the point again;
the p99 and the slowest time of the queries, and refused ones. The lines below have what was sent and how requests of the flood were answered, the points
that the server dropped by reason, what it counted of its connections and datagrams, and its refusals.

The senders of known points have a higher priority than the server (needs root), and the flooding clients the lowest.
"""

import argparse
import collections
import itertools
import json
import multiprocessing
import os
import random
import resource
import socket
import struct
import time
import urllib.error
import urllib.parse
import urllib.request

from control_group import ControlGroup
from floodmark_bench import Server, by_label, free_port, metric
from known_points import KnownPoints, percentile

parser = argparse.ArgumentParser()
parser.add_argument("--memory", type=int, default=512, help="MiB of the control group; 0: none")
parser.add_argument("--duration", type=int, default=20, help="seconds of each flood")
parser.add_argument("--names", type=int, default=1_000_000, help="metrics that patterns select")
parser.add_argument("--names-memory", type=int, default=1024, help="MiB of the control group for these metrics; 0: none")
parser.add_argument("--connections", type=int, default=10_000)
parser.add_argument("--json", help="file to which each row is appended as a line")
parser.add_argument("floods", nargs="*")
args = parser.parse_args()

FRAME = 1 << 20
# processes that open connections
CONNECTING = 2


class Target:
    """A server with Graphite's ports."""

    def __init__(self, prepare):
        self.lines, self.pickle = free_port(), free_port()
        address = "127.0.0.1:%d"
        ports = ["--graphite", address % self.lines, "--graphite-pickle", address % self.pickle]
        self.server = Server(*ports, "--carbon-metrics-interval", "never", prepare=prepare)
        self.url = self.server.url

    def create(self, count):
        """Metrics for patterns."""
        now_s = int(time.time())
        with socket.create_connection(("127.0.0.1", self.lines)) as connection:
            for first in range(0, count, 5000):
                names = range(first, min(first + 5000, count))
                connection.sendall("".join("x.y%d.a-long-name-of-a-metric-%d 1 %d\n" % (i % 300, i, now_s) for i in names).encode())
                # only some points may wait for the creation of their series
                while metric(self.url, "floodmark_graphite_queued_points") > 5000:
                    time.sleep(0.02)
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(60)
            connection.recv(1)


class Clients:
    """Processes of the lowest priority that run `work(target, number of the process, end, count)`; `count` counts by name."""

    def __init__(self, target, processes, work):
        self.counts = multiprocessing.Queue()
        end = time.monotonic() + args.duration
        self.processes = [multiprocessing.Process(target=self._run, args=(work, target, which, end)) for which in range(processes)]
        [process.start() for process in self.processes]

    def _run(self, work, target, which, end):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        count = collections.Counter()
        work(target, which, end, count)
        self.counts.put(count)

    def join(self):
        """The counts of all processes."""
        total = sum((self.counts.get() for _ in self.processes), collections.Counter())
        [process.join() for process in self.processes]
        return total


def datagrams(target, which, end, count):
    pick = random.Random(which)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        while time.monotonic() < end:
            now_s = int(time.time())
            text = "".join("udp.n%d 1 %d\n" % (pick.getrandbits(64), now_s) for _ in range(10)) + "no point\n"
            try:
                sender.sendto(text.encode(), ("127.0.0.1", target.lines))
                count["datagrams"] += 1
            except OSError:
                count["datagrams not taken"] += 1


def stream(port, blocks, end, count):
    """Sends blocks, on a new connection whenever the server has closed one."""
    while time.monotonic() < end:
        try:
            with socket.create_connection(("127.0.0.1", port), 10) as connection:
                count["connections"] += 1
                while time.monotonic() < end:
                    block = next(blocks)
                    connection.sendall(block)
                    count["KiB"] += len(block) >> 10
        except OSError:
            pass  # the server does not read such a stream to its end


def malformed(target, which, end, count):
    pick = random.Random(which)

    def block():
        now_s = int(time.time())
        return [
            lambda: b"x" * 65_536,
            lambda: bytes(byte | 0x20 for byte in pick.randbytes(65_536)),
            lambda: "".join("new.n%d 1 %d\n" % (pick.getrandbits(64), now_s) for _ in range(1000)).encode(),
            lambda: b"known.sender0.n7 nan %d\n" % now_s * 3000,
            lambda: pick.randbytes(65_536),
            lambda: b"\n no point \n" * 5000,
        ][which % 6]()

    stream(target.lines, iter(block, None), end, count)


def connections(target, which, end, count):
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    opened = []
    for number in range(which, args.connections, CONNECTING):
        try:
            connection = socket.create_connection(("127.0.0.1", target.lines), 10)
            opened.append(connection)
            count["connections"] += 1
            # a connection beyond the limit may be closed already
            connection.sendall(b"wide.n%d 1 %d\nwide.unfinished" % (number, time.time()))
        except OSError:
            count["connections without success"] += 1
    time.sleep(max(0, end - time.monotonic()))


def bombs(target, which, end, count):
    framed = lambda pickle: struct.pack("!L", len(pickle)) + pickle
    path = b"](X\x30\x75\x00\x00" + b"x" * 30_000 + b"K\x01K\x02\x86\x86q\x00" + b"h\x00" * 100_000 + b"e."
    kinds = [b"(" * FRAME, b"]" + b"\x94" * (FRAME - 1), path, b"]q\x00]q\x01(h\x00h\x01e" * 1000, b"cos\nsystem\n(S'true'\ntR."]
    stream(target.pickle, itertools.cycle([framed(kinds[which % len(kinds)])]), end, count)


def explosions():
    braces = "{a,b}" * 40
    return [
        braces, "{" * 300 + ",}" * 300, "x." + braces, "x.{y,%sz}.*" % ("a," * 9000), "{a,b,c,d}" * 7, "*" * 60_000, "[a-z]*" * 5000,
        "**." * 8 + "x", "{" * 60_000, "x.y{1,2,3}{0,1,2,3,4,5,6,7,8,9}{,0,1,2,3,4,5,6,7,8,9}.*",
    ]


def everything():
    return ["x.*.*", "**", "*.*.*", "x.y*.*metric*", "x.*.*a*o*e*m*"]


PATHS = ["/render", "/metrics/find", "/metrics/expand"]


def searches(globs_of):
    def ask(target, which, end, count):
        path, globs, slowest_s = PATHS[which % 3], globs_of(), 0
        targets = ["%s", "sumSeries(%s)", "sortByName(movingAverage(%s,5))"] if path == "/render" else ["%s"]
        for target_of, glob in itertools.cycle(itertools.product(targets, globs)):
            if time.monotonic() >= end:
                break
            name = "target" if path == "/render" else "query"
            form = urllib.parse.urlencode({name: target_of % glob, "from": "-10min", "format": "json"}).encode()
            began = time.monotonic()
            try:
                with urllib.request.urlopen(target.url + path, form, timeout=120) as answer:
                    status = answer.status
                    while answer.read(1 << 20):
                        pass
            except urllib.error.HTTPError as error:
                status = error.code
                error.read()
            except OSError:
                status = "no answer"
            count["%s: %s" % (path, status)] += 1
            slowest_s = max(slowest_s, time.monotonic() - began)
        count["slowest of client %d, ms" % which] = int(slowest_s * 1e3)

    return ask


FLOODS = {
    "nothing": lambda target: Clients(target, 1, lambda target, which, end, count: time.sleep(end - time.monotonic())),
    "datagrams": lambda target: Clients(target, 2, datagrams),
    "malformed lines": lambda target: Clients(target, 6, malformed),
    "connections": lambda target: Clients(target, CONNECTING, connections),
    "pickle bombs": lambda target: Clients(target, 5, bombs),
    "braces": lambda target: Clients(target, 6, searches(explosions)),
    "a million metrics": lambda target: Clients(target, 6, searches(everything)),
}
NAMES = {"braces": args.names // 10, "a million metrics": args.names}


def measure(name):
    group = ControlGroup(args.names_memory if name == "a million metrics" else args.memory)
    target = Target(group.enter)
    try:
        if name in NAMES:
            target.create(NAMES[name])
        known = KnownPoints(target.lines, target.server.address.split(":")[1])
        began = time.monotonic()
        sent = FLOODS[name](target).join()
        ended = time.monotonic()
        points, queries, reconnects = known.stop()
        alive = target.server.process.poll() is None and group.kills() == 0
        if not alive:
            raise SystemExit("%s: the server is gone" % name)
        times = [took_s for start, took_s in points if took_s is not None]
        asked = [took_s for start, took_s in queries if took_s is not None]
        budget = by_label(target.url, "floodmark_budget_limit_bytes")
        ms = lambda value: None if value is None else value * 1e3
        return {
            "flood": name,
            "seconds": ended - began,
            "peak_mib": target.server.rss_peak_bytes() >> 20,
            "memory_mib": int(sum(budget.values())) >> 20,
            "p50_ms": ms(percentile(times, 0.5)),
            "p99_ms": ms(percentile(times, 0.99)),
            "max_ms": ms(max(times, default=None)),
            "points": len(points),
            "lost": len(points) - len(times),
            "reconnects": reconnects,
            "query_p99_ms": ms(percentile(asked, 0.99)),
            "query_max_ms": ms(max(asked, default=None)),
            "queries_refused": len(queries) - len(asked),
            "sent": dict(sent),
            "dropped": by_label(target.url, "floodmark_graphite_dropped_points_total"),
            "counted": {what: metric(target.url, "floodmark_graphite_%s_total" % what) for what in COUNTED},
            "refusals": by_label(target.url, "floodmark_refusals_total"),
        }
    finally:
        target.server.stop()


COUNTED = ["points", "unread_datagrams", "overflowed_datagrams", "rejected_connections", "replaced_connections", "pauses"]
COLUMNS = ["flood", "seconds", "peak_mib", "memory_mib", "p50_ms", "p99_ms", "max_ms", "points", "lost", "reconnects", "query_p99_ms", "query_max_ms",
           "queries_refused"]


def counts(values):
    return ", ".join("%s %d" % pair for pair in values.items() if pair[1]) or "none"


def shown(value):
    return "-" if value is None else "%.1f" % value if isinstance(value, float) else str(value)


print("%-18s" % COLUMNS[0] + "".join("%16s" % column for column in COLUMNS[1:]))
for name in args.floods or list(FLOODS):
    row = measure(name)
    print("%-18s" % name + "".join("%16s" % shown(row[column]) for column in COLUMNS[1:]))
    print("    sent: %s; dropped: %s; counted: %s; refusals: %s" % (
        counts(row["sent"]), counts(row["dropped"]), counts(row["counted"]), counts(row["refusals"])), flush=True)
    if args.json:
        with open(args.json, "a") as file:
            file.write(json.dumps(row) + "\n")
