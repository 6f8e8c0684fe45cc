use super::*;
use crate::graphite_rules::{RuleFiles, Texts};
use crate::watched::Source;
use model::BatchSeries;
use model::labels::METRIC_NAME;

const SEED: u64 = 3;
const MIB: u64 = 1 << 20;

/// An aggregator with its clock.
struct Fixture {
    aggregator: Aggregator,
    account: Account,
    registry: Registry,
    now_ms: i64,
}

fn rules(aggregator: &str, rewrite: &str, deny: &str) -> Arc<Rules> {
    let text = |text: &str| Some(text.to_owned());
    let texts: Texts = [None, None, text(aggregator), text(rewrite), None, text(deny)];
    Arc::new(RuleFiles::default().parse(&texts).unwrap())
}

impl Fixture {
    /// All rules are in force from 999 s on, so intervals are complete from 1000 s on.
    fn new(rules: Arc<Rules>, bytes: u64) -> Self {
        let (account, registry) = (Account::new("aggregator", bytes), Registry::new());
        let decoders = Account::new("decoders", MIB);
        let aggregator = Aggregator::new(account.clone(), decoders, SEED, 2, rules, 999_000, &registry);
        Self { aggregator, account, registry, now_ms: 1_000_000 }
    }

    fn in_force(&self) -> Arc<InForce> {
        Arc::clone(&self.aggregator.in_force.read())
    }

    /// The contributions of a body with points of a tenant, by rules that were in force when it began to be decoded. Times are
    /// in seconds. Consecutive points of a name are one series. Also returns the names of the points that are stored.
    fn contributions(
        &self,
        in_force: Arc<InForce>,
        tenant: &str,
        points: &[(&str, i64, f64)],
    ) -> (Option<Box<Contributions>>, Vec<String>) {
        let tenant = TenantId::parse(tenant).unwrap();
        let (mut batch, mut builder, mut names) = (Batch::default(), LabelsBuilder::new(), Vec::new());
        for of_name in points.chunk_by(|a, b| a.0 == b.0) {
            builder.clear();
            builder.push(METRIC_NAME, of_name[0].0);
            let labels = builder.build_series().unwrap();
            let (start, sample) = (batch.bytes.len() as u32, batch.floats.values.len() as u32);
            batch.bytes.extend_from_slice(labels.as_bytes());
            let (key, range) = (SeriesKey::of(labels.as_bytes(), SEED), start..batch.bytes.len() as u32);
            let samples = sample..sample + of_name.len() as u32;
            batch.floats.series.push(BatchSeries { key, labels: range, samples });
            for (name, at_s, value) in of_name {
                batch.floats.timestamps.push(at_s * 1000);
                batch.floats.values.push(*value);
                names.push((*name).to_owned());
            }
        }
        let inflight = Account::new("inflight", 8 * MIB);
        let mut memory = inflight.reserve(0).unwrap();
        let (aggregator, tenant) = (&self.aggregator, (&tenant, 1));
        let contributions = aggregator
            .contributions_by(in_force, tenant, &mut batch, &mut builder, &mut memory, self.now_ms)
            .unwrap();
        let samples = batch.floats.series.iter().flat_map(|series| series.samples.clone());
        (contributions, samples.map(|sample| names[sample as usize].clone()).collect())
    }

    /// Adds points of a tenant. Returns the names of those that are stored.
    fn add_as(&self, tenant: &str, points: &[(&str, i64, f64)]) -> Vec<String> {
        let (contributions, mut stored) = self.contributions(self.in_force(), tenant, points);
        if let Some(contributions) = contributions {
            stored.extend(self.count(tenant, contributions).into_iter().map(|(name, ..)| name));
        }
        stored
    }

    /// Counts the points of a durable body. Returns those that outputs have taken and cannot have, with times in seconds.
    fn count(&self, tenant: &str, contributions: Box<Contributions>) -> Vec<(String, i64, f64)> {
        let tenant = TenantId::parse(tenant).unwrap();
        Self::given_back(self.aggregator.add(&tenant, contributions, self.now_ms))
    }

    /// Leaves out the points of a refused body. Returns those that outputs have taken, with times in seconds.
    fn leave_out(&self, tenant: &str, contributions: Box<Contributions>) -> Vec<(String, i64, f64)> {
        let tenant = TenantId::parse(tenant).unwrap();
        Self::given_back(self.aggregator.leave_out(&tenant, contributions, self.now_ms))
    }

    fn given_back(given_back: Option<GivenBack>) -> Vec<(String, i64, f64)> {
        let Some(GivenBack { batch, memory, lost }) = given_back else { return Vec::new() };
        assert_eq!((memory.bytes(), lost), (batch.memory_bytes() as u64, 0));
        let (mut found, mut builder) = (Vec::new(), LabelsBuilder::new());
        for BatchSeries { key, labels, samples } in &batch.floats.series {
            let bytes = &batch.bytes[labels.start as usize..labels.end as usize];
            assert_eq!(*key, SeriesKey::of(bytes, SEED));
            let labels = labels_of(bytes, &mut builder).unwrap();
            let name = labels.as_ref().get(METRIC_NAME).unwrap();
            for i in samples.start as usize..samples.end as usize {
                found.push((name.to_owned(), batch.floats.timestamps[i] / 1000, batch.floats.values[i]));
            }
        }
        found
    }

