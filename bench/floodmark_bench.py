"""Code shared by the benchmark scripts: a server on a fresh directory, runs of the lab against it, and figures from both.

    FLOODMARK=path/to/floodmark python3 bench/scale.py
"""

import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request

FLOODMARK = os.environ.get("FLOODMARK", "floodmark")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def metrics(url):
    """The lines of `/metrics` with a value."""
    text = urllib.request.urlopen(url + "/metrics", timeout=60).read().decode()
    return [line for line in text.splitlines() if not line.startswith("#")]


def metric(url, name):
    """Sum of a metric of `/metrics` over its labels. With labels, `name` is one series."""
    return sum(float(line.rsplit(" ", 1)[1]) for line in metrics(url) if line.startswith((name + " ", name + "{")))


def by_label(url, name):
    """The values of a metric with one label that are not 0, by the value of this label."""
    lines = [line for line in metrics(url) if line.startswith(name + "{")]
    values = {line.split('"')[1]: float(line.rsplit(" ", 1)[1]) for line in lines}
    return {label: value for label, value in values.items() if value}


def buckets(url, histogram):
    """Cumulative counts by upper bound (seconds), of a histogram of `/metrics` without labels."""
    lines = [line for line in metrics(url) if line.startswith(histogram + "_bucket{le=")]
    return {float(line.split('"')[1]): float(line.split()[-1]) for line in lines}


class Process:
    """Figures about `self.process` from `/proc`."""

    def rss_bytes(self):
        return int(self._proc("statm").split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def rss_peak_bytes(self):
        return int(self._proc("status").split("VmHWM:")[1].split()[0]) << 10

    def cpu_seconds(self):
        fields = self._proc("stat").rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND

    def threads(self):
        """By thread name: seconds that threads have run, and seconds that they waited for a processor."""
        times = {}
        for thread in os.listdir("/proc/%d/task" % self.process.pid):
            try:
                name = self._proc("task/%s/comm" % thread).strip()
                ran, waited, _ = map(int, self._proc("task/%s/schedstat" % thread).split())
            except OSError:
                continue  # the thread has just ended
            before = times.get(name, (0, 0))
            times[name] = (before[0] + ran / 1e9, before[1] + waited / 1e9)
        return times

    def _proc(self, name):
        with open("/proc/%d/%s" % (self.process.pid, name)) as f:
            return f.read()


def lab_write(url, *flags, check=True, priority=(), started=None):
    """Result of `floodmark lab write` with these flags. The keys of the totals are moved to the top level. With `check`, lost samples are
    an error. `priority` is a command in front of the lab, such as `nice`. `started` is called with the process, so that the caller can stop
    it."""
    command = [*priority, FLOODMARK, "lab", "write", "--target", url, "--json", "--quiet", *map(str, flags)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        if started:
            started(process)
        printed, _ = process.communicate()
    if check and process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    result = json.loads(printed)
    return {**result["totals"], **result}


class Server(Process):
    """`floodmark serve` on a temporary directory. `start` after `kill` uses the same directory. `prepare` runs in the new process."""

    def __init__(self, *flags, prepare=None):
        self.dir = tempfile.mkdtemp(prefix="floodmark-bench-")
        self.flags = flags
        self.prepare = prepare
        self.address = "127.0.0.1:%d" % free_port()
        self.url = "http://" + self.address
        self.start()

    def start(self):
        """Starts the server; returns the seconds until it was ready."""
        began = time.monotonic()
        log = open(os.path.join(self.dir, "log"), "a")
        # because only the load is to be measured
        quiet = ["--self-monitoring-interval", "never"]
        command = [FLOODMARK, "serve", "--data-dir", self.dir + "/data", "--http", self.address, *quiet, *self.flags]
        self.process = subprocess.Popen(command, stderr=log, preexec_fn=self.prepare)
        while True:
            try:
                urllib.request.urlopen(self.url + "/-/ready", timeout=1)
                return time.monotonic() - began
            except OSError:
                if self.process.poll() is not None:
                    raise SystemExit(open(os.path.join(self.dir, "log")).read())
                time.sleep(0.01)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def buckets(self, histogram):
        """As the function `buckets`."""
        return buckets(self.url, histogram)

    def lab(self, *flags):
        """Runs `floodmark lab write` with these flags; returns its result, and the server's CPU seconds during the run."""
        before = self.cpu_seconds()
        report = lab_write(self.url + "/api/v1/write", *flags)
        return report, self.cpu_seconds() - before

    def post(self, path):
        """Calls `flush` or `compact` of the admin API; returns the data of the answer."""
        request = urllib.request.Request(self.url + "/api/v1/admin/" + path, data=b"", method="POST")
        return json.load(urllib.request.urlopen(request, timeout=600))["data"]

    def stop(self):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.dir)
