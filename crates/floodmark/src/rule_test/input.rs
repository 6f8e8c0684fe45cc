//! Reads series for a trial: from a recording, or from Prometheus' text.

use super::trial::Trial;
use anyhow::{Result, bail, ensure};
use lab::capture::file::{Ending, Event, Reader};
use model::{LabelsBuilder, LabelsRef, TenantId};
use protocol::exposition::{self, Dialect, LINE_BYTES_MAX, Line};
use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;

const MAGIC: &[u8] = b"FLDMKREC";

/// Reads all series. Returns a note if the end of a recording is missing.
pub(super) fn read(input: impl Read, trial: &mut Trial<'_>) -> Result<Option<String>> {
    let mut input = BufReader::new(input);
    // a short first read must not decide what the input is
    let mut first = Vec::with_capacity(MAGIC.len());
    input.by_ref().take(MAGIC.len() as u64).read_to_end(&mut first)?;
    let is_recording = first == MAGIC;
    let whole = first.as_slice().chain(input);
    if is_recording { recording(whole, trial) } else { text(whole, trial).map(|()| None) }
}

fn recording(input: impl Read, trial: &mut Trial<'_>) -> Result<Option<String>> {
    let mut reader = Reader::open(input)?;
    let mut series: Vec<Arc<[u8]>> = Vec::new();
    let mut builder = LabelsBuilder::new();
    while let Some(event) = reader.next()? {
        match event {
            Event::Forget => series.clear(),
            Event::Series(labels) => series.push(labels),
            Event::Gap(..) => {}
            Event::Request(request) => {
                let tenant = match &*request.tenant {
                    "" => TenantId::anonymous(),
                    name => TenantId::parse(name)?,
                };
                for item in &request.items {
                    let Some(labels) = series.get(item.series as usize) else { continue };
                    ensure!(
                        model::labels::is_canonical(labels),
                        "the recording has labels that are not sorted"
                    );
                    let samples = (item.samples.len() + item.histograms.len()) as u64;
                    trial.add(&tenant, LabelsRef::from_canonical(labels), samples, &mut builder)?;
                }
            }
        }
    }
    Ok(match reader.ending() {
        Some(Ending::Torn { at }) => Some(format!("the recording ends within the block at byte {at}")),
        Some(Ending::Damaged { at, why }) => Some(format!("the recording is damaged at byte {at}: {why}")),
        Some(Ending::Whole) | None => None,
    })
}

fn text(mut input: impl BufRead, trial: &mut Trial<'_>) -> Result<()> {
    let (mut line, mut number) = (Vec::new(), 0u64);
    let (mut parser, mut builder) = (LabelsBuilder::new(), LabelsBuilder::new());
    loop {
        line.clear();
        number += 1;
        let most = LINE_BYTES_MAX as u64 + 1;
        if input.by_ref().take(most).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        } else if line.len() > LINE_BYTES_MAX {
            bail!("line {number} has more than {LINE_BYTES_MAX} bytes");
        }
        match exposition::parse(&line, Dialect::Prometheus, &mut parser) {
            Ok(Line::Sample { labels: Ok(labels), .. }) => {
                trial.add(&TenantId::anonymous(), labels.as_ref(), 1, &mut builder)?;
            }
            Ok(Line::Sample { labels: Err(error), .. }) => bail!("line {number}: {error}"),
            Ok(Line::Nothing | Line::End) => {}
            Err(error) => bail!("line {number}, {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::Protocol;
    use lab::capture::file::Writer;
    use lab::capture::file::conceal::{Conceal, Concealer};
    use lab::capture::file::request::Parsed;
    use model::Labels;
    use protocol::encode::V1Encoder;
    use rules::IngestRules;
    use std::io::Cursor;

    const RULES: &str = "
default:
  - {source_labels: [__name__], regex: go_.*, action: drop}
tenants:
  team-a: [{regex: pod, action: labeldrop}]
";

    /// A recording with two series of each of two tenants, which are sent three times.
    fn recorded() -> Vec<u8> {
        let concealer = Concealer::new(Conceal::default(), [0; 16]);
        let mut writer = Writer::begin(Cursor::new(Vec::new()), 0, concealer).unwrap();
        let mut parsed = Parsed::default();
        for round in 0..3 {
            for tenant in ["", "team-a"] {
                let mut encoder = V1Encoder::new();
                for labels in [&[("__name__", "go_x")][..], &[("__name__", "up"), ("pod", "1")]] {
                    encoder.series(Labels::from_pairs(labels).as_ref(), &[round, round + 10], &[1.0, 2.0]);
                }
                parsed.read(Protocol::V1, encoder.finish()).unwrap();
                writer.append(round, Protocol::V1, tenant, &parsed).unwrap();
            }
        }
        writer.flush().unwrap();
        let mut bytes = Vec::new();
        writer
            .sync(|file| {
                bytes.clone_from(file.get_ref());
                Ok(())
            })
            .unwrap();
        bytes
    }

    fn totals(input: &[u8], tenant: Option<&str>) -> Result<([u64; 5], Option<String>)> {
        let rules = IngestRules::parse(RULES).unwrap();
        let mut trial = Trial::new(&rules, tenant.map(|name| TenantId::parse(name).unwrap()), 1);
        let damage = read(input, &mut trial)?;
        let totals = &trial.totals;
        let stored = trial.stored_series() as u64;
        Ok(([totals.series, totals.samples, totals.dropped_series, totals.dropped_samples, stored], damage))
    }

    #[test]
    fn a_recording_has_the_rules_of_each_tenant() {
        let bytes = recorded();
        assert_eq!(totals(&bytes, None).unwrap(), ([4, 24, 1, 6, 3], None));
        // the series of both tenants are those of one
        assert_eq!(totals(&bytes, Some("x")).unwrap(), ([2, 24, 1, 12, 1], None));
        assert_eq!(totals(&bytes, Some("team-a")).unwrap(), ([2, 24, 0, 0, 2], None));
        let (cut, damage) = totals(&bytes[..bytes.len() - 1], None).unwrap();
        assert!(cut[0] == 0 && damage.unwrap().contains("ends within the block at byte 32"));
    }

    #[test]
    fn text_is_read_line_by_line() {
        let text = b"# HELP up Help.\nup{pod=\"1\"} 1\n\ngo_x 1 1700000000000\nup{pod=\"1\"} 2";
        assert_eq!(totals(text, None).unwrap().0, [2, 3, 1, 1, 1]);
        assert_eq!(totals(b"", None).unwrap().0, [0; 5]);
        assert_eq!(totals(b"up 1", None).unwrap().0, [1, 1, 0, 0, 1]);
        let error = totals(b"up 1\nup{ 1\n", None).unwrap_err().to_string();
        assert!(error.starts_with("line 2, column "), "{error}");
        let mut long = vec![b'x'; LINE_BYTES_MAX + 2];
        assert!(totals(&long, None).unwrap_err().to_string().contains("line 1 has more than"));
        long.truncate(LINE_BYTES_MAX);
        assert!(totals(&long, None).unwrap_err().to_string().starts_with("line 1, column "));
    }
}