    fn add(&self, points: &[(&str, i64, f64)]) -> Vec<String> {
        self.add_as("anonymous", points)
    }

    /// Moves the clock, and returns what is computed then, in order. Times are in seconds.
    fn at(&mut self, now_s: i64) -> Vec<(String, i64, f64)> {
        self.now_ms = now_s * 1000;
        self.round(self.aggregator.due(self.now_ms), false)
    }

    /// Like [`Self::at`], when the server stops.
    fn stop_at(&mut self, now_s: i64) -> Vec<(String, i64, f64)> {
        self.now_ms = now_s * 1000;
        self.round(self.aggregator.tenants(), true)
    }

    fn round(&self, tenants: Vec<TenantId>, at_once: bool) -> Vec<(String, i64, f64)> {
        let mut found = Vec::new();
        for tenant in tenants {
            let mut position = 0;
            while let Some(ended) = self.aggregator.next_ended(&tenant, &mut position, self.now_ms, at_once) {
                found.extend(ended.points.iter().map(|(ms, value)| (ended.name.clone(), ms / 1000, *value)));
            }
        }
        found.sort_by(|a, b| a.partial_cmp(b).unwrap());
        found
    }

    /// What is remembered about a name.
    fn remembered(&self, name: &str) -> Option<Arc<Matched>> {
        let mut builder = LabelsBuilder::new();
        builder.push(METRIC_NAME, name);
        let key = SeriesKey::of(builder.build_series().unwrap().as_bytes(), SEED);
        let key = self.in_force().name_key(key);
        self.aggregator.memo.matched(key).or_else(|| self.aggregator.refused.matched(key))
    }

    fn metric(&self, name: &str) -> f64 {
        let text = self.registry.render();
        let line = text.lines().find(|line| line.rsplit_once(' ').is_some_and(|(found, _)| found == name));
        line.and_then(|line| line.rsplit_once(' ')).map_or(0.0, |(_, value)| value.parse().unwrap())
    }

    fn missed(&self, reason: &str) -> f64 {
        self.metric(&format!("floodmark_graphite_aggregator_missed_total{{reason=\"{reason}\"}}"))
    }
}

fn computed(points: &[(&str, i64, f64)]) -> Vec<(String, i64, f64)> {
    points.iter().map(|(name, at_s, value)| ((*name).to_owned(), *at_s, *value)).collect()
}

#[test]
fn names_pass_the_lists_and_pre_before_and_post_after() {
    let rules =
        rules("<x>.all_sum (10) = sum <x>.in.*\n", "[pre]\n^old\\. = new.\n[post]\n_sum$ =\n", "^no\\.\n");
    let mut fixture = Fixture::new(rules, MIB);
    fixture.now_ms = 1_012_000;
    let points =
        [("old.in.a", 1011, 1.0), ("new.in.b", 1012, 2.0), ("no.in.c", 1012, 4.0), ("other", 1012, 8.0)];
    for _ in 0..2 {
        assert_eq!(fixture.add(&points).len(), 4, "inputs are stored");
    }
    assert_eq!(fixture.at(1021), computed(&[("new.all", 1010, 6.0)]));
    assert_eq!(fixture.metric("floodmark_graphite_aggregator_points_total"), 4.0);
    assert_eq!(fixture.metric("floodmark_graphite_aggregator_outputs"), 1.0);
    assert_eq!(fixture.metric("floodmark_graphite_aggregator_values"), 4.0);
    assert_eq!(fixture.at(1050), []);
    assert_eq!(fixture.metric("floodmark_graphite_aggregator_outputs"), 0.0);
    assert_eq!(fixture.metric("floodmark_graphite_aggregator_values"), 0.0);
    assert!(fixture.at(1060).is_empty() && fixture.aggregator.tenants().is_empty());
}

#[test]
fn tenants_have_outputs_of_their_own() {
    let mut fixture = Fixture::new(rules("all (10) = sum *\n", "", ""), MIB);
    fixture.add_as("a", &[("x", 1010, 16.0)]);
    fixture.aggregator.delete(&TenantId::parse("a").unwrap());
    assert_eq!(fixture.metric("floodmark_graphite_aggregator_outputs"), 0.0);
    assert_eq!(fixture.metric("floodmark_graphite_aggregator_values"), 0.0);
    fixture.add_as("a", &[("x", 1010, 1.0)]);
    fixture.add_as("b", &[("x", 1010, 2.0), ("y", 1010, 4.0)]);
    assert_eq!(fixture.at(1021), computed(&[("all", 1010, 1.0), ("all", 1010, 6.0)]));
}

#[test]
fn an_output_replaces_points_of_its_own_name_while_it_can_have_them() {
    let mut fixture = Fixture::new(rules("<m> (10) = sum <<m>>\n", "", ""), MIB);
    fixture.now_ms = 1_041_000;
    // of several senders
    for _ in 0..3 {
        assert_eq!(fixture.add(&[("a", 1040, 1.0)]), [""; 0]);
    }
    // too old, about to be too old, too new
    assert_eq!(fixture.add(&[("a", 1019, 1.0), ("a", 1029, 1.0), ("b", 1070, 1.0)]), ["a", "a", "b"]);
    assert_eq!((fixture.missed("late"), fixture.missed("early")), (2.0, 1.0));
    assert_eq!(fixture.at(1051), computed(&[("a", 1040, 3.0)]));
    // from before the rule
    let mut fixture = Fixture::new(rules("<m> (10) = sum <<m>>\n", "", ""), MIB);
    fixture.now_ms = 1_001_000;
    assert_eq!(fixture.add(&[("a", 999, 1.0)]), ["a"]);
    assert_eq!(fixture.at(1051), []);
    assert_eq!(fixture.metric("floodmark_graphite_aggregator_incomplete_total"), 1.0);
}

