"""Time of Graphite's /metrics/find over many metric names, and the memory of their index.

    FLOODMARK=path/to/floodmark python3 bench/find.py [--names 10000000] [--memory 12GiB] [--runs 200]

Sends one point of each metric as lines of text, waits until all series exist, and asks once, so that the index is built. Then asks for
patterns, each with other numbers in each run. A row has the most nodes of an answer, and the median, the p99 and the slowest time of an
answer. Meanwhile, a point of a known series is written ten times a second; the last line has the p99 of these writes.
"""

import argparse
import os
import random
import socket
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.parse
import urllib.request

from floodmark_bench import FLOODMARK, Process, free_port

parser = argparse.ArgumentParser()
parser.add_argument("--names", type=int, default=10_000_000)
parser.add_argument("--memory", default="12GiB", help="of the server")
parser.add_argument("--runs", type=int, default=200, help="requests of each pattern")
args = parser.parse_args()

# 100 metrics of each host, 200 hosts of each rack, the other levels by size
METRICS, HOSTS = 100, 200
RACKS = max(1, args.names // (METRICS * HOSTS))
CONNECTIONS = 4

PATTERNS = {
    "one metric": lambda pick: "dc.rack%d.host%d.cpu.metric%d" % (pick(RACKS), pick(HOSTS), pick(METRICS)),
    "the metrics of a host": lambda pick: "dc.rack%d.host%d.cpu.*" % (pick(RACKS), pick(HOSTS)),
    "a metric of a rack's hosts": lambda pick: "dc.rack%d.*.cpu.metric%d" % (pick(RACKS), pick(METRICS)),
    "the racks": lambda pick: "dc.*",
    "a host of each rack": lambda pick: "dc.*.host%d" % pick(HOSTS),
    "ten hosts by a set": lambda pick: "dc.rack%d.host1[0-9].cpu.metric{1,2,3}" % pick(RACKS),
    "a metric of all hosts of ten racks": lambda pick: "dc.rack1?.*.cpu.metric%d" % pick(METRICS),
}


class Server(Process):
    def __init__(self, data):
        self.http, self.graphite = free_port(), free_port()
        command = [FLOODMARK, "serve", "--data-dir", data, "--http", "127.0.0.1:%d" % self.http, "--graphite", "127.0.0.1:%d" % self.graphite,
                   "--memory", args.memory, "--self-monitoring-interval", "never", "--carbon-metrics-interval", "never"]
        self.process = subprocess.Popen(command, stderr=open(data + ".log", "w"))
        while True:
            try:
                return self.get("/-/ready") and None
            except OSError:
                if self.process.poll() is not None:
                    raise SystemExit(open(data + ".log").read()[-2000:])
                time.sleep(0.05)

    def get(self, path):
        return urllib.request.urlopen("http://127.0.0.1:%d%s" % (self.http, path), timeout=300).read()

    def metric(self, name):
        lines = self.get("/metrics").decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((name + " ", name + "{")))


def send(server, which):
    """Sends the names of every CONNECTIONS-th rack, and waits until the server has stored them and closes the connection."""
    now_s = int(time.time())
    with socket.create_connection(("127.0.0.1", server.graphite)) as connection:
        for rack in range(which, RACKS, CONNECTIONS):
            for host in range(HOSTS):
                name = "dc.rack%d.host%d.cpu.metric" % (rack, host)
                connection.sendall("".join("%s%d 1 %d\n" % (name, metric, now_s) for metric in range(METRICS)).encode())
                # only some points may wait for the creation of their series, and what exceeds this is dropped
                while host % 20 == 0 and server.metric("floodmark_graphite_queued_points") > 20_000:
                    time.sleep(0.02)


def write_known(server, over, times_s):
    """Writes a point of a known series ten times a second, over HTTP, until `over`."""
    while not over.wait(0.1):
        body = b"known.series 1 %d\n" % time.time()
        began = time.monotonic()
        urllib.request.urlopen(urllib.request.Request("http://127.0.0.1:%d/api/v1/graphite" % server.http, data=body), timeout=60).read()
        times_s.append(time.monotonic() - began)


def p99(values):
    return sorted(values)[int(0.99 * (len(values) - 1))]


with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as folder:
    server = Server(os.path.join(folder, "data"))
    try:
        began = time.monotonic()
        threads = [threading.Thread(target=send, args=(server, which)) for which in range(CONNECTIONS)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        while server.metric("floodmark_graphite_queued_series") > 0:
            time.sleep(0.2)
        created, dropped = server.metric("floodmark_head_series_created_total"), server.metric("floodmark_graphite_dropped_points_total")
        print("%d series after %.0f s, %d points dropped, RSS %d MiB" % (created, time.monotonic() - began, dropped, server.rss_bytes() >> 20), flush=True)
        began = time.monotonic()
        server.get("/metrics/find?query=dc.*")
        print("the first search took %.2f s, without the index" % (time.monotonic() - began))
        while server.metric("floodmark_paths_names") < created:
            time.sleep(0.2)
        bytes_used = server.metric('floodmark_budget_part_used_bytes{account="head",part="paths"}')
        print("index: built within %.1f s, %.1f bytes a name" % (time.monotonic() - began, bytes_used / created), flush=True)
        print("%-36s %10s %10s %10s %10s" % ("pattern", "nodes", "median ms", "p99 ms", "max ms"))
        random.seed(1)
        over, known_s = threading.Event(), []
        writer = threading.Thread(target=write_known, args=(server, over, known_s))
        writer.start()
        scans = server.metric("floodmark_paths_scans_total")
        for name, pattern in PATTERNS.items():
            times_ms, nodes = [], 0
            for _ in range(args.runs):
                path = "/metrics/find?format=json&query=" + urllib.parse.quote(pattern(random.randrange))
                began = time.monotonic()
                answer = server.get(path)
                times_ms.append((time.monotonic() - began) * 1e3)
                nodes = max(nodes, answer.count(b'"path"'))
            print("%-36s %10d %10.2f %10.2f %10.2f" % (name, nodes, statistics.median(times_ms), p99(times_ms), max(times_ms)), flush=True)
        over.set()
        writer.join()
        print("searches without the index: %d; p99 of %d writes of a known series: %.1f ms" % (
            server.metric("floodmark_paths_scans_total") - scans, len(known_s), p99(known_s) * 1e3))
    finally:
        server.process.kill()
        server.process.wait()
