//! Encodes `ExportMetricsServiceRequest` of OpenTelemetry (see `otlp.rs`), with gauges.

use super::put::bytes;

/// Collects points. They belong to the resource and to the metric that were named last.
#[derive(Debug, Default)]
pub struct OtlpEncoder {
    /// The finished resources.
    request: Vec<u8>,
    /// The Resource message of the current resource, if there is one.
    resource: Option<Vec<u8>>,
    /// The finished metrics of the current resource.
    metrics: Vec<u8>,
    /// The field with the name of the current metric, if there is one.
    name: Option<Vec<u8>>,
    /// The points of the current metric.
    points: Vec<u8>,
    point: Vec<u8>,
}

impl OtlpEncoder {
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins a resource.
    pub fn resource<'a>(&mut self, attributes: impl IntoIterator<Item = (&'a str, &'a str)>) {
        self.end_resource();
        let mut resource = Vec::new();
        attributes.into_iter().for_each(|(key, value)| attribute(&mut resource, 0x0a, key, value));
        self.resource = Some(resource);
    }

    /// Begins a metric.
    pub fn gauge(&mut self, name: &str) {
        self.end_metric();
        let mut field = Vec::new();
        bytes(&mut field, 0x0a, name.as_bytes());
        self.name = Some(field);
    }

    /// Adds a point. Time and value have fixed places, even if they are zero.
    pub fn point<'a>(
        &mut self,
        attributes: impl IntoIterator<Item = (&'a str, &'a str)>,
        time_ns: u64,
        value: f64,
    ) {
        let point = &mut self.point;
        point.clear();
        point.push(Self::TIME);
        point.extend_from_slice(&time_ns.to_le_bytes());
        point.push(Self::AS_DOUBLE);
        point.extend_from_slice(&value.to_bits().to_le_bytes());
        attributes.into_iter().for_each(|(key, value)| attribute(point, 0x3a, key, value));
        bytes(&mut self.points, 0x0a, point);
    }

    /// The tags before time and value, with which each point begins.
    pub const TIME: u8 = 0x19;
    pub const AS_DOUBLE: u8 = 0x21;

    /// Returns the message. The encoder is then empty and can be used for the next request.
    pub fn finish(&mut self) -> Vec<u8> {
        self.end_resource();
        std::mem::take(&mut self.request)
    }

    fn end_metric(&mut self) {
        let Some(mut metric) = self.name.take() else { return };
        let mut gauge = Vec::new();
        bytes(&mut gauge, 0x2a, &self.points);
        metric.append(&mut gauge);
        bytes(&mut self.metrics, 0x12, &metric);
        self.points.clear();
    }

    fn end_resource(&mut self) {
        self.end_metric();
        let Some(resource) = self.resource.take() else { return };
        let mut resource_metrics = Vec::new();
        bytes(&mut resource_metrics, 0x0a, &resource);
        bytes(&mut resource_metrics, 0x12, &self.metrics);
        bytes(&mut self.request, 0x0a, &resource_metrics);
        self.metrics.clear();
    }
}

fn attribute(out: &mut Vec<u8>, tag: u8, key: &str, value: &str) {
    let (mut any_value, mut field) = (Vec::new(), Vec::new());
    bytes(&mut any_value, 0x0a, value.as_bytes());
    bytes(&mut field, 0x0a, key.as_bytes());
    bytes(&mut field, 0x12, &any_value);
    bytes(out, tag, &field);
}
