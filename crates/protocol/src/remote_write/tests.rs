use super::*;
use crate::encode::{V1Encoder, V2Encoder};
use crate::{Body, Decoder as _};
use model::{Labels, STALE_NAN_BITS};

#[test]
fn both_versions_give_the_same_keys_and_samples() {
    let a = Labels::from_pairs(&[("__name__", "up"), ("job", "x")]);
    let b = Labels::from_pairs(&[("__name__", "up"), ("job", "y")]);
    let stale = f64::from_bits(STALE_NAN_BITS);
    let (mut v1, mut v2) = (V1Encoder::new(), V2Encoder::new());
    v1.series(a.as_ref(), &[1, -2], &[0.5, stale]);
    v1.series(b.as_ref(), &[3], &[-0.0]);
    v2.series(a.as_ref(), &[1, -2], &[0.5, stale]);
    v2.series(b.as_ref(), &[3], &[-0.0]);
    let mut memory = stdx::budget::Account::new("test", u64::MAX).reserve(0).unwrap();
    let mut decoder = Decoder::new(1);
    for (version, body) in [(Version::V1, v1.finish()), (Version::V2, v2.finish())] {
        let mut batch = Batch::default();
        decoder
            .decode(Request { format: version, body: Body::snappy(body) }, &mut batch, &mut memory)
            .unwrap();
        assert_eq!(batch.floats.series.len(), 2);
        assert_eq!(batch.label_bytes(&batch.floats.series[0]), a.as_bytes());
        assert_eq!(batch.floats.series[1].key, model::SeriesKey::of(b.as_bytes(), 1));
        assert_eq!(batch.floats.timestamps, [1, -2, 3]);
        let bits: Vec<_> = batch.floats.values.iter().map(|v| v.to_bits()).collect();
        assert_eq!(bits, [0.5f64.to_bits(), STALE_NAN_BITS, (-0.0f64).to_bits()]);
    }
}
