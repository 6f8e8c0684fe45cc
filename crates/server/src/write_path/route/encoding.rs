//! Gives series of text lines the layout of encoded labels, for steps that need it.

use crate::partition::submission::Outcome;
use crate::refusal::Refusal;
use model::caps::BODY_BYTES_MAX;
use model::{Batch, LabelsBuilder, SeriesKey};
use protocol::LabelForm;
use stdx::budget::{IncrementalReservation, Reservation};

/// Limit on the bytes of a text and of its labels once they are encoded. The labels of a line are repeated for each of its
/// fields, so they can take a multiple of the text. Decoders count up to four bodies of them, as they are written; encoded,
/// they are a little longer. Without a limit, offsets would exceed 32 bits.
pub(super) const ENCODED_BYTES_MAX: usize = 8 * BODY_BYTES_MAX;

const _: () = assert!(ENCODED_BYTES_MAX < u32::MAX as usize, "encoded labels exceed u32 indexes");

/// Writes the labels of all series in the layout of [`model::labels`]. Series with invalid labels are refused, and lose
/// their samples. The request is refused if its bytes exceed `bytes_max`.
pub(super) fn encode_labels(
    seed: u64,
    form: &dyn LabelForm,
    batch: &mut Batch,
    builder: &mut LabelsBuilder,
    outcome: &mut Outcome,
    memory: &mut Reservation,
    bytes_max: usize,
) -> Result<(), Refusal> {
    let Batch { bytes, floats, .. } = batch;
    let mut reservation = IncrementalReservation::new(memory);
    for series in &mut floats.series {
        match form.labels_of(bytes, &series.labels, builder) {
            Ok(labels) => {
                if bytes.len() + labels.as_bytes().len() > bytes_max {
                    let message = format!("request and its labels take more than {bytes_max} bytes");
                    return Err(Refusal::too_large("decode", message));
                }
                let start = bytes.len() as u32;
                reservation.extend(bytes, labels.as_bytes())?;
                series.key = SeriesKey::of(labels.as_bytes(), seed);
                series.labels = start..bytes.len() as u32;
            }
            Err(error) => {
                outcome.refuse(error, series.samples.len() as u64, || form.describe(bytes, &series.labels));
                series.labels = 0..0;
                series.samples.end = series.samples.start;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::ErrorKind;
    use protocol::influx::{self, Format, Names, Precision};
    use protocol::{Body, Decoder as _, Encoding, Request};
    use std::sync::Arc;
    use stdx::budget::Account;

    #[test]
    fn labels_that_are_encoded_are_bounded() {
        let text = b"cpu,host=a x=1,y=1,z=1\n";
        let names = Arc::new(Names::default());
        let format = || Format { precision: Precision::Seconds, arrival_ms: 0, names: Arc::clone(&names) };
        let encoded = |bytes_max| {
            let mut memory = Account::new("test", 1 << 20).reserve(0).unwrap();
            let (mut batch, mut outcome) = (Batch::default(), Outcome::default());
            let body = Body { encoding: Encoding::Identity, bytes: text };
            let request = Request { format: format(), body };
            influx::Decoder::new(1).decode(request, &mut batch, &mut memory).unwrap();
            let builder = &mut LabelsBuilder::new();
            encode_labels(1, &*names, &mut batch, builder, &mut outcome, &mut memory, bytes_max)?;
            assert_eq!(outcome.refused_series, 0);
            Ok::<_, Refusal>(batch.bytes.len())
        };
        let bytes = encoded(ENCODED_BYTES_MAX).unwrap();
        assert_eq!(encoded(bytes).unwrap(), bytes);
        let refusal = encoded(bytes - 1).unwrap_err();
        assert_eq!((refusal.kind, refusal.reason), (ErrorKind::TooLarge, "decode"));
        assert!(refusal.message.contains(&(bytes - 1).to_string()), "{}", refusal.message);
    }
}
