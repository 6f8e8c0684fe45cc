//! Removes secrets from the text of a scenario, because every result contains that text.

use super::Scenario;
use super::target::{Auth, TargetSpec};

const HIDDEN: &str = "***";

/// A header is secret if its name contains one of these words.
const SECRET_HEADERS: [&str; 5] = ["auth", "cookie", "key", "secret", "token"];

/// Returns the text and the overrides of `scenario` with all secrets replaced, so that both can still be parsed. Both
/// are empty if a secret cannot be removed, for example because it is written with escapes.
pub(crate) fn hide(scenario: &Scenario, text: &str, overrides: &[String]) -> (String, Vec<String>) {
    let mut wanted = scenario.clone();
    // a secret that an override replaces is still in the text
    let own = Scenario::parse(text).ok();
    let all: Vec<String> = [Some(wanted.clone()), own]
        .into_iter()
        .flatten()
        .flat_map(|mut scenario| {
            secrets(&mut scenario.target).into_iter().map(std::mem::take).collect::<Vec<_>>()
        })
        .filter(|secret| !secret.is_empty())
        .collect();
    if all.is_empty() {
        return (text.into(), overrides.to_vec());
    }
    let hide = |text: &str| all.iter().fold(text.to_string(), |text, secret| text.replace(secret, HIDDEN));
    let (text, overrides): (String, Vec<String>) = (hide(text), overrides.iter().map(|o| hide(o)).collect());
    hide_in(&mut wanted.target);
    match Scenario::parse_with(&text, &overrides).is_ok_and(|read| read.target == wanted.target) {
        true => (text, overrides),
        false => (String::new(), Vec::new()),
    }
}

fn hide_in(target: &mut TargetSpec) {
    secrets(target).into_iter().for_each(|secret| *secret = HIDDEN.into());
}

fn secrets(target: &mut TargetSpec) -> Vec<&mut String> {
    let is_secret = |name: &str| SECRET_HEADERS.iter().any(|part| name.to_lowercase().contains(part));
    let headers = target.headers.0.iter_mut().filter(|(name, _)| is_secret(name)).map(|(_, value)| value);
    let auth = target.auth.as_mut().map(|auth| match auth {
        Auth::Bearer { token: secret } | Auth::Basic { password: secret, .. } | Auth::Jwt { secret, .. } => {
            secret
        }
    });
    headers.chain(auth).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, overrides: &[&str], secret: &str, stays: bool) {
        let overrides: Vec<String> = overrides.iter().map(|o| (*o).to_string()).collect();
        let scenario = Scenario::parse_with(text, &overrides).unwrap();
        let (text, overrides) = hide(&scenario, text, &overrides);
        assert!(!format!("{text}{overrides:?}").contains(secret), "{text}{overrides:?}");
        assert_eq!(!text.is_empty(), stays, "{text}");
        if stays {
            Scenario::parse_with(&text, &overrides).unwrap();
        }
    }

    #[test]
    fn no_secret_stays_in_the_text() {
        let bearer = "name = \"x\"\n[target.auth]\nkind = \"bearer\"\ntoken = \"hunter2\"\n";
        check(bearer, &[], "hunter2", true);
        check(bearer, &["target.auth.token=other4"], "other4", true);
        check(bearer, &["target.auth.token=other4"], "hunter2", true);
        check(&bearer.replace("hunter2", "hunt\\u0065r2"), &[], "hunt\\u0065r2", false);
        check(&bearer.replace("hunter2", "kind"), &[], "\"kind\"", false);
        check("name = \"x\"\n[target.headers]\nX-Api-Key = \"hunter2\"\n", &[], "hunter2", true);
        let jwt = "name = \"x\"\n[target.auth]\nkind = \"jwt\"\nsecret = \"hunter2\"\n";
        check(jwt, &[], "hunter2", true);
        check("name = \"x\"\n", &[], "hunter2", true);
    }
}
