"""Aggregates points with the real carbon-aggregator, for differential tests.

Reads one line of JSON from standard input:

    {"rules": "text of the file", "kept": 5, "now": 1000, "steps": [["point", "name", 990.0, 1.5], ["at", 1010], ...]}

`at` moves the clock, so that carbon computes what is due. Answers one line of JSON: the last point that carbon computed for
each output and interval, and the names that it forwarded.

    {"computed": [["output", 980, 1.5], ...], "forwarded": ["name", ...]}
"""

import json
import sys
import tempfile

from twisted.internet import task

from carbon import events, state
from carbon.conf import settings

# carbon refers to itself in circles, so the order of the imports matters
from carbon.aggregator import rules as carbon_rules
from carbon.aggregator import buffers, processor

request = json.loads(sys.stdin.readline())
clock = task.Clock()
clock.advance(request["now"])


class LoopingCall(task.LoopingCall):
    def __init__(self, function, *args, **kwargs):
        super().__init__(function, *args, **kwargs)
        self.clock = clock


buffers.LoopingCall = LoopingCall
buffers.time.time = clock.seconds
settings["MAX_AGGREGATION_INTERVALS"] = request["kept"]
settings["WRITE_BACK_FREQUENCY"] = None
settings["FORWARD_ALL"] = True
settings["LOG_AGGREGATOR_MISSES"] = False


class Instrumentation:
    def increment(self, *_):
        pass


state.instrumentation = Instrumentation()
state.events = events
computed = {}


def keep(metric, point):
    computed[metric, point[0]] = point[1]


events.metricGenerated.addHandler(keep)
manager = carbon_rules.RuleManager
with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
    file.write(request["rules"])
    file.flush()
    manager.rules_file = file.name
    manager.read_rules()

aggregator = processor.AggregationProcessor()
forwarded = []
for step in request["steps"]:
    if step[0] == "at":
        # second by second, because the clock runs a task once for each advance
        while clock.seconds() < step[1]:
            clock.advance(1)
    else:
        _, name, at, value = step
        forwarded.extend(name for name, _ in aggregator.process(name, (at, value)))

answer = {"computed": [[*key, value] for key, value in computed.items()], "forwarded": sorted(set(forwarded))}
print(json.dumps(answer), flush=True)
