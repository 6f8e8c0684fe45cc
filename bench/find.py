"""Time of Graphite's /metrics/find over many metric names, and the memory of their index.

    FLOODMARK=path/to/floodmark python3 bench/find.py [--names 10000000] [--memory 12GiB] [--runs 200]

Sends one point of each metric as lines of text, waits until all series exist, and asks once, so that the index is built. Then asks for
patterns, each with other numbers in each run. A row has the largest number of nodes in an answer, and the median, the p99 and the slowest
time of an answer. Meanwhile, a point of a known series is written ten times a second; a line has the p99 of these writes.

Then follow patterns that visit about 10^4, 10^5 and 10^6 nodes (of ten million names), once with an answer of nearly all of them, and once with a
hundredth. A row has the visited nodes, calculated from the names, and the time per visited node. Finally, searches that visit every name are
canceled while they run, at a random time in the first half of their duration: the times until the request to cancel was answered, and until the search had ended.
"""

import argparse
import itertools
import json
import random
import socket
import statistics
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

import floodmark_bench
from floodmark_bench import Server, free_port
from known_points import percentile

parser = argparse.ArgumentParser()
parser.add_argument("--names", type=int, default=10_000_000)
parser.add_argument("--memory", default="12GiB", help="of the server")
parser.add_argument("--runs", type=int, default=200, help="requests of each pattern")
parser.add_argument("--large-runs", type=int, default=10, help="requests of each pattern that visits many nodes")
parser.add_argument("--cancels", type=int, default=10, help="canceled searches of each kind")
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


# patterns of racks, and the racks that they select. With fewer than four million names, some of these racks do not exist, and rows visit fewer nodes.
LARGE = {
    "10^4": ("rack7", range(RACKS)[7:8]),
    "10^5": ("rack1[0-9]", range(RACKS)[10:20]),
    "10^6": ("rack1[0-9][0-9]", range(RACKS)[100:200]),
}
SOME_HOSTS = ("host[0-9][0-9]", 90)
ANSWERS = {"nearly all": "metric*", "a hundredth": "*c77"}

GRAPHITE = ("127.0.0.1", free_port())


def get(server, path):
    return urllib.request.urlopen(server.url + path, timeout=300).read()


def metric(server, name):
    return floodmark_bench.metric(server.url, name)


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


def large(name, answer):
    """A pattern, and the number of nodes that it visits. A search seeks to the literal prefix of a component, and visits all nodes that begin with
    it."""
    racks, selected = LARGE[name]
    hosts, hosts_selected = SOME_HOSTS
    beginning = racks.split("[")[0]
    racks_visited = 1 if racks == beginning else sum(("rack%d" % rack).startswith(beginning) for rack in range(RACKS))
    visited = 1 + racks_visited + len(selected) * (HOSTS + hosts_selected * (1 + METRICS))
    return "dc.%s.%s.cpu.%s" % (racks, hosts, ANSWERS[answer]), visited


def running(server, path):
    """Identifiers of the searches that run."""
    queries = json.loads(get(server, "/api/v1/admin/queries"))["data"]
    return [query["id"] for query in queries if query["path"] == path and query["state"] == "running"]


def cancel(server, path, parameters, after_s):
    """Starts a search and cancels it this long after it is listed. Returns the seconds until the request to cancel was answered and until the search had ended, the status of
    the search, or `None` if it had ended before."""
    ended = {}

    def search():
        url = server.url + path + "?" + urllib.parse.urlencode(parameters)
        try:
            with urllib.request.urlopen(url, timeout=300) as answer:
                ended["status"] = answer.status
                while answer.read(1 << 20):
                    pass
        except urllib.error.HTTPError as error:
            ended["status"] = error.code
            error.read()
        except OSError as error:
            ended["status"] = repr(error)
        ended["at"] = time.monotonic()

    searcher = threading.Thread(target=search)
    searcher.start()
    ids = []
    while searcher.is_alive() and not ids:
        ids = running(server, path)
    time.sleep(after_s)
    began = time.monotonic()
    try:
        request = urllib.request.Request("%s/api/v1/admin/queries/%s/cancel" % (server.url, ids[0]), data=b"", method="POST")
        urllib.request.urlopen(request, timeout=60).read()
    except (IndexError, urllib.error.HTTPError):
        searcher.join()
        return None  # it was too fast
    answered = time.monotonic()
    searcher.join()
    return answered - began, max(0, ended["at"] - began), ended["status"]


def p99(values):
    return percentile(values, 0.99)


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

print("%-24s %10s %10s %10s %10s %10s %12s" % ("large patterns", "visited", "nodes", "median ms", "p99 ms", "max ms", "ns per node"))
for name, answer in itertools.product(LARGE, ANSWERS):
    pattern, visited = large(name, answer)
    times_ms, nodes = [], 0
    for _ in range(args.large_runs):
        began = time.monotonic()
        try:
            nodes = get(server, "/metrics/find?format=json&query=" + urllib.parse.quote(pattern)).count(b'"path"')
        except urllib.error.HTTPError as error:
            nodes = "%d" % error.code
        times_ms.append((time.monotonic() - began) * 1e3)
    median_ms = statistics.median(times_ms)
    print("%-24s %10d %10s %10.2f %10.2f %10.2f %12.0f" % (
        name + ", " + answer, visited, nodes, median_ms, p99(times_ms), max(times_ms), median_ms * 1e6 / visited), flush=True)

SEARCHES = {
    "/metrics/find": {"query": "dc.*.*.*.*7*", "format": "json"},
    "/render": {"target": "countSeries(dc.*.*.*.*7*)", "from": "-10min", "format": "json"},
}
for path, parameters in SEARCHES.items():
    began = time.monotonic()
    try:
        status = urllib.request.urlopen(server.url + path + "?" + urllib.parse.urlencode(parameters), timeout=300).status
    except urllib.error.HTTPError as error:
        status = error.code
    whole_s = time.monotonic() - began
    canceled = [cancel(server, path, parameters, random.uniform(0, whole_s / 2)) for _ in range(args.cancels)]
    times = [times for times in canceled if times]
    print("%s of everything: %.2f s (status %s) unless canceled; %d of %d canceled while running" % (path, whole_s, status, len(times), len(canceled)), end="")
    if times:
        answered, ended, statuses = zip(*times)
        print(": answered within %.1f ms, ended within %.1f ms (medians), %.1f ms (slowest); statuses %s" % (
            statistics.median(answered) * 1e3, statistics.median(ended) * 1e3, max(ended) * 1e3, sorted(set(map(str, statuses)))), end="")
    print(flush=True)
server.stop()
