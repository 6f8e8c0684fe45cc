"""Cost of records: how many MB of JSON lines a second become durable, and how many become rows of a table, for a CPU second of the server.

    FLOODMARK=path/to/floodmark python3 bench/streams.py [--kib 10 100 1024] [--seconds 10] [--connections 4] [-- SERVER FLAGS]

The lines are made up: access logs of about 300 bytes with 12 attributes, two of them nested. They are not compressed. Each size gets a fresh
server. Their time is that of their arrival, because the same 50 bodies are sent again and again. MB are 10^6 bytes of bodies. `durable`: CPU
seconds without those of the thread that loads tables. `in tables`: of all threads, until all records are in the table.
"""

import argparse
import http.client
import json
import random
import statistics
import sys
import tempfile
import threading
import time

from floodmark_bench import FLOODMARK, Process, free_port

parser = argparse.ArgumentParser()
parser.add_argument("--kib", type=int, nargs="+", default=[10, 100, 1024], help="sizes of requests")
parser.add_argument("--seconds", type=int, default=10)
parser.add_argument("--connections", type=int, default=4)
arguments = sys.argv[1:]
cut = arguments.index("--") if "--" in arguments else len(arguments)
args, flags = parser.parse_args(arguments[:cut]), arguments[cut + 1:]

BODIES = 50
PATHS = ["/", "/login", "/api/v1/items", "/api/v1/items/%d", "/static/app.js", "/health"]
AGENTS = ["Mozilla/5.0 (X11; Linux x86_64)", "curl/8.5.0", "Go-http-client/2.0"]


def line(rng, at_s):
    path = rng.choice(PATHS)
    return json.dumps({
        "logged": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at_s)) + ".%06dZ" % rng.randrange(10**6),
        "level": rng.choice(["info"] * 20 + ["warn", "error"]), "service": "shop-%d" % rng.randrange(8), "host": "web-%03d" % rng.randrange(200),
        "http": {"method": rng.choice(["GET", "GET", "POST"]), "path": path % rng.randrange(10**5) if "%" in path else path,
                 "status": rng.choice([200] * 30 + [304, 404, 500])},
        "took_ms": round(rng.expovariate(0.05), 3), "bytes": rng.randrange(10**5), "client": "10.%d.%d.%d" % tuple(rng.randrange(256) for _ in range(3)),
        "agent": rng.choice(AGENTS), "trace": "%032x" % rng.getrandbits(128),
    }, separators=(",", ":"))


def bodies(kib):
    rng, now_s = random.Random(kib), time.time()
    made = []
    for _ in range(BODIES):
        lines, size = [], 0
        while size < kib * 1024:
            lines.append(line(rng, now_s - 600 + len(lines) * 0.001))
            size += len(lines[-1]) + 1
        made.append("\n".join(lines).encode())
    return made


def send(port, made, until, took_s, sent):
    connection, n = http.client.HTTPConnection("127.0.0.1", port), 0
    while time.monotonic() < until:
        body = made[n % len(made)]
        began = time.monotonic()
        connection.request("POST", "/api/v1/streams/bench", body, {"Content-Type": "application/x-ndjson"})
        answer = connection.getresponse()
        answer.read()
        if answer.status == 503:
            time.sleep(0.05)
            continue
        assert answer.status == 200, answer.status
        took_s.append(time.monotonic() - began)
        sent.append(len(body))
        n += 1


def metric(port, name):
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/metrics")
    for row in connection.getresponse().read().decode().splitlines():
        if row.startswith(name + " "):
            return float(row.split()[1])
    raise SystemExit("no metric " + name)


class Server(Process):
    def __init__(self, data, port):
        import subprocess

        command = [FLOODMARK, "serve", "--data-dir", data + "/floodmark", "--http", "127.0.0.1:%d" % port, "--self-monitoring-interval", "never"]
        self.process = subprocess.Popen(command + flags, stderr=open(data + "/log", "w"))


print("%6s %10s %10s %10s %18s %18s" % ("KiB", "MB/s", "p50 ms", "p99 ms", "durable, MB/CPUs", "in tables, MB/CPUs"))
for kib in args.kib:
    made = bodies(kib)
    with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as data:
        port = free_port()
        server = Server(data, port)
        try:
            while True:
                try:
                    metric(port, "floodmark_records_ready")
                    break
                except OSError:
                    time.sleep(0.1)
            took_s, sent, before = [], [], server.cpu_seconds()
            until = time.monotonic() + args.seconds
            threads = [threading.Thread(target=send, args=(port, made, until, took_s, sent)) for _ in range(args.connections)]
            began = time.monotonic()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            lasted_s = time.monotonic() - began
            while metric(port, "floodmark_records_waiting_batches"):
                time.sleep(0.2)
            loaded_s = server.cpu_seconds() - before
            durable_s = loaded_s - server.threads()["loader"][0]
            mb, quantiles = sum(sent) / 1e6, statistics.quantiles(took_s, n=100)
            print("%6d %10.1f %10.2f %10.2f %18.1f %18.1f" % (
                kib, mb / lasted_s, quantiles[49] * 1e3, quantiles[98] * 1e3, mb / durable_s, mb / loaded_s), flush=True)
        finally:
            server.process.terminate()
            server.process.wait()
