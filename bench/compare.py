"""Compares builds of one server. All builds run at once, and each query is sent to one build after the other. So drift of the
machine's speed affects all builds alike.

    FLOODMARK=path/to/floodmark python3 bench/compare.py SYSTEM PROGRAM PROGRAM... [--restarts 5] [--repeat 100] [--clients 25] [--seconds 4]

Each restart writes the same data as bench/query.py. It sends each query of bench/queries.txt `--repeat` times to each program, in turn.
Then `--clients` clients send all queries to one program after the other, for `--seconds` each. Prints the medians over all restarts, and
the median of the ratios to the first program. The order of the programs changes with each restart.
"""

import argparse
import contextlib
import multiprocessing
import os
import statistics
import tempfile
import time

from floodmark_bench import lab_write
from systems import NAMES, System, ask, queries

INTERVAL_S, ROUNDS = 15, 500
QUERIES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "queries.txt")

parser = argparse.ArgumentParser()
parser.add_argument("system", choices=NAMES)
parser.add_argument("programs", nargs="+")
parser.add_argument("--restarts", type=int, default=5)
parser.add_argument("--repeat", type=int, default=100, help="number of times that each query is sent after each restart")
parser.add_argument("--clients", type=int, default=25)
parser.add_argument("--seconds", type=float, default=4, help="seconds for which the clients query each program, twice after each restart")
args = parser.parse_args()


def percentile(times, part):
    return sorted(times)[min(len(times) - 1, int(len(times) * part))]


def client(number):
    """Sends queries to `target`, one after the other, until the time is over; returns the latencies in milliseconds."""
    server, questions = target
    connection, times, until = server.connect(), [], time.monotonic() + args.seconds
    while time.monotonic() < until:
        times.append(ask(connection, questions[(number + len(times)) % len(questions)]))
    return times


def mixed(server, questions):
    """Queries per second, CPU milliseconds per query, and p50 and p99 in milliseconds."""
    global target  # forked clients read it
    target, before = (server, questions), server.cpu_seconds()
    with multiprocessing.get_context("fork").Pool(args.clients) as pool:
        times = sum(pool.map(client, range(args.clients), chunksize=1), [])
    cpu_ms = (server.cpu_seconds() - before) * 1e3 / len(times)
    return {"queries/s": len(times) / args.seconds, "CPU ms a query": cpu_ms, "p50 ms": statistics.median(times), "p99 ms": percentile(times, 0.99)}


def measure(servers, figures):
    """Measures one restart: appends a value to each `figures[name][program]`."""
    end = int(time.time()) // 60 * 60
    begin = end - ROUNDS * INTERVAL_S
    for server in servers:
        written = lab_write(
            server.write_url, "--metrics", 2000, "--series", 10, "--writers", 1, "--connections", 4,
            "--interval", "%ds" % INTERVAL_S, "--start", begin, "--rounds", ROUNDS,
        )
        assert written["samples_acknowledged"] == ROUNDS * 20_000, written["errors"]
    asked = [(name, [s.question(kind, text, begin + 300, end, 60) for s in servers]) for name, kind, text in queries(QUERIES)]
    connections = [server.connect() for server in servers]
    for name, questions in asked:
        times = [[] for _ in servers]
        for turn in range(args.repeat):
            for i in range(len(servers))[:: 1 if turn % 2 else -1]:
                times[i].append(ask(connections[i], questions[i]))
        for server, all_of_one in zip(servers, times):
            figures.setdefault(name + ", p50 ms", {}).setdefault(server.program, []).append(statistics.median(all_of_one))
    for turn in range(2):
        for i in range(len(servers))[:: 1 if turn else -1]:
            for name, value in mixed(servers[i], [questions[i] for _, questions in asked]).items():
                figures.setdefault("%d clients, %s" % (args.clients, name), {}).setdefault(servers[i].program, []).append(value)


figures, programs = {}, [os.path.abspath(program) for program in args.programs]
for restart in range(args.restarts):
    with contextlib.ExitStack() as stack:
        servers = []
        for program in programs if restart % 2 == 0 else programs[::-1]:
            data = stack.enter_context(tempfile.TemporaryDirectory(prefix="floodmark-bench-"))
            servers.append(System(args.system, program, data))
            stack.callback(servers[-1].stop)
        measure(servers, figures)
for name, of in figures.items():
    first = of[programs[0]]
    row = ["%s %9.2f (ratio %.2f)" % (os.path.basename(p), statistics.median(of[p]), statistics.median(a / b for a, b in zip(of[p], first))) for p in programs]
    print("%-28s %s" % (name, "   ".join(row)), flush=True)
