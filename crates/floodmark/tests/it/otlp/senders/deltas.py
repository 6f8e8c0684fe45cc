# Exports with delta temporality several times, and sends each export twice. Arguments: protocol, endpoint.
import logging
import sys

from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    MetricExportResult,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.metrics.view import (
    ExplicitBucketHistogramAggregation,
    ExponentialBucketHistogramAggregation,
    View,
)
from opentelemetry.sdk.resources import Resource

protocol, endpoint = sys.argv[1:]
logging.basicConfig(level=logging.INFO)
if protocol == "grpc":
    from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter

    options = {"insecure": True}
else:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

    options = {}


class Repeating(OTLPMetricExporter):
    exports = 0

    def export(self, metrics_data, *args, **kwargs):
        for _ in range(2):
            result = super().export(metrics_data, *args, **kwargs)
            assert result == MetricExportResult.SUCCESS
        Repeating.exports += 1
        return result


deltas = {kind: AggregationTemporality.DELTA for kind in (Counter, Histogram)}
exporter = Repeating(endpoint=endpoint, timeout=5, preferred_temporality=deltas, **options)
reader = PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)
provider = MeterProvider(
    metric_readers=[reader],
    resource=Resource.create({"service.name": "deltas", "service.instance.id": "one"}),
    views=[
        View(instrument_name="took", aggregation=ExplicitBucketHistogramAggregation([5.0, 10.0])),
        View(instrument_name="fine", aggregation=ExponentialBucketHistogramAggregation()),
        View(instrument_name="coarse", aggregation=ExponentialBucketHistogramAggregation(max_size=8)),
    ],
)
meter = provider.get_meter("tests", "1.0")
requests = meter.create_counter("requests")
took = meter.create_histogram("took", "ms")
# the range grows from export to export, and so the scale becomes lower
exponential = [meter.create_histogram(name) for name in ("fine", "coarse")]
meter.create_counter("rare").add(1)
for n in range(1, 6):
    requests.add(n, {"http.method": "GET"})
    requests.add(2.5, {"http.method": "POST"})
    for value in (2, 8, 1000):
        took.record(value)
    for histogram in exponential:
        for value in (0.3 * n, 7.0**n):
            histogram.record(value)
    provider.force_flush()
print("exported", Repeating.exports, "times")
provider.shutdown()
