# Sends each instrument over gRPC, in two exports. Arguments: address, compression, temporality.
import logging
import sys

import grpc
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.metrics import Observation
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import AggregationTemporality, PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import (
    ExplicitBucketHistogramAggregation,
    ExponentialBucketHistogramAggregation,
    View,
)
from opentelemetry.sdk.resources import Resource

address, compression, temporality = sys.argv[1:]
logging.basicConfig(level=logging.INFO)
temporalities = {}
if temporality == "delta":
    temporalities = {kind: AggregationTemporality.DELTA for kind in (Counter, Histogram)}
exporter = OTLPMetricExporter(
    endpoint=address,
    insecure=True,
    timeout=5,
    compression=grpc.Compression.Gzip if compression == "gzip" else grpc.Compression.NoCompression,
    preferred_temporality=temporalities,
)
provider = MeterProvider(
    metric_readers=[PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)],
    resource=Resource.create({"service.name": compression, "service.namespace": temporality}),
    views=[
        View(instrument_name="took", aggregation=ExplicitBucketHistogramAggregation([5.0, 10.0])),
        View(instrument_name="exponential", aggregation=ExponentialBucketHistogramAggregation()),
    ],
)
meter = provider.get_meter("tests")
requests = meter.create_counter("requests")
queue = meter.create_up_down_counter("queue.length")
meter.create_observable_gauge("temperature", [lambda _: [Observation(21.5, {"room": "größer"})]], "Cel")
took = meter.create_histogram("took", "ms")
exponential = meter.create_histogram("exponential", "s")

requests.add(4, {"http.method": "GET"})
queue.add(-3)
for value in (2, 8, 1000):
    took.record(value)
for value in range(100):
    exponential.record((value + 1) / 100)
provider.force_flush()

requests.add(3, {"http.method": "GET"})
queue.add(1)
took.record(7)
for value in (0, 0.003, 37):
    exponential.record(value)
provider.force_flush()
provider.shutdown()
