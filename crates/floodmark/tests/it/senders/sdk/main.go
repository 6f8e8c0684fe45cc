// Sends each kind of metric with OpenTelemetry's SDK for Go. The environment variables of the SDK say where to and how. With a
// number as argument, it sends a counter in as many exports instead, with the values 1, 2, 3 and so on.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	api "go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/trace"
)

func main() {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { fmt.Println("said:", err) }))
	if err := run(context.Background()); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func newExporter(ctx context.Context) (metric.Exporter, error) {
	switch protocol := os.Getenv("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL"); protocol {
	case "http/protobuf":
		return otlpmetrichttp.New(ctx)
	case "grpc":
		return otlpmetricgrpc.New(ctx)
	default:
		return nil, fmt.Errorf("unknown protocol %q", protocol)
	}
}

func run(ctx context.Context) error {
	exporter, err := newExporter(ctx)
	if err != nil {
		return err
	}
	about, err := resource.New(ctx, resource.WithFromEnv(), resource.WithTelemetrySDK())
	if err != nil {
		return err
	}
	view := func(name string, aggregation metric.Aggregation) metric.View {
		return metric.NewView(metric.Instrument{Name: name}, metric.Stream{Aggregation: aggregation})
	}
	provider := metric.NewMeterProvider(
		metric.WithReader(metric.NewPeriodicReader(exporter, metric.WithInterval(time.Hour))),
		metric.WithResource(about),
		metric.WithView(
			view("took", metric.AggregationExplicitBucketHistogram{Boundaries: []float64{5, 10}}),
			view("exponential", metric.AggregationBase2ExponentialHistogram{MaxSize: 160, MaxScale: 20}),
		),
	)
	meter := provider.Meter("tests", api.WithInstrumentationVersion("1.0"))
	if len(os.Args) > 1 {
		err = sendSteps(ctx, provider, meter, os.Args[1])
	} else {
		err = sendAll(ctx, provider, meter)
	}
	if err != nil {
		return err
	}
	nextMillisecond()
	// exports once more
	if err := provider.Shutdown(ctx); err != nil {
		otel.Handle(err)
	}
	return nil
}

// Exports now. Returns whether everything was stored. The SDK says as an error what was stored in part, or in another form.
func export(ctx context.Context, provider *metric.MeterProvider) bool {
	err := provider.ForceFlush(ctx)
	if err != nil {
		otel.Handle(err)
	}
	return err == nil
}

func sendSteps(ctx context.Context, provider *metric.MeterProvider, meter api.Meter, number string) error {
	count, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	steps, err := meter.Int64Counter("steps")
	if err != nil {
		return err
	}
	for range count {
		steps.Add(ctx, 1)
		nextMillisecond()
		for tries := 0; !export(ctx, provider); tries++ {
			if tries == 1000 {
				return fmt.Errorf("the server does not answer")
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	return nil
}

func sendAll(ctx context.Context, provider *metric.MeterProvider, meter api.Meter) error {
	// the only error of these is an invalid name
	requests, _ := meter.Float64Counter("requests")
	queue, _ := meter.Int64UpDownCounter("queue.length")
	limit, _ := meter.Int64Gauge("limit")
	took, _ := meter.Float64Histogram("took", api.WithUnit("ms"))
	exponential, _ := meter.Float64Histogram("exponential", api.WithUnit("s"))
	var bytes int64
	_, err := meter.Int64ObservableCounter("read", api.WithUnit("By"),
		api.WithInt64Callback(func(_ context.Context, observer api.Int64Observer) error {
			observer.Observe(bytes)
			return nil
		}))
	if err != nil {
		return err
	}
	_, err = meter.Float64ObservableGauge("temperature", api.WithUnit("Cel"),
		api.WithFloat64Callback(func(_ context.Context, observer api.Float64Observer) error {
			observer.Observe(21.5, api.WithAttributes(attribute.String("room", "größer")))
			return nil
		}))
	if err != nil {
		return err
	}
	get := api.WithAttributes(attribute.String("http.method", "GET"), attribute.Int("code", 200))
	post := api.WithAttributes(attribute.String("http.method", "POST"), attribute.Bool("retried", true))

	requests.Add(ctx, 3, get)
	requests.Add(ctx, 4, get)
	requests.Add(ctx, 2.5, post)
	queue.Add(ctx, -3)
	limit.Record(ctx, 100)
	for _, milliseconds := range []float64{2, 8, 1000} {
		took.Record(ctx, milliseconds)
	}
	for i := range 100 {
		exponential.Record(ctx, float64(i+1)/100)
	}
	bytes = 1000
	export(ctx, provider)

	nextMillisecond()
	requests.Add(ctx, 5, get)
	queue.Add(ctx, 1)
	limit.Record(ctx, 50)
	// in a sampled span, so that the value has an exemplar
	span := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled,
	})
	took.Record(trace.ContextWithSpanContext(ctx, span), 7)
	bytes = 1500
	export(ctx, provider)
	return nil
}

// Waits, because two points of a series with the same millisecond would be one sample.
func nextMillisecond() {
	for start := time.Now().UnixMilli(); time.Now().UnixMilli() == start; {
		time.Sleep(100 * time.Microsecond)
	}
}
