"""Time of Graphite's /metrics/find over many metric names, and the memory of their index.

    FLOODMARK=path/to/floodmark python3 bench/find.py [--names 10000000] [--memory 12GiB] [--runs 200]

Sends one point of each metric as lines of text, waits until all series exist, and asks once, so that the index is built. Then asks for
patterns, each with other numbers in each run. A row has the most nodes of an answer, and the median, the p99 and the slowest time of an
answer. Meanwhile, a point of a known series is written ten times a second; the last line has the p99 of these writes.
"""

import argparse
import random
import socket
import statistics
import threading
import time
import urllib.parse
import urllib.request

from floodmark_bench import Server, free_port

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


GRAPHITE = ("127.0.0.1", free_port())


def get(server, path):
    return urllib.request.urlopen(server.url + path, timeout=300).read()


def metric(server, name):
    lines = get(server, "/metrics").decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((name + " ", name + "{")))


def send(server, which):
    """Sends the names of every CONNECTIONS-th rack, and waits until the server has stored them and closes the connection."""
    now_s = int(time.time())
    with socket.create_connection(GRAPHITE) as connection:
        for rack in range(which, RACKS, CONNECTIONS):
            for host in range(HOSTS):
                name = "dc.rack%d.host%d.cpu.metric" % (rack, host)
                connection.sendall("".join("%s%d 1 %d\n" % (name, number, now_s) for number in range(METRICS)).encode())
                # only some points may wait for the creation of their series, and what exceeds this is dropped
                while host % 20 == 0 and metric(server, "floodmark_graphite_queued_points") > 20_000:
                    time.sleep(0.02)
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)


def write_known(server, over, times_s):
    """Writes a point of a known series ten times a second, over HTTP, until `over`."""
    while not times_s or not over.wait(0.1):
        body = b"known.series 1 %d\n" % time.time()
        began = time.monotonic()
        urllib.request.urlopen(urllib.request.Request(server.url + "/api/v1/graphite", data=body), timeout=60).read()
        times_s.append(time.monotonic() - began)


def p99(values):
    return sorted(values)[int(0.99 * (len(values) - 1))]


server = Server("--graphite", "%s:%d" % GRAPHITE, "--memory", args.memory, "--carbon-metrics-interval", "never")
began = time.monotonic()
threads = [threading.Thread(target=send, args=(server, which)) for which in range(CONNECTIONS)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
while metric(server, "floodmark_graphite_queued_series") > 0:
    time.sleep(0.2)
created, dropped = metric(server, "floodmark_head_series_created_total"), metric(server, "floodmark_graphite_dropped_points_total")
print("%d series after %.0f s, %d points dropped, RSS %d MiB" % (created, time.monotonic() - began, dropped, server.rss_bytes() >> 20), flush=True)
began = time.monotonic()
get(server, "/metrics/find?query=dc.*")
print("the first search took %.2f s, without the index" % (time.monotonic() - began))
while metric(server, "floodmark_paths_names") < created:
    time.sleep(0.2)
bytes_used = metric(server, 'floodmark_budget_part_used_bytes{account="head",part="paths"}')
print("index: built within %.1f s, %.1f bytes a name" % (time.monotonic() - began, bytes_used / created), flush=True)
print("%-36s %10s %10s %10s %10s" % ("pattern", "nodes", "median ms", "p99 ms", "max ms"))
random.seed(1)
over, known_s = threading.Event(), []
writer = threading.Thread(target=write_known, args=(server, over, known_s))
writer.start()
scans = metric(server, "floodmark_paths_scans_total")
for name, pattern in PATTERNS.items():
    times_ms, nodes = [], 0
    for _ in range(args.runs):
        path = "/metrics/find?format=json&query=" + urllib.parse.quote(pattern(random.randrange))
        began = time.monotonic()
        answer = get(server, path)
        times_ms.append((time.monotonic() - began) * 1e3)
        nodes = max(nodes, answer.count(b'"path"'))
    print("%-36s %10d %10.2f %10.2f %10.2f" % (name, nodes, statistics.median(times_ms), p99(times_ms), max(times_ms)), flush=True)
over.set()
writer.join()
print("searches without the index: %d; p99 of %d writes of a known series: %.1f ms" % (
    metric(server, "floodmark_paths_scans_total") - scans, len(known_s), p99(known_s) * 1e3))
server.stop()