#[test]
fn after_a_change_only_other_rules_begin_anew() {
    let same = "same (10) = sum *\n";
    let mut fixture = Fixture::new(rules(&format!("{same}old (10) = sum *\n"), "", ""), MIB);
    let point = [("x", 1012, 1.0)];
    fixture.now_ms = 1_002_000;
    fixture.add(&[("x", 1002, 1.0)]);
    fixture.now_ms = 1_013_000;
    fixture.add(&point);
    fixture.aggregator.adopt(&rules(&format!("# c\n{same}new (10) = max *\n"), "", ""), fixture.now_ms);
    fixture.add(&point);
    // what had ended is computed for the last time
    assert_eq!(fixture.at(1013), computed(&[("old", 1000, 1.0), ("same", 1000, 1.0)]));
    assert_eq!(fixture.at(1021), computed(&[("same", 1010, 2.0)]));
    fixture.add(&[("x", 1021, 5.0)]);
    assert_eq!(fixture.at(1031), computed(&[("new", 1020, 5.0), ("same", 1020, 5.0)]));
    // another rule contributes to an output that exists
    fixture.add(&[("x", 1031, 1.0), ("a.b", 1032, 1.0)]);
    let more = rules(&format!("{same}same (10) = sum *.*\n"), "", "");
    fixture.aggregator.adopt(&more, fixture.now_ms);
    fixture.add(&[("x", 1032, 1.0), ("a.b", 1032, 1.0)]);
    assert_eq!(fixture.at(1041), []);
    fixture.add(&[("x", 1042, 1.0), ("a.b", 1042, 1.0)]);
    assert_eq!(fixture.at(1051), computed(&[("same", 1040, 2.0)]));
    // a change of the names that are inputs is a change of all rules
    fixture.add(&[("x", 1052, 1.0)]);
    fixture.aggregator.adopt(&rules(same, "[pre]\nx = y\n", ""), fixture.now_ms);
    fixture.add(&[("x", 1052, 1.0)]);
    assert_eq!(fixture.at(1061), []);
    fixture.aggregator.adopt(&rules("", "", ""), fixture.now_ms);
    assert_eq!(fixture.at(1061), []);
    assert_eq!(fixture.metric("floodmark_graphite_aggregator_outputs"), 0.0);
    assert_eq!(fixture.metric("floodmark_graphite_aggregator_values"), 0.0);
}

#[test]
fn a_rule_that_ends_does_not_end_an_output_of_another_rule() {
    let (a, b) = ("all (60) = sum a.*\n", "all (60) = sum b.*\n");
    let mut fixture = Fixture::new(rules(&format!("{a}{b}"), "", ""), MIB);
    fixture.now_ms = 1_030_000;
    fixture.add(&[("a.x", 1025, 1.0), ("b.x", 1025, 2.0)]);
    fixture.now_ms = 1_090_000;
    fixture.add(&[("a.x", 1085, 1.0), ("b.x", 1085, 2.0)]);
    fixture.now_ms = 1_110_000;
    fixture.aggregator.adopt(&rules(a, "", ""), fixture.now_ms);
    fixture.add(&[("a.x", 1115, 1.0), ("b.x", 1115, 2.0)]);
    assert_eq!(fixture.at(1110), computed(&[("all", 1020, 3.0)]));
    // of the interval in which the rule ended, points are missing, and of the one before, none
    assert_eq!(fixture.at(1150), []);
    assert_eq!(fixture.metric("floodmark_graphite_aggregator_incomplete_total"), 1.0);
    fixture.add(&[("a.x", 1021, 16.0), ("a.x", 1145, 4.0)]);
    assert_eq!(fixture.at(1210), computed(&[("all", 1020, 19.0), ("all", 1140, 4.0)]));
    fixture.aggregator.adopt(&rules("", "", ""), fixture.now_ms);
    assert_eq!(fixture.at(1210), []);
    assert_eq!(fixture.metric("floodmark_graphite_aggregator_outputs"), 0.0);
    assert_eq!(fixture.metric("floodmark_graphite_aggregator_values"), 0.0);
}

#[test]
fn a_rule_does_not_go_on_with_an_output_of_a_rule_that_has_ended() {
    let (a, b) = ("all (60) = sum a.*\n", "all (60) = sum b.*\n");
    let mut fixture = Fixture::new(rules(&format!("{a}{b}"), "", ""), MIB);
    fixture.now_ms = 1_070_000;
    fixture.add(&[("b.x", 1070, 1.0)]);
    fixture.now_ms = 1_082_000;
    fixture.add(&[("b.x", 1082, 1.0)]);
    fixture.aggregator.adopt(&rules(a, "", ""), fixture.now_ms);
    fixture.add(&[("a.x", 1079, 2.0), ("a.x", 1082, 2.0)]);
    assert_eq!(fixture.at(1146), []);
    fixture.add(&[("a.x", 1079, 2.0), ("a.x", 1141, 2.0)]);
    assert_eq!(fixture.at(1206), computed(&[("all", 1140, 2.0)]));
}

