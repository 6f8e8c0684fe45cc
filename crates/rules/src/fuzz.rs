//! The code of the fuzz target. It panics if rules panic or break one of their guarantees. The directory `fuzz/` calls it under
//! cargo-fuzz, and the crate's tests call it with damaged files.

use crate::IngestRules;
use crate::ingest::LabelSet;
use model::TenantId;

/// Whatever a file contains, it is an error with a line of the file, or rules, which give the same labels each time.
pub fn ingest_rules(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let rules = match IngestRules::parse(&text) {
        Ok(rules) => rules,
        Err(error) => {
            // YAML also ends lines with a single carriage return
            let lines = text.matches(['\n', '\r']).count() + 1;
            assert!((1..=lines).contains(&error.line), "{error} in {lines} lines");
            return;
        }
    };
    for tenant in ["anonymous", "team-a"] {
        let Some(list) = rules.of(&TenantId::parse(tenant).expect("BUG: not a tenant's name")) else {
            continue;
        };
        for labels in [
            &[("__name__", "go_gc"), ("a", "foo"), ("b", "bar-17"), ("é", "ü")][..],
            &[("__name__", "servers.web1.cpu.user")],
            &[],
        ] {
            let applied = || {
                let mut set = LabelSet::new(labels.iter().copied());
                let decision = list.apply(&mut set);
                let found: Vec<_> =
                    set.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
                assert!(found.iter().all(|(_, value)| !value.is_empty()), "an empty value: {found:?}");
                (decision, found)
            };
            assert_eq!(applied(), applied());
        }
    }
}
