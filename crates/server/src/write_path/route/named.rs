//! The part of routing that applies Graphite's rules on names, if the tenant has no rules of its own, which come after them
//! ([`ruled`](super::ruled)).
//!
//! Rules may take long, so they are applied in turns, before any series is looked up to be written, because references keep the series of all
//! tenants in memory. What they say is remembered, or noted with the series. When the series is looked up, they are
//! asked again about names that they refuse, about new series that they rename, and about what was forgotten.

use super::{Load, Route, Routing, names_of};
use crate::refusal::Refusal;
use crate::write_path::names::{NameRules, Named};
use crate::write_path::turns::Turn;
use model::{BatchSeries, SeriesKey, SeriesRef};
use protocol::{EncodedLabels, LabelForm};
use stdx::budget::{Exhausted, IncrementalReservation};

/// Positions of the series about which the rules on names are asked.
#[derive(Debug, Default)]
pub(super) struct Undecided {
    positions: Vec<u32>,
    /// Number of those that are decided.
    done: usize,
}

impl Route {
    /// Applies the rules on names until the turn ends. Returns false if they must go on in another turn.
    pub(super) fn decide_names(&mut self, load: &mut Load<'_>, turn: &Turn) -> Result<bool, Refusal> {
        let Self { context, principal, arrival, progress } = self;
        let Some(names) = names_of(context, arrival) else { return Ok(true) };
        let mut turn = turn.begin(&*context.clock, names.cost());
        let state = context.tenant(&principal.tenant);
        let Load { form, batch, labels, memory } = load;
        let mut reservation = IncrementalReservation::new(memory);
        let undecided = progress.undecided.take();
        let form: &dyn LabelForm = if progress.is_encoded { &EncodedLabels } else { *form };
        let mut routing = Routing {
            context,
            tenant: &principal.tenant,
            state: &state,
            bytes: &batch.bytes,
            labels,
            form,
            names: Some(names),
            rules: None,
            waiting: arrival.waiting.as_deref(),
            progress,
            creates: false,
            written: Vec::new(),
        };
        // the protocols of Graphite have only floats
        let series = &batch.floats.series;
        let mut undecided = match undecided {
            Some(undecided) => undecided,
            None => Undecided { positions: routing.undecided(series, &mut reservation)?, done: 0 },
        };
        let mut is_done = true;
        while let Some(position) = undecided.positions.get(undecided.done) {
            let series = &series[*position as usize];
            if turn.is_over(series.labels.len()) {
                is_done = false;
                break;
            }
            routing.decide_name(series);
            undecided.done += 1;
        }
        progress.undecided = Some(undecided);
        Ok(is_done)
    }
}

impl Routing<'_> {
    /// The positions of the series that are not vetted, and of which nothing is remembered. Of several points of a series, each has a position.
    fn undecided(
        &self,
        series: &[BatchSeries],
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<Vec<u32>, Exhausted> {
        let mut undecided = Vec::new();
        let Some(names) = self.names else { return Ok(undecided) };
        let (version, partitions) = (names.version(), &self.context.partitions);
        for (number, partition) in partitions.iter().enumerate() {
            let head = partition.head.read();
            let head = head.tenant(self.tenant);
            let is_vetted = |key: SeriesKey| {
                head.is_some_and(|head| head.resolve(key).is_some_and(|known| head.is_vetted(known, version)))
            };
            for (position, series) in series.iter().enumerate() {
                if series.key.partition(partitions.len()) == number
                    && !series.samples.is_empty()
                    && !is_vetted(series.key)
                    && names.remembered(series.key).is_none()
                {
                    reservation.push(&mut undecided, position as u32)?;
                }
            }
        }
        Ok(undecided)
    }

    /// Asks the rules about a name, unless another point of the batch has.
    fn decide_name(&mut self, series: &BatchSeries) {
        let Some(names) = self.names else { return };
        if names.remembered(series.key).is_some() || self.is_vetted(series.key, names) {
            return;
        }
        // errors are found again when the series is looked up
        let Ok(labels) = self.form.labels_of(self.bytes, &series.labels, self.labels) else { return };
        let Ok(Named::Kept(labels)) = names.decide(series.key, labels, self.labels, self.context.seed) else {
            return;
        };
        let own = SeriesKey::of(labels.as_bytes(), self.context.seed);
        let partitions = &self.context.partitions;
        let head = partitions[own.partition(partitions.len())].head.read();
        match head.tenant(self.tenant).and_then(|head| Some((head, head.resolve(own)?))) {
            Some((head, known)) => head.vet(known, names.version()),
            None => names.remember_kept(series.key),
        }
    }

    pub(super) fn is_vetted(&self, key: SeriesKey, names: NameRules<'_>) -> bool {
        let partitions = &self.context.partitions;
        let head = partitions[key.partition(partitions.len())].head.read();
        let head = head.tenant(self.tenant);
        head.is_some_and(|head| head.resolve(key).is_some_and(|known| head.is_vetted(known, names.version())))
    }

    /// Notes that the rules on names leave a series as it is, so that they are not asked about its next points.
    pub(super) fn vet(&self, key: SeriesKey, known: SeriesRef) {
        let Some(names) = self.names else { return };
        let partitions = &self.context.partitions;
        let head = partitions[key.partition(partitions.len())].head.read();
        if let Some(head) = head.tenant(self.tenant) {
            head.vet(known, names.version());
        }
    }
}
