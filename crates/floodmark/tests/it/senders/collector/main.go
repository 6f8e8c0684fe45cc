// A collector of OpenTelemetry with the components that the tests use. Its parts are those of the official builds.
package main

import (
	"log"

	"github.com/open-telemetry/opentelemetry-collector-contrib/exporter/prometheusremotewriteexporter"
	"github.com/open-telemetry/opentelemetry-collector-contrib/processor/deltatocumulativeprocessor"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/fileprovider"
	"go.opentelemetry.io/collector/exporter/otlpexporter"
	"go.opentelemetry.io/collector/exporter/otlphttpexporter"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/processor/batchprocessor"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/service/telemetry/otelconftelemetry"
)

func factories() (otelcol.Factories, error) {
	all := otelcol.Factories{Telemetry: otelconftelemetry.NewFactory()}
	var err error
	if all.Receivers, err = otelcol.MakeFactoryMap(otlpreceiver.NewFactory()); err != nil {
		return all, err
	}
	all.Processors, err = otelcol.MakeFactoryMap(batchprocessor.NewFactory(), deltatocumulativeprocessor.NewFactory())
	if err != nil {
		return all, err
	}
	all.Exporters, err = otelcol.MakeFactoryMap(
		otlpexporter.NewFactory(), otlphttpexporter.NewFactory(), prometheusremotewriteexporter.NewFactory())
	return all, err
}

func main() {
	settings := otelcol.CollectorSettings{
		BuildInfo: component.BuildInfo{Command: "otelcol", Description: "a collector for tests", Version: "0.165.0"},
		Factories: factories,
	}
	settings.ConfigProviderSettings.ResolverSettings.ProviderFactories = []confmap.ProviderFactory{fileprovider.NewFactory()}
	settings.ConfigProviderSettings.ResolverSettings.DefaultScheme = "file"
	if err := otelcol.NewCommand(settings).Execute(); err != nil {
		log.Fatal(err)
	}
}
