use super::*;
use crate::batch::Batch;
use crate::runs::CHECK_NAMES;
use std::collections::{BTreeMap, BTreeSet};
use stdx::budget::Account;
use stdx::rng::Rng;

/// Names in several runs, some of them in more than one.
fn runs_of(names: &BTreeSet<String>, rng: &mut Rng, account: &Account) -> Runs {
    let (mut runs, mut batch) = (Runs::default(), Batch::default());
    let most = 1 + rng.below(names.len() as u64 + 1) as usize;
    for name in names.iter().chain(names.iter().filter(|_| rng.chance(0.1))) {
        batch.push(name);
        if batch.len() >= most {
            runs.push(batch.take_run(account).unwrap());
        }
    }
    runs.push(batch.take_run(account).unwrap());
    if rng.chance(0.5) {
        assert!(runs.merge_small(account, usize::MAX).unwrap());
    }
    runs
}

fn expected(names: &BTreeSet<String>, pattern: &Pattern) -> BTreeMap<String, (bool, bool)> {
    let mut found: BTreeMap<String, (bool, bool)> = BTreeMap::new();
    for name in names {
        let select = |end, is_leaf| {
            let node: &mut (bool, bool) = found.entry(name[..end].into()).or_default();
            (node.0, node.1) = (node.0 || is_leaf, node.1 || !is_leaf);
        };
        pattern.nodes_of(name, &mut Steps::new(&mut || true), select).unwrap();
    }
    found
}

fn found(runs: &Runs, pattern: &Pattern) -> BTreeMap<String, (bool, bool)> {
    let mut found = BTreeMap::new();
    let select = |node: Node<'_>| {
        assert!(
            found.insert(node.path.to_owned(), (node.is_leaf, node.is_branch)).is_none(),
            "{node:?} twice"
        );
        true
    };
    find(runs, pattern, select, || true).unwrap();
    found
}

/// The leaves, found in several walks of at most `most` leaves.
fn leaves_in_parts(runs: &Runs, pattern: &Pattern, most: usize) -> Vec<String> {
    let mut leaves: Vec<String> = Vec::new();
    loop {
        let (mut part, after) = (Vec::new(), leaves.last().map(String::as_str));
        let select = |node: Node<'_>| {
            part.extend(node.is_leaf.then(|| node.path.to_owned()));
            part.len() < most
        };
        find_after(runs, pattern, after, select, || true).unwrap();
        if part.is_empty() {
            return leaves;
        }
        leaves.append(&mut part);
    }
}

fn word(rng: &mut Rng, letters: &[&str], most: u64) -> String {
    (0..rng.below(most + 1)).map(|_| letters[rng.below(letters.len() as u64) as usize]).collect()
}

#[test]
fn a_walk_finds_what_a_scan_of_all_names_finds() {
    let mut rng = Rng::announced();
    let account = Account::new("test", u64::MAX);
    for _ in 0..60 {
        let count = rng.below(200);
        let name = |rng: &mut Rng| {
            let parts: Vec<_> =
                (0..=rng.below(4)).map(|_| word(rng, &["a", "b", "-", "ä", "."], 3)).collect();
            parts.join(".")
        };
        let names: BTreeSet<_> = (0..count).map(|_| name(&mut rng)).collect();
        let runs = runs_of(&names, &mut rng, &account);
        assert!(runs.len() >= names.len());
        for _ in 0..30 {
            let part = |rng: &mut Rng| match rng.below(8) {
                0 => "*".to_owned(),
                1 => "**".to_owned(),
                _ => word(rng, &["a", "b", "-", "*", "?", "[ab]", "[!a]", "{a,b*}", "{,-a}", "ä"], 3),
            };
            let text = (0..=rng.below(4)).map(|_| part(&mut rng)).collect::<Vec<_>>().join(".");
            let pattern = Pattern::parse(&text).unwrap();
            let found = found(&runs, &pattern);
            assert_eq!(found, expected(&names, &pattern), "{text:?} in {names:?}");
            let leaves: BTreeSet<_> =
                found.into_iter().filter(|(_, (is_leaf, _))| *is_leaf).map(|(path, _)| path).collect();
            let in_parts = leaves_in_parts(&runs, &pattern, 1 + rng.below(5) as usize);
            assert_eq!(in_parts.len(), leaves.len(), "{text:?} in {names:?}: {in_parts:?}");
            assert_eq!(BTreeSet::from_iter(in_parts), leaves, "{text:?} in {names:?}");
        }
    }
    assert_eq!(account.used_bytes(), 0);
}

