//! Remote write 1.0 and 2.0. [`Renderer`](crate::generate::template::Renderer) builds their bodies, and
//! [`Encoder`](crate::capture::replay::Encoder) those of a replay.

use super::{Driver, LINES_OVER_HTTP, Transport};
use crate::capture::replay::Encoder;
use crate::generate::protocol::Protocol;

const ADDRESS: &str = "http://127.0.0.1:9009/api/v1/write";

pub(super) static V1: Driver = Driver {
    protocol: Protocol::V1,
    name: "1.0",
    about: "remote write 1.0",
    number: 1,
    transport: Transport::Http,
    address: ADDRESS,
    content_type: "application/x-protobuf",
    encode: Some(Encoder::v1),
    ..LINES_OVER_HTTP
};

pub(super) static V2: Driver = Driver {
    protocol: Protocol::V2,
    name: "2.0",
    about: "remote write 2.0",
    number: 2,
    transport: Transport::Http,
    address: ADDRESS,
    content_type: "application/x-protobuf;proto=io.prometheus.write.v2.Request",
    encode: Some(Encoder::v2),
    ..LINES_OVER_HTTP
};
