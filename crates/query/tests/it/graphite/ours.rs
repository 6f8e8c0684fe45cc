//! Floodmark's Graphite engine over the same data.

use super::data::{Data, Event};
use super::oracle::{Line, Points, Range};
use jiff::tz::TimeZone;
use model::labels::METRIC_NAME;
use model::{Labels, Samples};
use query::graphite::label_source::Schemas;
use query::graphite::{self, Archive, LabelSource, Options, Schema, Selection, Source, source};
use query::memory_source::MemorySource;
use query::{Allowance, QueryError, SourceError};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

pub(super) struct Floodmark {
    series: MemorySource,
    schemas: BySeries,
    events: Vec<Event>,
}

/// The schema of each series by its name.
struct BySeries(BTreeMap<String, Schema>);

impl Schemas for BySeries {
    fn schema_of(&self, name: &str) -> &Schema {
        &self.0[name]
    }

    fn step_max_s(&self) -> i64 {
        self.0.values().map(Schema::step_max_s).max().unwrap_or(1)
    }

    fn around_s(&self, from_s: i64, until_s: i64, now_s: i64) -> i64 {
        self.0.values().map(|schema| schema.around_s(from_s, until_s, now_s)).max().unwrap_or(0)
    }
}

/// Memory of an evaluation, in values of 16 bytes.
const SAMPLES_MAX: u64 = 50 << 20;

impl Floodmark {
    pub(super) fn new(data: &Data) -> Self {
        let (mut series, mut schemas) = (MemorySource::new(), BTreeMap::new());
        for stored in &data.series {
            let mut samples = Samples::default();
            let times = (stored.start_s..).step_by(stored.step_s as usize);
            for (time_s, value) in times.zip(&stored.values).filter(|(_, value)| !value.is_nan()) {
                samples.push(time_s * 1000, *value);
            }
            series.add(labels_of(&stored.name), samples);
            let retention_s = stored.points * stored.step_s;
            let archives = vec![Archive { step_s: stored.step_s, retention_s }];
            schemas.insert(stored.name.clone(), Schema { archives, ..Schema::every(stored.step_s) });
        }
        Self { series, schemas: BySeries(schemas), events: data.events.clone() }
    }

    pub(super) fn render(
        &self,
        target: &str,
        range: Range,
        x_files_factor: Option<f64>,
    ) -> Result<Vec<Line>, QueryError> {
        self.render_with(target, range, x_files_factor, &[])
    }

    /// Like [`Self::render`], with values for the variables of templates.
    pub(super) fn render_with(
        &self,
        target: &str,
        range: Range,
        x_files_factor: Option<f64>,
        variables: &[(String, String)],
    ) -> Result<Vec<Line>, QueryError> {
        let series = self.evaluate(&[target], range, x_files_factor, variables)?;
        Ok(series.into_iter().map(line).collect())
    }

    /// The points of an answer that has room for `points_max` points of each series.
    pub(super) fn points(&self, targets: &[&str], range: Range, points_max: u64) -> Vec<Points> {
        let mut all = self.evaluate(targets, range, None, &[]).expect("cannot evaluate");
        graphite::consolidate::fit(&mut all, points_max);
        all.iter().map(|series| (series.name.clone(), series.points().collect())).collect()
    }

    fn evaluate(
        &self,
        targets: &[&str],
        range: Range,
        x_files_factor: Option<f64>,
        variables: &[(String, String)],
    ) -> Result<Vec<graphite::Series>, QueryError> {
        let canceled = AtomicBool::new(false);
        let options = Options {
            from_s: range.from_s,
            until_s: range.until_s,
            now_s: range.now_s,
            time_zone: &TimeZone::get(range.time_zone).expect("the time zone is unknown"),
            x_files_factor,
            max_data_points: None,
            variables,
            samples_max: SAMPLES_MAX,
            kept_free: SAMPLES_MAX / 2,
            listed_bytes: 0,
            built: &Allowance::new(1 << 20),
            canceled: &canceled,
            usage: None,
        };
        let mut allowance = Allowance::new(1 << 20);
        let targets = targets.iter().map(|target| graphite::parse(target, variables, &mut allowance));
        let targets = targets.collect::<Result<Vec<_>, _>>()?;
        let source =
            WithEvents { series: LabelSource::new(&self.series, &self.schemas), events: &self.events };
        graphite::render(&targets, &source, &options)
    }
}

fn labels_of(name: &str) -> Labels {
    let (metric, tags) = name.split_once(';').unwrap_or((name, ""));
    let tags = tags.split(';').filter_map(|tag| tag.split_once('='));
    let pairs: Vec<_> = std::iter::once((METRIC_NAME, metric)).chain(tags).collect();
    Labels::from_pairs(&pairs)
}

fn line(series: graphite::Series) -> Line {
    let tags = series.tags.iter().map(|(tag, value)| (tag.to_owned(), value.to_owned())).collect();
    let graphite::Series { name, start_s, end_s, step_s, values, .. } = series;
    Line { name, start_s, end_s, step_s, values, tags }
}

#[derive(Debug)]
struct WithEvents<'a> {
    series: LabelSource<'a>,
    events: &'a [Event],
}

impl Source for WithEvents<'_> {
    fn select(&self, select: &source::Select<'_>) -> Result<Box<dyn Selection + '_>, SourceError> {
        self.series.select(select)
    }

    fn events(
        &self,
        tags: &[&str],
        from_s: i64,
        until_s: i64,
        each: &mut dyn FnMut(i64),
    ) -> Result<(), SourceError> {
        let has_tags = |event: &&Event| tags.iter().all(|tag| event.tags.contains(tag));
        let events = self.events.iter().filter(has_tags);
        events.map(|event| event.when_s).filter(|when_s| (from_s..until_s).contains(when_s)).for_each(each);
        Ok(())
    }
}