#[test]
fn a_walk_visits_few_nodes() {
    let account = Account::new("test", u64::MAX);
    let mut batch = Batch::default();
    for host in 0..100 {
        (0..100).for_each(|metric| batch.push(&format!("servers.web-{host}.metric-{metric}")));
    }
    let mut runs = Runs::default();
    runs.push(batch.take_run(&account).unwrap());
    let check = |text: &str, nodes: usize, most: usize| {
        let (pattern, mut count) = (Pattern::parse(text).unwrap(), 0);
        let visited = find(
            &runs,
            &pattern,
            |_| {
                count += 1;
                true
            },
            || true,
        )
        .unwrap();
        assert_eq!(count, nodes, "{text}");
        assert!(visited <= most, "{text}: {visited} nodes visited");
    };
    check("*", 1, 1);
    check("servers.*", 100, 101);
    check("servers.web-7*", 11, 12);
    check("servers.{web-1,web-2,no}.metric-7", 2, 5);
    check("servers.web-7.*", 100, 102);
    check("servers.*.metric-7", 100, 201);
    check("servers.*.*", 10_000, 10_101);
    check("no.*", 0, 0);
    // looking for what is missing takes time, too
    let missing: Vec<_> = (0..9000).map(|i| format!("no{i}")).collect();
    let text = format!("servers.web-1.{{{}}}", missing.join(","));
    let mut asked = 0;
    let found = find(
        &runs,
        &Pattern::parse(&text).unwrap(),
        |_| panic!("a missing node is selected"),
        || {
            asked += 1;
            true
        },
    );
    assert!(found == Ok(2) && asked > 30, "{found:?}, {asked} questions");
    let pattern = Pattern::parse("**").unwrap();
    let mut asked = 0;
    let stopped = find(
        &runs,
        &pattern,
        |_| true,
        || {
            asked += 1;
            asked < 3
        },
    );
    assert_eq!((stopped, asked), (Err(Stopped), 3));
    assert_eq!(find(&runs, &pattern, |_| false, || true), Ok(1));
}

#[test]
fn names_of_any_length_are_kept_in_any_number() {
    let mut rng = Rng::announced();
    let account = Account::new("test", u64::MAX);
    let mut names = BTreeSet::new();
    for i in 0..3000 {
        let len = if rng.chance(0.05) { rng.below(60_000) } else { rng.below(100) };
        names.insert(format!("{}{i}", "x.y".repeat(len as usize / 3)));
    }
    let runs = runs_of(&names, &mut rng, &account);
    let pattern = Pattern::parse("**").unwrap();
    let leaves: BTreeSet<_> = found(&runs, &pattern)
        .into_iter()
        .filter(|(_, (is_leaf, _))| *is_leaf)
        .map(|(name, _)| name)
        .collect();
    assert!(leaves == names, "{} of {} names", leaves.len(), names.len());
    assert_eq!(account.used_bytes(), runs.memory_bytes());
}

#[test]
fn runs_take_no_more_memory_than_they_may() {
    let mut batch = Batch::default();
    (0..100_000).for_each(|i| batch.push(&format!("servers.web-{}.metric-{i}", i % 100)));
    let whole = Account::new("test", u64::MAX);
    let run = batch.take_run(&whole).unwrap();
    assert_eq!(run.len(), 100_000);
    let per_name = run.memory_bytes() / 100_000;
    assert!((4..20).contains(&per_name), "{per_name} bytes a name");
    (0..100_000).for_each(|i| batch.push(&format!("servers.web-{}.metric-{i}", i % 100)));
    let small = Account::new("test", 500_000);
    let error = batch.take_run(&small).unwrap_err();
    assert!(error.to_string().contains("500000"), "{error}");
    assert_eq!(small.used_bytes(), 0);
    assert!(small.peak_bytes() > 0);
}

#[test]
fn planned_merges_replace_their_runs() {
    let mut rng = Rng::announced();
    let account = Account::new("test", u64::MAX);
    let (mut runs, mut batch, mut names) = (Runs::default(), Batch::default(), BTreeSet::new());
    for i in 0..200 {
        for _ in 0..=rng.below(20) {
            let name = format!("a.{}", rng.below(10_000));
            batch.push(&name);
            names.insert(name);
        }
        runs.push(batch.take_run(&account).unwrap());
        let all_merged = runs.merge_small(&account, 100).unwrap();
        if let Some(merge) = runs.plan() {
            assert!(!all_merged);
            let stopped = merge.run(&account, || false).unwrap();
            let merged = merge.run(&account, || true).unwrap().unwrap();
            // a short merge ends before its first check
            assert_eq!(stopped.is_none(), merged.len() >= CHECK_NAMES);
            if rng.chance(0.8) {
                runs.replace(&merge, merged);
            }
        }
        if i % 20 == 0 {
            let pattern = Pattern::parse("a.*").unwrap();
            assert!(found(&runs, &pattern).into_keys().eq(names.iter().cloned()));
        }
    }
    while let Some(merge) = runs.plan() {
        let merged = merge.run(&account, || true).unwrap().unwrap();
        runs.replace(&merge, merged);
    }
    assert!(runs.merge_small(&account, 0).unwrap());
    let pattern = Pattern::parse("a.*").unwrap();
    assert!(found(&runs, &pattern).into_keys().eq(names));
    assert_eq!(account.used_bytes(), runs.memory_bytes());
}
