use super::*;
use query::graphite::Schemas as _;
use std::time::Instant;

/// As many schemas as asked for, each for the names that begin with its number.
fn schemas(count: usize) -> Schemas {
    let section = |i: usize| format!("[s{i}]\npattern = ^n{i}\\.\nretentions = {}:100\n", i + 1);
    let text: String = (0..count).map(section).collect();
    rules::Schemas::default().with_schemas(&text).unwrap().into()
}

#[test]
fn remembered_names_have_the_schemas_that_the_rules_say() {
    for count in [2, 300] {
        let schemas = schemas(count);
        for round in 0..3 {
            // more names than are remembered, and some that are too long for it
            for i in 0..20_000 {
                let tail = if i % 100 == 0 { "x".repeat(300) } else { i.to_string() };
                let (number, name) = (i % (count + 1), format!("n{}.{tail}", i % (count + 1)));
                let expected = if number == count { 60 } else { number as i64 + 1 };
                let schema = schemas.schema_of(&name);
                assert_eq!(schema.archives[0].step_s, expected, "{name} in round {round}");
            }
        }
    }
}

/// Measures the time to find the schema of a name. Run it with `cargo test -p server --lib measure_schemas -- --ignored --nocapture`.
#[test]
#[ignore = "prints times"]
fn measure_schemas() {
    for count in [1, 7, 8, 30, 300, 999] {
        let schemas = schemas(count);
        let names: Vec<_> = (0..5000).map(|i| format!("n{}.web-{i}.requests.count", i % count)).collect();
        let time = |of: &dyn Fn(&str) -> i64| {
            let began = Instant::now();
            let sum: i64 = names.iter().map(|name| of(name)).sum();
            assert!(sum > 0);
            began.elapsed().as_nanos() / names.len() as u128
        };
        let _ = schemas.rules().of("warm");
        let by_rules = time(&|name| schemas.rules().of(name).archives[0].step_s.into());
        let [first, again] = [(); 2].map(|()| time(&|name| schemas.schema_of(name).archives[0].step_s));
        println!("{count} schemas: {by_rules} ns by the rules, {first} ns the first time, {again} ns again");
    }
}
