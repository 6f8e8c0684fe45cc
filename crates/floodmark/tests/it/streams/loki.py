# Sends lines with the client of Loki for Python. Arguments: URL, number of lines.
import logging
import sys
import time

import logging_loki

url, count = sys.argv[1], int(sys.argv[2])


class Handler(logging_loki.LokiHandler):
    def handleError(self, record):
        raise


handlers = [Handler(url=url, tags={"app": f"app-{n}"}, version="1") for n in range(2)]
for n in range(count):
    # the client takes the time at which it sends
    now = 1795284000 + n / 8
    time.time = lambda: now
    record = logging.makeLogRecord(
        {
            "name": "orders",
            "levelname": "WARNING",
            "levelno": logging.WARNING,
            "msg": f'größe "{n}"\n',
            "tags": {"n": str(n)},
        }
    )
    handlers[n % 2].handle(record)
