//! Native histograms from the request to the query. Requests use a protocol made for this test.

use super::*;
use crate::node::Node;
use crate::query_source::Source;
use crate::seal::tests::stop;
use model::histogram::{CounterReset, Counts, HistogramParts, Layout, Span};
use model::{Batch, BatchSeries, Histogram, SeriesHasher, SeriesSamples, TimeRange};
use protocol::{DecodeError, Request};
use query::{Select, SeriesSource};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use stdx::budget::IncrementalReservation;

/// Decodes lines `name time`. Each line becomes a sample of a float series and one of a histogram series.
#[derive(Debug)]
struct Both(SeriesHasher);

impl Decoder for Both {
    type Format = ();

    fn new(seed: u64) -> Self {
        Self(SeriesHasher::new(seed))
    }

    fn fill(
        &mut self,
        request: Request<'_, ()>,
        batch: &mut Batch,
        _: &mut IncrementalReservation<'_>,
    ) -> Result<(), DecodeError> {
        let text = std::str::from_utf8(request.body.bytes).unwrap();
        for line in text.lines() {
            let (name, time) = line.split_once(' ').unwrap();
            let timestamp_ms: i64 = time.parse().unwrap();
            let start = batch.bytes.len();
            batch.bytes.extend_from_slice(Labels::from_pairs(&[("__name__", name)]).as_bytes());
            let labels = start as u32..batch.bytes.len() as u32;
            let key = self.0.key(&batch.bytes[start..]);
            let series =
                |at: usize| BatchSeries { key, labels: labels.clone(), samples: at as u32..at as u32 + 1 };
            batch.floats.series.push(series(batch.floats.values.len()));
            batch.floats.timestamps.push(timestamp_ms);
            batch.floats.values.push(timestamp_ms as f64);
            batch.histograms.series.push(series(batch.histograms.values.len()));
            batch.histograms.timestamps.push(timestamp_ms);
            batch.histograms.values.push(histogram(timestamp_ms as f64));
        }
        Ok(())
    }

    fn memory_bytes(&self) -> usize {
        0
    }
}

pub(super) fn histogram(sum: f64) -> Histogram {
    let layout = Layout { schema: 1, positive: vec![Span { offset: 0, length: 2 }], ..Layout::default() };
    let counts = Counts::Whole(vec![sum as u64, 0, 1, sum as u64 - 1]);
    Histogram::new(&HistogramParts { reset: CounterReset::Unknown, layout, counts, sum }).unwrap()
}

pub(crate) fn submit_both(node: &Node, text: &str) {
    let decoders: Arc<Decoders<Both>> =
        Arc::new(Decoders::new(node.reads().seed, node.writes().decoders.clone()));
    let prepared = decoders.prepare(node.writes(), request(node, text), None).unwrap();
    assert!(submit(node.writes(), prepared.submissions).refused.is_none());
}

fn request(node: &Node, text: &str) -> Encoded<Both> {
    let bytes = text.as_bytes().to_vec();
    let memory = node.writes().inflight.reserve(bytes.len() as u64).unwrap();
    let principal = Principal::of(TenantId::anonymous());
    Encoded { principal, format: (), encoding: Encoding::Identity, bytes: bytes.into(), memory }
}

async fn write_both(node: &Node, text: &str) -> Result<Outcome, Unwritten> {
    let decoders: Arc<Decoders<Both>> =
        Arc::new(Decoders::new(node.reads().seed, node.writes().decoders.clone()));
    super::super::write(node.writes(), &decoders, request(node, text)).await
}

fn read(node: &Node) -> BTreeMap<String, Vec<SeriesSamples>> {
    tokio::task::block_in_place(|| read_blocking(node))
}

pub(crate) fn read_blocking(node: &Node) -> BTreeMap<String, Vec<SeriesSamples>> {
    let source =
        Source::new(node.reads(), TenantId::anonymous(), 10_000_000, Arc::new(AtomicBool::new(false)));
    let mut set = source.select(&Select { matchers: &[], range: TimeRange::ALL }).unwrap();
    let (mut samples, mut all) = (SeriesSamples::default(), BTreeMap::<_, Vec<_>>::new());
    while set.next(&mut samples).unwrap() {
        all.entry(set.labels().get("__name__").unwrap().to_owned()).or_default().push(samples.clone());
    }
    all.values_mut().for_each(|of_name| of_name.sort_by_key(|samples| samples.floats().is_none()));
    all
}

/// The content that a node must have after samples were written to these series at these times.
pub(crate) fn content_of<const N: usize>(
    series: [(&str, Vec<i64>); N],
) -> BTreeMap<String, Vec<SeriesSamples>> {
    let of = |(name, times): (&str, Vec<i64>)| {
        let floats = times.iter().map(|t| *t as f64).collect();
        let histograms = times.iter().map(|t| histogram(*t as f64)).collect();
        let both = vec![
            SeriesSamples::from(model::Samples { timestamps: times.clone(), values: floats }),
            SeriesSamples::from(model::Samples { timestamps: times, values: histograms }),
        ];
        (name.to_owned(), both)
    };
    series.into_iter().map(of).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn histograms_are_durable_and_apart_from_the_floats_of_the_same_labels() {
    let dir = tempfile::tempdir().unwrap();
    let node = node_with(dir.path(), |_| ()).await;
    // new series, known series, and a late sample
    for text in ["a 2000\nb 2000\na 3000", "b 4000\na 4000", "a 2500"] {
        let outcome = write_both(&node, text).await.unwrap();
        assert_eq!((outcome.samples, outcome.refused_samples), (2 * text.lines().count() as u64, 0));
    }
    let expected = content_of([("a", vec![2000, 2500, 3000, 4000]), ("b", vec![2000, 4000])]);
    assert_eq!(read(&node), expected);
    stop(node).await;

    let node = node_with(dir.path(), |_| ()).await;
    assert_eq!(read(&node), expected, "after a restart");
    let outcome = write_both(&node, "a 5000\nb 4000").await.unwrap();
    assert_eq!((outcome.samples, read(&node)["a"][1].len(), read(&node)["b"][1].len()), (4, 5, 2));
    stop(node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn histograms_outside_of_the_limits_are_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let node = node_with(dir.path(), |settings| settings.past_ms = 3_600_000).await;
    let now_ms = SystemClock.now_ms();
    let outcome = write_both(&node, &format!("a {}\na {now_ms}", now_ms - 7_200_000)).await.unwrap();
    assert_eq!((outcome.samples, outcome.refused_samples), (2, 2));
    assert_eq!(read(&node)["a"].iter().map(SeriesSamples::len).collect::<Vec<_>>(), [1, 1]);
    stop(node).await;
}