#[test]
fn a_body_that_is_decoded_while_rules_change_counts_in_rules_that_do_not() {
    let same = "same (10) = sum *\n";
    let mut fixture = Fixture::new(rules(&format!("{same}old (10) = sum *\n"), "", ""), MIB);
    fixture.add(&[("x", 1010, 1.0)]);
    let before = fixture.in_force();
    fixture.aggregator.adopt(&rules(&format!("{same}new (10) = sum *\n"), "", ""), fixture.now_ms);
    let (contributions, _) =
        fixture.contributions(before, "anonymous", &[("x", 1010, 2.0), ("y", 1010, 4.0)]);
    let tenant = TenantId::parse("anonymous").unwrap();
    fixture.aggregator.add(&tenant, contributions.unwrap(), fixture.now_ms);
    assert_eq!(fixture.at(1021), computed(&[("new", 1010, 6.0), ("same", 1010, 7.0)]));
    // nothing of the rules before is remembered
    fixture.add(&[("x", 1021, 1.0), ("y", 1021, 1.0)]);
    assert_eq!(fixture.at(1031), computed(&[("new", 1020, 2.0), ("same", 1020, 2.0)]));
}

#[test]
fn an_interval_whose_delay_is_not_over_is_not_computed_at_the_end() {
    let text = "all (60) = sum *\n";
    for (end_s, expected) in [(1083, computed(&[])), (1086, computed(&[("all", 1020, 1.0)]))] {
        let fixture = || {
            let mut fixture = Fixture::new(rules(text, "", ""), MIB);
            fixture.now_ms = 1_030_000;
            fixture.add(&[("x", 1030, 1.0)]);
            fixture
        };
        assert_eq!(fixture().stop_at(end_s), expected, "the server stops at {end_s}");
        let mut fixture = fixture();
        fixture.aggregator.adopt(&rules("", "", ""), end_s * 1000);
        assert_eq!(fixture.at(end_s + 10), expected, "the rule ends at {end_s}");
    }
    // a value that has changed is written when the server stops, although it is not due yet
    let mut fixture = Fixture::new(rules(text, "", ""), MIB);
    fixture.now_ms = 1_030_000;
    fixture.add(&[("x", 1030, 1.0)]);
    assert_eq!(fixture.at(1086), computed(&[("all", 1020, 1.0)]));
    fixture.add(&[("x", 1031, 1.0)]);
    assert_eq!(fixture.stop_at(1090), computed(&[("all", 1020, 2.0)]));
}

#[test]
fn a_point_is_stored_if_the_output_that_would_replace_it_cannot_have_it() {
    let identity = "<m> (10) = sum <<m>>\n";
    // the output was refused before, so the interval is incomplete
    let mut fixture = Fixture::new(rules(identity, "", ""), MIB);
    fixture.now_ms = 1_011_000;
    let all = fixture.account.reserve(MIB - fixture.account.used_bytes()).unwrap();
    assert_eq!(fixture.add(&[("a", 1010, 1.0)]), ["a"]);
    drop(all);
    assert_eq!(fixture.add(&[("a", 1011, 1.0)]), ["a"]);
    fixture.now_ms = 1_021_000;
    assert_eq!(fixture.add(&[("a", 1021, 1.0)]), [""; 0]);
    // another rule begins, but the interval has points that are stored nowhere else
    fixture.aggregator.adopt(&rules(&format!("{identity}a (10) = sum b\n"), "", ""), fixture.now_ms);
    fixture.add(&[("b", 1021, 2.0)]);
    assert_eq!(fixture.add(&[("a", 1022, 4.0)]), [""; 0]);
    assert_eq!(fixture.at(1031), computed(&[("a", 1020, 7.0), ("b", 1020, 2.0)]));
    // without memory for the values of a quantile
    let mut fixture = Fixture::new(rules("<m> (10) = p50 <<m>>\n", "", ""), MIB);
    fixture.now_ms = 1_011_000;
    fixture.add(&[("a", 1010, 1.0)]);
    let all = fixture.account.reserve(MIB - fixture.account.used_bytes()).unwrap();
    assert_eq!(fixture.add(&[("a", 1010, 1.0); 4]), ["a"]);
    assert_eq!(fixture.missed("memory"), 1.0);
    assert_eq!(fixture.add(&[("a", 1011, 1.0)]), ["a"]);
    drop(all);
    // the output's own name is not valid
    let fixture =
        Fixture::new(rules(&format!("{identity}all (10) = sum a\n"), "[post]\n^a$ = a;y\n", ""), MIB);
    assert_eq!(fixture.add(&[("a", 1001, 1.0)]), ["a"]);
    // it will be too old when the body is durable
    let mut fixture = Fixture::new(rules(identity, "", ""), MIB);
    fixture.now_ms = 1_041_000;
    let points = [("a", 1029, 1.0), ("a", 1040, 2.0), ("a", 1030, 4.0), ("a", 1019, 8.0)];
    assert_eq!(fixture.add(&points), ["a"; 2]);
    assert_eq!(fixture.at(1051), computed(&[("a", 1030, 4.0), ("a", 1040, 2.0)]));
}

