"""Points of known Graphite series, written and read back in turn. Their latency shows the effect of other senders."""

import http.client
import json
import multiprocessing
import os
import select
import socket
import threading
import time
import urllib.parse

# so many series that none gets two points within a second, in which the second one would replace the first
SERIES = 100
# until a point counts as lost
PATIENCE_S = 20
START_S = 120


def percentile(values, share):
    """`None` if there are no values."""
    return sorted(values)[int(share * (len(values) - 1))] if values else None


class KnownPoints:
    """A process whose threads write a point each as a line, ask with PromQL until it is there, and write the next. `stop` ends it.

    `lines_port` and `http_port` are the server's. `parameters` are added to each query."""

    def __init__(self, lines_port, http_port, threads=2, parameters=None):
        self.lines_port, self.http_port, self.parameters = lines_port, http_port, parameters or {}
        self.over, self.ready, self.results = multiprocessing.Event(), multiprocessing.Barrier(threads + 1), multiprocessing.Queue()
        self.process = multiprocessing.Process(target=self._run, args=(threads,))
        self.process.start()
        # afterwards all series are known
        self.ready.wait(START_S)

    def stop(self):
        """Returns a list of points and one of queries: when each began (`time.monotonic`), and how many seconds it took. A point that was not
        there in time took `None`. So did a query that was refused. Then, how often the server has closed a connection of theirs."""
        self.over.set()
        results = self.results.get()
        self.process.join()
        return results

    def _run(self, threads):
        try:
            # these senders stand for other machines, as those of known_tenants.py
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        except PermissionError:
            pass  # not root; the points then also wait for a processor
        points, queries, reconnects = [], [], []
        workers = [threading.Thread(target=self._points, args=(which, points, queries, reconnects)) for which in range(threads)]
        [worker.start() for worker in workers]
        [worker.join() for worker in workers]
        self.results.put((points, queries, len(reconnects)))

    def _points(self, which, points, queries, reconnects):
        names = ["known.sender%d.n%d" % (which, number) for number in range(SERIES)]
        asking = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=PATIENCE_S)
        sending = self._connect()
        sending.sendall("".join("%s 0 %d\n" % (name, time.time()) for name in names).encode())
        for name in names:
            self._wait(asking, name, 0, int(time.time()), [])
        self.ready.wait(START_S)
        number = 0
        while not self.over.is_set():
            number += 1
            name, at_s, began = names[number % SERIES], int(time.time()), time.monotonic()
            line, there = b"%s %d %d\n" % (name.encode(), number, at_s), False
            while there is False:
                try:
                    sending.sendall(line)
                    there = self._wait(asking, name, number, at_s, queries, sending)
                except OSError:
                    there = False
                if not there:
                    # like any sender, it connects again if its connection had to make room for another one
                    reconnects.append(name)
                    sending.close()
                    sending = self._connect()
            points.append((began, there and there - began))

    def _connect(self):
        return socket.create_connection(("127.0.0.1", self.lines_port), PATIENCE_S)

    def _wait(self, asking, name, value, at_s, queries, sending=None):
        """The time when the point was there; `None` if it was not in time; `False` if the server has closed the connection before."""
        parameters = {"query": '{__name__="%s"}' % name, "time": at_s + 1, **self.parameters}
        path = "/api/v1/query?" + urllib.parse.urlencode(parameters)
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            # before the query, because the point may have been read before the connection was closed
            is_closed = sending is not None and closed(sending)
            began = time.monotonic()
            body = self._ask(asking, path)
            ended = time.monotonic()
            queries.append((began, None if body is None else ended - began))
            found = json.loads(body)["data"]["result"] if body else []
            if found and float(found[0]["value"][1]) == value:
                return ended
            if is_closed:
                return False
            time.sleep(0.005 if body else 0.05)
        return None

    @staticmethod
    def _ask(asking, path):
        """The body of the answer; `None` if there is none, or if the query was refused."""
        try:
            asking.request("GET", path)
            answer = asking.getresponse()
            body = answer.read()
            return body if answer.status == 200 else None
        except (OSError, http.client.HTTPException):
            asking.close()
            return None


def closed(connection):
    """True if the other side has closed the connection."""
    ready = select.poll()
    ready.register(connection, select.POLLIN)
    try:
        # the server never sends anything
        return bool(ready.poll(0)) and connection.recv(1) == b""
    except OSError:
        return True
