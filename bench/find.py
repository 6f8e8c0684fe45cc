"""Time of Graphite's /metrics/find over many metric names, and the memory of their index.

    FLOODMARK=path/to/floodmark python3 bench/find.py [--names 10000000] [--memory 12GiB] [--runs 200]
                                                                        [--beside GO_CARBON CARBONAPI]

Sends one point of each metric as lines of text, waits until all series exist, and asks once, so that the index is built. Then asks for
patterns, each with other numbers in each run. A row has the largest number of nodes in an answer, and the median, the p99 and the slowest
time of an answer. Meanwhile, a point of a known series is written ten times a second; a line has the p99 of these writes.

Then follow patterns that visit about 10^4, 10^5 and 10^6 nodes (of ten million names), once with an answer of nearly all of them, and once with a
hundredth. A row has the visited nodes, calculated from the names, and the time per visited node. Finally, searches that visit every name are
canceled while they run, at a random time in the first half of their duration: the times until the request to cancel was answered, and until the search had ended.

With --beside, a go-carbon with an index of names (`trie-index`) has the same names, and is asked through carbonapi, without caches, alternately with Floodmark: each
pattern goes to both, and every other time to go-carbon first. Both answer with `format=protobuf`, which lists the paths of all nodes. (JSON of carbonapi
has one node for all that have the same last component.) Each name is a file. Those of a host are links to one Whisper file that has no points, because a
search reads only names.
"""

import argparse
import atexit
import itertools
import json
import os
import random
import shutil
import socket
import statistics
import struct
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

import carbons
import floodmark_bench
from floodmark_bench import Server, free_port
from known_points import percentile

parser = argparse.ArgumentParser()
parser.add_argument("--names", type=int, default=10_000_000)
parser.add_argument("--memory", default="12GiB", help="of the server")
parser.add_argument("--runs", type=int, default=200, help="requests of each pattern")
parser.add_argument("--large-runs", type=int, default=10, help="requests of each pattern that visits many nodes")
parser.add_argument("--cancels", type=int, default=10, help="canceled searches of each kind")
parser.add_argument("--beside", nargs=2, metavar=("GO_CARBON", "CARBONAPI"), help="binaries of systems that have the same names")
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


class Floodmark:
    name = "floodmark"

    def __init__(self, server):
        self.base = server.url


class GoCarbon:
    """go-carbon with an index of the same names, and carbonapi."""

    name = "go-carbon"

    def __init__(self):
        self.data, self.servers = tempfile.mkdtemp(prefix="floodmark-bench-"), []
        atexit.register(self._end)
        began = time.monotonic()
        self._make_files(os.path.join(self.data, "whisper"))
        print("go-carbon: %d files made in %.0f s" % (RACKS * HOSTS * METRICS, time.monotonic() - began), flush=True)
        carbonserver, http = free_port(), free_port()
        carbons.write_configuration(self.data, storage_schemas=carbons.SCHEMAS, carbonapi=carbons.CARBONAPI.format(http=http, carbonserver=carbonserver),
                                    go_carbon=carbons.go_carbon(self.data, carbonserver=carbonserver, trie=True))
        go_carbon, carbonapi = args.beside
        began = time.monotonic()
        first = carbons.Server([go_carbon, "-config", self.data + "/conf/go-carbon.conf"], self.data, carbonserver)
        self.servers.append(first)
        self._wait("http://127.0.0.1:%d/metrics/find/?query=dc&format=json" % carbonserver)
        print("go-carbon: index built within %.1f s, RSS %d MiB" % (time.monotonic() - began, first.rss_bytes() >> 20), flush=True)
        self.servers.append(carbons.Server([carbonapi, "-config", self.data + "/conf/carbonapi.conf"], self.data, http))
        self.base = "http://127.0.0.1:%d" % http

    @staticmethod
    def _make_files(folder):
        for rack, host in itertools.product(range(RACKS), range(HOSTS)):
            path = os.path.join(folder, "dc", "rack%d" % rack, "host%d" % host, "cpu", "metric")
            os.makedirs(os.path.dirname(path))
            with open(path + "0.wsp", "wb") as file:
                # average of a minute, an hour; one archive
                file.write(struct.pack("!2LfL3L", 1, 3600, 0.5, 1, 28, 60, 60))
                file.truncate(28 + 60 * 12)
            for number in range(1, METRICS):
                os.link(path + "0.wsp", path + "%d.wsp" % number)

    @staticmethod
    def _wait(url):
        """Until the index is there: before, go-carbon answers 503."""
        while True:
            try:
                return urllib.request.urlopen(url, timeout=600).read()
            except OSError:
                time.sleep(0.2)

    def stop(self):
        print("go-carbon and carbonapi: RSS %s MiB at the end" % " and ".join("%d" % (server.rss_bytes() >> 20) for server in self.servers))
        self._end()

    def _end(self):
        [server.stop() for server in self.servers]
        shutil.rmtree(self.data, ignore_errors=True)


