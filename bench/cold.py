"""Queries over what is at rest: each by a fresh process whose files are not in the page cache, then again and again.

    python3 bench/cold.py SYSTEM PROGRAM DATA QUERIES START END STEP [NAME …]

SYSTEM is floodmark, victoriametrics or prometheus; DATA its data directory, filled before. QUERIES has a line for each
query: a name, one of range, instant and labels, and an expression (or a label). START, END and STEP are seconds. With
RESOLUTION=auto in the environment, Floodmark answers from rollups where it can. Files are told to leave the page cache by
posix_fadvise; nothing else on the machine loses its own.

It prints milliseconds of the first, the second and the median of fifty later answers, and the server's CPU milliseconds
for the first and for each of the fifty.
"""

import os
import statistics
import subprocess
import sys
import time
import urllib.parse
import urllib.request

PORT = 9109
BASE = f"http://127.0.0.1:{PORT}"
REPEATS = 50


def command(system, program, data):
    return {
        "floodmark": [program, "serve", "--data-dir", data, "--http", f"127.0.0.1:{PORT}"],
        "victoriametrics": [program, f"-storageDataPath={data}", f"-httpListenAddr=127.0.0.1:{PORT}", "-retentionPeriod=10y"],
        "prometheus": [
            program,
            "--config.file=/dev/null",
            f"--storage.tsdb.path={data}",
            f"--web.listen-address=127.0.0.1:{PORT}",
            "--storage.tsdb.retention.time=10y",
        ],
    }[system]


def evict(data):
    os.sync()
    for folder, _, names in os.walk(data):
        for name in names:
            try:
                file = os.open(os.path.join(folder, name), os.O_RDONLY)
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(file)
            except OSError:
                pass


def cpu_ms(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * 1000 // os.sysconf("SC_CLK_TCK")


def address(system, kind, text, start, end, step):
    params = {"victoriametrics": {"nocache": "1"}}.get(system, {})
    if system == "floodmark" and "RESOLUTION" in os.environ and kind != "labels":
        params = {"resolution": os.environ["RESOLUTION"]}
    if kind == "labels":
        path = f"label/{text}/values"
        params |= {"start": start, "end": end}
    elif kind == "range":
        path = "query_range"
        params |= {"query": text, "start": start, "end": end, "step": step}
    else:
        path = "query"
        params |= {"query": text, "time": end}
    return f"{BASE}/api/v1/{path}?{urllib.parse.urlencode(params)}"


def get(url):
    began = time.perf_counter()
    urllib.request.urlopen(url, timeout=60).read()
    return (time.perf_counter() - began) * 1000


def wait(system):
    path = "/health" if system == "victoriametrics" else "/-/ready"
    for _ in range(1200):
        try:
            if urllib.request.urlopen(BASE + path, timeout=1).status == 200:
                return
        except OSError:
            time.sleep(0.05)
    sys.exit(f"{system} is not ready")


def main():
    system, program, data, queries, start, end, step, *names = sys.argv[1:]
    for line in open(queries):
        if line.startswith("#") or not line.strip():
            continue
        name, kind, text = line.strip().split(" ", 2)
        if names and name not in names:
            continue
        evict(data)
        server = subprocess.Popen(command(system, program, data), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait(system)
            time.sleep(0.5)
            evict(data)
            url = address(system, kind, text, start, end, step)
            before = cpu_ms(server.pid)
            first = get(url)
            first_cpu = cpu_ms(server.pid) - before
            second = get(url)
            before = cpu_ms(server.pid)
            later = statistics.median(get(url) for _ in range(REPEATS))
            later_cpu = (cpu_ms(server.pid) - before) / REPEATS
            print(f"{system:16}{name:14}first {first:8.2f} cpu {first_cpu:4}  second {second:8.2f}  later {later:8.3f} cpu {later_cpu:6.1f}", flush=True)
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
