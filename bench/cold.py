"""Queries over data at rest. Each query is sent to a fresh process whose files are not in the page cache, and then repeated.

    python3 bench/cold.py SYSTEM PROGRAM DATA QUERIES START END STEP [NAME …]

SYSTEM and PROGRAM: see bench/systems.py. DATA: a directory filled by bench/fill.py, which also prints START, END and STEP (seconds).
QUERIES: bench/queries.txt, or a file in the same form. NAME: run only these queries. With RESOLUTION=auto in the environment, Floodmark
answers from rollups where possible. posix_fadvise evicts the files from the page cache; other files on the machine stay cached.

Prints, in milliseconds, the latency of the first and the second answer, the median latency of fifty later answers, and the server's CPU
time for the first and for each of the fifty.
"""

import argparse
import os
import statistics
import time

from systems import System, arguments, ask, queries

REPEATS = 50

parser = argparse.ArgumentParser()
args, flags = arguments(parser, "data", "queries", "start", "end", "step", "names*")


def evict():
    os.sync()
    for folder, _, names in os.walk(args.data):
        for name in names:
            try:
                file = os.open(os.path.join(folder, name), os.O_RDONLY)
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(file)
            except OSError:
                pass


def cpu_ms(server):
    """CPU milliseconds of the server, summed over its threads. This is more precise than the ticks of the process."""
    return sum(ran for ran, _ in server.threads().values()) * 1e3


for name, kind, text in queries(args.queries, args.names):
    evict()
    server = System(args.system, args.program, args.data, *flags)
    try:
        time.sleep(0.5)
        evict()
        connection, question = server.connect(), server.question(kind, text, args.start, args.end, args.step)
        before = cpu_ms(server)
        first = ask(connection, question)
        first_cpu = cpu_ms(server) - before
        second = ask(connection, question)
        before = cpu_ms(server)
        later = statistics.median(ask(connection, question) for _ in range(REPEATS))
        later_cpu = (cpu_ms(server) - before) / REPEATS
        print("%-16s%-14sfirst %8.2f cpu %6.1f  second %8.2f  later %8.3f cpu %6.1f" % (
            args.system, name, first, first_cpu, second, later, later_cpu), flush=True)
    finally:
        server.stop()