def nodes_of(answer):
    """Number of nodes in an answer."""
    if not args.beside:
        return answer.count(b'"path"')
    # fields of carbonapi_v2_pb.GlobResponse: 1 is the pattern, 2 a node
    nodes, at = 0, 0
    while at < len(answer):
        nodes += answer[at] >> 3 == 2
        length, shift, at = 0, 0, at + 1
        while True:
            length, shift, at = length | (answer[at] & 0x7F) << shift, shift + 7, at + 1
            if not answer[at - 1] & 0x80:
                break
        at += length
    return nodes


def ask_all(pattern, run, times_ms):
    """Asks all systems for a pattern and adds the time of each to a list in `times_ms`, by name. Returns the number of nodes by name; instead
    of it, the status of an error, or "no answer", as from carbonapi if nothing is found."""
    found = {}
    for system in systems if run % 2 == 0 else systems[::-1]:
        url = "%s/metrics/find?format=%s&query=%s" % (system.base, FORMAT, urllib.parse.quote(pattern))
        began = time.monotonic()
        try:
            answer = urllib.request.urlopen(url, timeout=300).read()
        except OSError as error:
            answer = "status %d" % error.code if isinstance(error, urllib.error.HTTPError) else "no answer"
        times_ms[system.name].append((time.monotonic() - began) * 1e3)
        found[system.name] = answer if isinstance(answer, str) else nodes_of(answer)
    return found


def most(counts):
    """The largest number of nodes, or the first error."""
    errors = [count for count in counts if isinstance(count, str)]
    return errors[0] if errors else max(counts)


FORMAT = "protobuf" if args.beside else "json"
server = Server("--graphite", "%s:%d" % GRAPHITE, "--memory", args.memory, "--carbon-metrics-interval", "never")
atexit.register(server.process.kill)  # also after errors
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
systems = [Floodmark(server)] + ([GoCarbon()] if args.beside else [])
print("%-36s %-10s %10s %10s %10s %10s" % ("pattern", "system", "nodes", "median ms", "p99 ms", "max ms"))
random.seed(1)
over, known_s = threading.Event(), []
writer = threading.Thread(target=write_known, args=(server, over, known_s), daemon=True)
writer.start()
scans = metric(server, "floodmark_paths_scans_total")
for name, pattern in PATTERNS.items():
    times_ms, nodes = {system.name: [] for system in systems}, {}
    for run in range(args.runs):
        for system, count in ask_all(pattern(random.randrange), run, times_ms).items():
            nodes.setdefault(system, []).append(count)
    for system, times in times_ms.items():
        print("%-36s %-10s %10s %10.2f %10.2f %10.2f" % (
            name, system, most(nodes[system]), statistics.median(times), p99(times), max(times)), flush=True)
over.set()
writer.join()
print("searches without the index: %d; p99 of %d writes of a known series: %.1f ms" % (
    metric(server, "floodmark_paths_scans_total") - scans, len(known_s), p99(known_s) * 1e3))

print("%-24s %-10s %10s %10s %10s %10s %10s %12s" % ("large patterns", "system", "visited", "nodes", "median ms", "p99 ms", "max ms", "ns per node"))
for name, answer in itertools.product(LARGE, ANSWERS):
    pattern, visited = large(name, answer)
    times_ms, nodes = {system.name: [] for system in systems}, {}
    for run in range(args.large_runs):
        nodes = ask_all(pattern, run, times_ms)
    for system, times in times_ms.items():
        median_ms = statistics.median(times)
        print("%-24s %-10s %10d %10s %10.2f %10.2f %10.2f %12.0f" % (
            name + ", " + answer, system, visited, nodes[system], median_ms, p99(times), max(times), median_ms * 1e6 / visited), flush=True)
for system in systems[1:]:
    system.stop()

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