#[test]
fn a_point_that_is_stored_counts_in_outputs_that_do_not_replace_it() {
    let mut fixture = Fixture::new(rules("<m> (10) = sum <<m>>\nall (10) = sum a\n", "", ""), MIB);
    fixture.now_ms = 1_041_000;
    assert_eq!(fixture.add(&[("a", 1029, 1.0), ("a", 1040, 2.0)]), ["a"]);
    assert_eq!(fixture.at(1051), computed(&[("a", 1040, 2.0), ("all", 1020, 1.0), ("all", 1040, 2.0)]));
    assert_eq!(fixture.missed("late"), 1.0);
}

/// Points that are not stored are computed, even if others of their interval are missing.
#[test]
fn points_that_an_output_has_taken_are_not_lost() {
    let identity = "<m> (10) = sum <<m>>\n";
    let fixture = || {
        let mut fixture = Fixture::new(rules(identity, "", ""), MIB);
        fixture.now_ms = 1_011_000;
        assert_eq!(fixture.add(&[("a", 1009, 1.0), ("a", 1010, 1.0), ("a", 1011, 2.0)]), [""; 0]);
        fixture
    };
    let both = computed(&[("a", 1000, 1.0), ("a", 1010, 3.0)]);
    // the server stops
    let mut stopped = fixture();
    assert_eq!(stopped.stop_at(1012), both);
    assert_eq!(stopped.stop_at(1012), []);
    // the rule ends
    let mut ended = fixture();
    ended.aggregator.adopt(&rules("", "", ""), 1_012_000);
    assert_eq!(ended.at(1012), both);
    assert_eq!(ended.metric("floodmark_graphite_aggregator_outputs"), 0.0);
    assert_eq!(ended.metric("floodmark_graphite_aggregator_values"), 0.0);
    // the names that are inputs change
    let mut changed = fixture();
    changed.aggregator.adopt(&rules(identity, "[pre]\nx = y\n", ""), 1_012_000);
    assert_eq!(changed.add(&[("a", 1012, 1.0)]), ["a"]);
    assert_eq!(changed.at(1012), both);
    // a sender that is ahead is noticed before the body is durable
    let mut fixture = Fixture::new(rules(identity, "", ""), MIB);
    fixture.now_ms = 1_003_000;
    let taken = [("a", 1003, 1.0), ("a", 1004, 2.0)];
    let (contributions, stored) = fixture.contributions(fixture.in_force(), "anonymous", &taken);
    assert_eq!(stored, [""; 0]);
    assert_eq!(fixture.add(&[("a", 1024, 1.0), ("a", 1005, 8.0)]), ["a"]);
    let tenant = TenantId::parse("anonymous").unwrap();
    fixture.aggregator.add(&tenant, contributions.unwrap(), fixture.now_ms);
    assert_eq!(fixture.add(&[("a", 1006, 4.0)]), [""; 0]);
    assert_eq!(fixture.at(1031), computed(&[("a", 1000, 7.0), ("a", 1020, 1.0)]));
}

/// It takes long until a body is durable. Meanwhile, its points may have become too old, their rule may have ended, and the server
/// may have begun to stop.
#[test]
fn points_that_an_output_has_taken_and_cannot_have_are_given_back() {
    let both = "<m> (10) = sum <<m>>\nall (10) = sum a\n";
    let all = |value| ("all".to_owned(), 1010, value);
    let begin = || {
        let mut fixture = Fixture::new(rules(both, "", ""), MIB);
        fixture.now_ms = 1_011_000;
        let points = [("a", 1010, 1.0), ("a", 1011, 2.0), ("b", 1011, 4.0)];
        let (contributions, stored) = fixture.contributions(fixture.in_force(), "anonymous", &points);
        assert_eq!(stored, [""; 0]);
        (fixture, contributions.unwrap(), computed(&points))
    };
    let (mut late, contributions, points) = begin();
    late.now_ms = 1_041_000;
    assert_eq!(late.count("anonymous", contributions), points);
    assert_eq!(late.at(1051), []);
    let (ended, contributions, points) = begin();
    ended.aggregator.adopt(&rules("", "", ""), 1_012_000);
    assert_eq!(ended.count("anonymous", contributions), points);
    // the tenant's outputs are forgotten
    let (mut forgotten, contributions, points) = begin();
    while !forgotten.aggregator.tenants().is_empty() {
        let now_s = forgotten.now_ms / 1000;
        assert_eq!(forgotten.at(now_s + 10), []);
    }
    assert_eq!(forgotten.count("anonymous", contributions), points);
    // others count nevertheless, and what is given back counts in other outputs
    let (mut stopping, contributions, points) = begin();
    stopping.aggregator.take_no_more();
    assert_eq!(stopping.count("anonymous", contributions), points);
    assert_eq!(stopping.add(&[("a", 1012, 8.0)]), ["a"]);
    assert_eq!(stopping.at(1021), [all(11.0)]);
}

