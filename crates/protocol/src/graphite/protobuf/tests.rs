use super::*;
use crate::graphite::TimeOfArrival;
use crate::graphite::tests::decoded;
use prost::Message;

#[derive(Clone, PartialEq, prost::Message)]
struct Payload {
    #[prost(message, repeated, tag = "1")]
    metrics: Vec<Metric>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Metric {
    #[prost(string, tag = "1")]
    metric: String,
    #[prost(message, repeated, tag = "2")]
    points: Vec<Point>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Point {
    #[prost(uint32, tag = "1")]
    timestamp: u32,
    #[prost(double, tag = "2")]
    value: f64,
}

const WHOLE: Format = Format { has_frames: false, arrival: TimeOfArrival::Refused };

fn metric(name: &str, points: &[(u32, f64)]) -> Metric {
    let point = |&(timestamp, value): &(u32, f64)| Point { timestamp, value };
    Metric { metric: name.into(), points: points.iter().map(point).collect() }
}

fn encoded(metrics: Vec<Metric>) -> Vec<u8> {
    Payload { metrics }.encode_to_vec()
}

#[test]
fn metrics_are_read_with_their_points() {
    let metrics = vec![
        metric("a.b", &[(1_795_284_000, 1.5), (1_795_284_060, -2.0)]),
        metric("c;d=e", &[(7, 0.0)]),
        metric("empty", &[]),
        metric("not.numbers", &[(1, f64::NAN), (2, 3.0)]),
        metric("", &[(1, 1.0), (2, 1.0)]),
        metric("x;y", &[(1, 1.0)]),
    ];
    let body = encoded(metrics);
    let expected = vec![
        ("a.b{}".to_owned(), 1_795_284_000_000, 1.5),
        ("a.b{}".to_owned(), 1_795_284_060_000, -2.0),
        (r#"c{d="e"}"#.to_owned(), 7000, 0.0),
        ("not.numbers{}".to_owned(), 2000, 3.0),
    ];
    let refused = [
        r#"point 4: the value is not a number, in "not.numbers""#,
        "point 5: no metric name",
        r#"point 6: tag "y" is not of the form name=value, in "x;y""#,
    ];
    let (samples, errors) = decoded::<Decoder>(WHOLE, &body).unwrap();
    assert_eq!((samples, errors), (expected.clone(), refused.map(String::from).to_vec()));
    let frame = |body: &[u8]| [&(body.len() as u32).to_be_bytes()[..], body].concat();
    let damaged = frame(&body[..body.len() - 1]);
    let frames = [frame(&body), damaged, frame(&encoded(vec![metric("z", &[(1, 2.0)])]))].concat();
    let (samples, errors) = decoded::<Decoder>(Format { has_frames: true, ..WHOLE }, &frames).unwrap();
    assert_eq!(samples, [&expected[..], &[("z{}".to_owned(), 1000, 2.0)]].concat());
    let last = errors.last().unwrap();
    assert!(last.starts_with("message 2: invalid protobuf at byte") && last.contains("a.b"), "{errors:?}");
}

#[test]
fn a_name_may_follow_its_points() {
    let (name, points) = (metric("a", &[]), metric("", &[(1, 2.0)]));
    let inner = [points.encode_to_vec(), name.encode_to_vec(), vec![0x1a, 1, 0]].concat();
    let body = [vec![0x0a, inner.len() as u8], inner, vec![0x18, 1]].concat();
    let (samples, errors) = decoded::<Decoder>(WHOLE, &body).unwrap();
    assert_eq!((samples, errors), (vec![("a{}".to_owned(), 1000, 2.0)], vec![]));
}
