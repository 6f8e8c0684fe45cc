//! Flags of `floodmark serve`: `--config`, and one for each setting.

use clap::builder::{OsStringValueParser, PossibleValue, PossibleValuesParser};
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, value_parser};
use server::settings::{DefaultValue, Given, SETTINGS, Setting, SettingsError};
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

const SOURCES: &str = "\
Each setting is also an environment variable and a key of the file: --seal-after is FLOODMARK_SEAL_AFTER and seal_after. \
Flags take precedence over the environment, the environment over the file. Settings of single tenants are in the file or \
in the file of --overrides.";

/// `floodmark serve`
#[derive(Clone)]
pub(crate) struct ServeArgs {
    config: Option<PathBuf>,
    /// Given values, by setting key.
    settings: Vec<(&'static str, OsString)>,
}

/// Shows only which settings were given, because their values may be secrets.
impl fmt::Debug for ServeArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<_> = self.settings.iter().map(|(key, _)| key).collect();
        f.debug_struct("ServeArgs").field("config", &self.config).field("settings", &keys).finish()
    }
}

impl ServeArgs {
    /// Settings from the file, the environment and the flags.
    pub(crate) fn given(&self) -> Result<Given, SettingsError> {
        let given = given(self.config.as_deref())?;
        Ok(self.settings.iter().fold(given, |given, (key, text)| given.flag(key, text)))
    }
}

/// Reads the settings in the file, if there is one, and in the environment.
pub(crate) fn given(config: Option<&Path>) -> Result<Given, SettingsError> {
    let given = config.map_or_else(|| Ok(Given::default()), |path| Given::default().file(path))?;
    given.environment(std::env::vars_os())
}

impl Args for ServeArgs {
    fn augment_args(command: Command) -> Command {
        let config = Arg::new("config")
            .long("config")
            .value_name("FILE")
            .env("FLOODMARK_CONFIG")
            .value_parser(value_parser!(PathBuf))
            .help("TOML file with settings");
        command.arg(config).args(SETTINGS.iter().map(|setting| arg(setting))).after_help(SOURCES)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ServeArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |setting: &&'static Setting| {
            Some((setting.key, matches.get_raw(setting.key)?.next()?.to_owned()))
        };
        Ok(Self {
            config: matches.get_one("config").cloned(),
            settings: SETTINGS.iter().filter_map(given).collect(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Returns the flag for a setting. Its value is checked later, together with those from the file and the
/// environment.
fn arg(setting: &'static Setting) -> Arg {
    let arg = Arg::new(setting.key)
        .long(setting.key.replace('_', "-"))
        .value_name(setting.takes.placeholder())
        .help(help(setting))
        .help_heading(setting.group)
        .hide_short_help(!setting.is_common);
    match setting.takes.words() {
        [] => arg.value_parser(OsStringValueParser::new()),
        words => {
            arg.value_parser(PossibleValuesParser::new(words.iter().map(|(word, meaning)| match *meaning {
                "" => PossibleValue::new(*word),
                meaning => PossibleValue::new(*word).help(meaning),
            })))
        }
    }
}

fn help(setting: &Setting) -> String {
    let bounds = setting.bounds_text().map_or_else(String::new, |bounds| format!(" [{bounds}]"));
    let (DefaultValue::Fixed(default) | DefaultValue::Derived(default)) = setting.default;
    format!("{}{bounds} [default: {default}]", setting.about)
}