/// Their sender may send them again or not.
#[test]
fn intervals_of_points_whose_body_was_refused_are_not_computed() {
    let text = "<m> (10) = sum <<m>>\nall (10) = sum x\n";
    let points = [("x", 1005, 1.0), ("x", 1011, 2.0)];
    let begin = || {
        let mut fixture = Fixture::new(rules(text, "", ""), MIB);
        fixture.now_ms = 1_011_000;
        let (contributions, stored) = fixture.contributions(fixture.in_force(), "anonymous", &points);
        assert_eq!(stored, [""; 0]);
        (fixture, contributions.unwrap())
    };
    let (mut fixture, contributions) = begin();
    assert_eq!(fixture.leave_out("anonymous", contributions), computed(&points));
    assert_eq!(fixture.missed("refused"), 4.0);
    // so they are stored as they are, however often they come
    for _ in 0..2 {
        assert_eq!(fixture.add(&points), ["x"; 2]);
    }
    fixture.now_ms = 1_021_000;
    assert_eq!(fixture.add(&[("x", 1021, 4.0)]), [""; 0]);
    assert_eq!(fixture.at(1031), computed(&[("all", 1020, 4.0), ("x", 1020, 4.0)]));
    assert_eq!(fixture.metric("floodmark_graphite_aggregator_incomplete_total"), 4.0);
    // the interval has points that are stored nowhere else
    let (mut fixture, contributions) = begin();
    assert_eq!(fixture.add(&[("x", 1012, 8.0)]), [""; 0]);
    assert_eq!(fixture.leave_out("anonymous", contributions), computed(&points));
    assert_eq!(fixture.add(&[("x", 1013, 16.0)]), [""; 0]);
    assert_eq!(fixture.at(1021), computed(&[("x", 1010, 24.0)]));
    // the tenant's outputs are forgotten
    let (mut forgotten, contributions) = begin();
    while !forgotten.aggregator.tenants().is_empty() {
        let now_s = forgotten.now_ms / 1000;
        assert_eq!(forgotten.at(now_s + 10), []);
    }
    assert_eq!(forgotten.leave_out("anonymous", contributions), computed(&points));
}

#[test]
fn an_output_is_not_closed_before_points_that_are_being_stored() {
    let mut fixture = Fixture::new(rules("all (10) = sum *\n", "", ""), MIB);
    fixture.now_ms = 1_011_000;
    fixture.add(&[("x", 1010, 1.0)]);
    assert_eq!(fixture.at(1021), computed(&[("all", 1010, 1.0)]));
    fixture.now_ms = 1_042_000;
    let (contributions, _) = fixture.contributions(fixture.in_force(), "anonymous", &[("x", 1042, 1.0)]);
    assert_eq!(fixture.at(1043), []);
    let tenant = TenantId::parse("anonymous").unwrap();
    fixture.aggregator.add(&tenant, contributions.unwrap(), fixture.now_ms);
    fixture.add(&[("x", 1043, 1.0)]);
    assert_eq!(fixture.at(1051), computed(&[("all", 1040, 2.0)]));
}

#[test]
fn a_body_of_many_points_counts_in_slices() {
    let mut fixture = Fixture::new(rules("all (10) = sum *\nmedian (10) = p50 *\n", "", ""), 8 * MIB);
    fixture.now_ms = 1_011_000;
    let points = 4 * SLICE + 1;
    let points: Vec<_> = (0..points).map(|i| ("x", 1010, i as f64)).collect();
    let (contributions, _) = fixture.contributions(fixture.in_force(), "anonymous", &points);
    let contributions = contributions.unwrap();
    assert!(contributions.count() > INLINE_MAX);
    let tenant = TenantId::parse("anonymous").unwrap();
    fixture.aggregator.add(&tenant, contributions, fixture.now_ms);
    let (sum, median) = (points.iter().map(|(_, _, value)| value).sum(), (points.len() / 2) as f64);
    assert_eq!(fixture.at(1021), computed(&[("all", 1010, sum), ("median", 1010, median)]));
}

#[test]
fn intervals_that_a_fast_clock_may_have_filled_before_the_start_are_incomplete() {
    let account = Account::new("aggregator", MIB);
    let both = rules("all (10) = sum *\nslow (100) = sum *\n", "", "");
    let decoders = Account::new("decoders", MIB);
    let aggregator = Aggregator::new(account.clone(), decoders, SEED, 2, both, 999_500, &Registry::new());
    let mut fixture = Fixture { aggregator, account, registry: Registry::new(), now_ms: 1_005_000 };
    fixture.add(&[("x", 1003, 1.0), ("x", 1013, 1.0), ("x", 1100, 1.0)]);
    assert_eq!(fixture.at(1021), computed(&[("all", 1010, 1.0)]));
    fixture.add(&[("x", 1100, 1.0)]);
    assert_eq!(fixture.at(1210), computed(&[("slow", 1100, 2.0)]));
    // a sender that is ahead by more than the delay is seen when its points come
    let mut fixture = Fixture::new(rules("<m> (10) = sum <<m>>\n", "", ""), MIB);
    fixture.now_ms = 1_003_000;
    assert_eq!(fixture.add(&[("x", 1011, 1.0), ("x", 1014, 1.0), ("x", 1015, 1.0)]), ["x"; 3]);
    fixture.add(&[("x", 1024, 1.0)]);
    assert_eq!(fixture.at(1031), computed(&[("x", 1020, 1.0)]));
    assert_eq!(fixture.metric("floodmark_graphite_aggregator_incomplete_total"), 1.0);
}

#[test]
fn a_flood_of_outputs_stays_within_the_account_and_known_ones_are_complete() {
    let mut fixture =
        Fixture::new(rules("all.<x> (10) = sum in.<x>\np.<x> (10) = p99 in.<x>\n", "", ""), MIB);
    fixture.now_ms = 1_011_000;
    fixture.add(&[("in.known", 1010, 1.0)]);
    let (flood_rounds, mut known) = (40, 1.0);
    for flood in 0..flood_rounds {
        let names: Vec<_> = (0..250).map(|i| format!("in.flood{flood}-{i}")).collect();
        let points: Vec<_> = names.iter().map(|name| (name.as_str(), 1010, 1.0)).collect();
        fixture.add_as(if flood % 2 == 0 { "flood" } else { "other" }, &points);
        assert!(fixture.account.used_bytes() <= MIB);
        fixture.add(&[("in.known", 1015 - flood % 6, 1.0)]);
        known += 1.0;
    }
    assert!(fixture.missed("memory") > 1000.0);
    let found = fixture.at(1021);
    assert!(found.len() > 500, "{}", found.len());
    for (name, _, value) in &found {
        let expected = if name == "all.known" { known } else { 1.0 };
        assert_eq!(*value, expected, "{name}");
    }
    assert!(["all.known", "p.known"].iter().all(|known| found.iter().any(|(name, ..)| name == known)));
    // outputs that were refused miss points of this interval
    let refused = (0..250).map(|i| format!("in.flood39-{i}"));
    let refused: Vec<_> = refused.filter(|name| !found.iter().any(|f| f.0.ends_with(&name[2..]))).collect();
    assert!(!refused.is_empty());
    assert_eq!(fixture.at(1051), []);
    assert_eq!(fixture.metric("floodmark_graphite_aggregator_outputs"), 0.0);
    // everything but the memory of decisions is free again
    let memo_bytes = fixture.account.used_bytes();
    fixture.aggregator.memo.forget();
    assert!(fixture.account.used_bytes() <= MIB / 4, "{memo_bytes}");
}

#[test]
fn an_output_that_was_refused_is_not_computed_from_a_part_of_its_points() {
    let mut fixture = Fixture::new(rules("all.<x> (10) = sum in.<x>.*\n", "", ""), MIB);
    fixture.now_ms = 1_011_000;
    fixture.add(&[("in.first.a", 1010, 1.0)]);
    let all = fixture.account.reserve(MIB - fixture.account.used_bytes()).unwrap();
    fixture.add(&[("in.second.a", 1010, 1.0)]);
    drop(all);
    fixture.add(&[("in.second.b", 1011, 1.0), ("in.first.b", 1011, 1.0)]);
    assert_eq!(fixture.at(1021), computed(&[("all.first", 1010, 2.0)]));
    assert_eq!(
        (fixture.missed("memory"), fixture.metric("floodmark_graphite_aggregator_incomplete_total")),
        (1.0, 1.0)
    );
    fixture.add(&[("in.second.a", 1021, 1.0), ("in.second.b", 1021, 1.0)]);
    assert_eq!(fixture.at(1031), computed(&[("all.second", 1020, 2.0)]));
}

#[test]
fn a_refusal_is_remembered_while_points_of_its_interval_may_come() {
    // for a tenant without outputs
    let mut fixture = Fixture::new(rules("all.<x> (10) = sum in.<x>.*\n", "", ""), MIB);
    fixture.now_ms = 1_011_000;
    let all = fixture.account.reserve(MIB - fixture.account.used_bytes()).unwrap();
    fixture.add(&[("in.x.a", 1010, 1.0)]);
    drop(all);
    assert_eq!(fixture.at(1012), []);
    fixture.add(&[("in.x.b", 1011, 1.0)]);
    assert_eq!(fixture.at(1021), []);
    assert_eq!(fixture.at(1039), []);
    fixture.add(&[("in.y.a", 1019, 1.0)]);
    assert!(fixture.at(1041).is_empty() && fixture.at(1051).is_empty() && fixture.at(1061).is_empty());
    assert!(fixture.at(1071).is_empty() && fixture.aggregator.tenants().is_empty());
    // for another rule of an output that is open
    let mut fixture = Fixture::new(rules("all (10) = sum a.*\nall (10) = sum b.*\n", "", ""), MIB);
    fixture.now_ms = 1_011_000;
    fixture.add(&[("a.x", 1010, 1.0)]);
    let all = fixture.account.reserve(MIB - fixture.account.used_bytes()).unwrap();
    fixture.add(&[("b.x", 1010, 1.0)]);
    drop(all);
    fixture.add(&[("b.x", 1011, 1.0)]);
    assert_eq!(fixture.at(1021), []);
    fixture.add(&[("a.x", 1021, 1.0), ("b.x", 1021, 1.0)]);
    assert_eq!(fixture.at(1031), computed(&[("all", 1020, 2.0)]));
}

/// There may be very many such names while memory is short, and matching a name costs much more than storing a point.
#[test]
fn a_name_whose_output_is_refused_is_not_matched_again_until_there_is_memory() {
    let text = "all.<x> (10) = sum in.<x>\nsome (10) = sum in.*\n";
    let mut fixture = Fixture::new(rules(text, "", ""), MIB);
    fixture.now_ms = 1_011_000;
    fixture.add(&[("in.first", 1010, 1.0)]);
    let all = fixture.account.reserve(MIB - fixture.account.used_bytes()).unwrap();
    fixture.add(&[("in.second", 1010, 2.0)]);
    let decided = fixture.remembered("in.second").expect("the decision is remembered");
    assert_eq!((decided.outputs.len(), decided.refused.len()), (1, 1));
    for _ in 0..3 {
        fixture.add(&[("in.second", 1012, 2.0)]);
    }
    assert!(Arc::ptr_eq(&decided, &fixture.remembered("in.second").unwrap()), "the rules were asked again");
    assert_eq!(fixture.missed("memory"), 4.0);
    drop(all);
    fixture.add(&[("in.second", 1013, 2.0)]);
    assert!(fixture.remembered("in.second").unwrap().refused.is_empty());
    assert_eq!(fixture.at(1021), computed(&[("all.first", 1010, 1.0), ("some", 1010, 11.0)]));
    assert_eq!(fixture.metric("floodmark_graphite_aggregator_incomplete_total"), 1.0);
    fixture.add(&[("in.second", 1021, 2.0)]);
    assert_eq!(fixture.at(1031), computed(&[("all.second", 1020, 2.0), ("some", 1020, 2.0)]));
    assert_eq!(fixture.missed("memory"), 4.0);
    // its outputs close, and are refused when it comes again
    assert!(fixture.at(1060).is_empty() && fixture.at(1070).is_empty());
    let _all = fixture.account.reserve(MIB - fixture.account.used_bytes()).unwrap();
    fixture.add(&[("in.second", 1070, 2.0)]);
    let decided = fixture.remembered("in.second").expect("the decision is remembered");
    assert_eq!((decided.outputs.len(), decided.refused.len()), (0, 2));
    fixture.add(&[("in.second", 1071, 2.0)]);
    assert!(Arc::ptr_eq(&decided, &fixture.remembered("in.second").unwrap()), "the rules were asked again");
}

/// Points that are missed without asking the rules make intervals incomplete, like those of the first refusal.
#[test]
fn a_refusal_that_is_remembered_counts_for_all_names_of_the_output() {
    let fixture = || {
        let mut fixture = Fixture::new(rules("all (10) = sum a.*\n", "", ""), MIB);
        fixture.now_ms = 1_011_000;
        let all = fixture.account.reserve(MIB - fixture.account.used_bytes()).unwrap();
        fixture.add(&[("a.x", 1010, 1.0)]);
        assert_eq!(fixture.remembered("a.x").map(|decided| decided.refused.len()), Some(1));
        (fixture, all)
    };
    // a later interval misses a point too
    let (mut first, all) = fixture();
    first.now_ms = 1_025_000;
    first.add(&[("a.x", 1025, 1.0)]);
    drop(all);
    first.add(&[("a.y", 1026, 1.0)]);
    assert_eq!(first.at(1031), []);
    assert_eq!(first.metric("floodmark_graphite_aggregator_incomplete_total"), 1.0);
    // the output is open when the next point comes, so this point counts, although memory is short again
    let (mut second, all) = fixture();
    drop(all);
    second.now_ms = 1_021_000;
    second.add(&[("a.y", 1021, 1.0)]);
    let all = second.account.reserve(MIB - second.account.used_bytes()).unwrap();
    second.add(&[("a.x", 1022, 2.0)]);
    assert_eq!(second.at(1031), computed(&[("all", 1020, 3.0)]));
    drop(all);
}

/// As the sum of its parts, whatever its size.
#[test]
fn a_quantile_of_very_many_values_is_computed() {
    let mut fixture = Fixture::new(rules("p.<x> (10) = p50 in.<x>\n", "", ""), 8 * MIB);
    fixture.now_ms = 1_011_000;
    let points: Vec<_> = (0..50_001).map(|i| ("in.a", 1010, f64::from(i * 7919 % 50_001))).collect();
    for some in points.chunks(5_000) {
        fixture.add(some);
    }
    assert_eq!(fixture.metric("floodmark_graphite_aggregator_values"), 50_001.0);
    assert_eq!(fixture.at(1021), computed(&[("p.a", 1010, 25_000.0)]));
    fixture.add(&[("in.a", 1011, 1e9), ("in.a", 1011, 1e9)]);
    assert_eq!(fixture.at(1031), computed(&[("p.a", 1010, 25_001.0)]));
    assert_eq!(fixture.at(1060), []);
    assert_eq!(fixture.metric("floodmark_graphite_aggregator_values"), 0.0);
    fixture.aggregator.memo.forget();
    assert_eq!(fixture.account.used_bytes(), 0, "all memory is given back");
}

#[test]
fn an_output_without_a_valid_name_is_counted() {
    let fixture = Fixture::new(rules("<x>;y (10) = sum in.<x>\n", "", ""), MIB);
    for _ in 0..2 {
        fixture.add(&[("in.a", 1010, 1.0)]);
    }
    assert_eq!(fixture.missed("name"), 2.0);
    assert_eq!(fixture.metric("floodmark_graphite_aggregator_outputs"), 0.0);
    assert!(fixture.remembered("in.a").is_some(), "the rules are not asked again");
}
