//! A setting with the type of its values, and the builder with which [`super::table`] declares it.

use super::setting::{DefaultValue, Setting};
use super::value::Value;
use std::marker::PhantomData;

#[derive(Debug)]
pub(super) struct TypedSetting<T> {
    pub(super) setting: Setting,
    value: PhantomData<fn() -> T>,
}

pub(super) const fn setting<T: Value>(
    key: &'static str,
    default: &'static str,
    about: &'static str,
) -> TypedSetting<T> {
    new(key, DefaultValue::Fixed(default), about)
}

/// Declares a setting whose default depends on the machine or on other settings. `default` explains how.
pub(super) const fn derived<T: Value>(
    key: &'static str,
    default: &'static str,
    about: &'static str,
) -> TypedSetting<T> {
    new(key, DefaultValue::Derived(default), about)
}

const fn new<T: Value>(key: &'static str, default: DefaultValue, about: &'static str) -> TypedSetting<T> {
    let setting = Setting {
        key,
        group: "",
        takes: T::TAKES,
        default,
        about,
        why: "",
        is_common: false,
        is_per_tenant: false,
        is_secret: false,
        bounds: None,
        none: None,
    };
    TypedSetting { setting, value: PhantomData }
}

impl<T> TypedSetting<T> {
    pub(super) const fn in_group(mut self, group: &'static str) -> Self {
        self.setting.group = group;
        self
    }

    pub(super) const fn why(mut self, sentences: &'static str) -> Self {
        self.setting.why = sentences;
        self
    }

    pub(super) const fn common(mut self) -> Self {
        self.setting.is_common = true;
        self
    }

    pub(super) const fn per_tenant(mut self) -> Self {
        self.setting.is_per_tenant = true;
        self
    }

    pub(super) const fn secret(mut self) -> Self {
        self.setting.is_secret = true;
        self
    }

    pub(super) const fn within(mut self, least: u64, most: u64) -> Self {
        self.setting.bounds = Some((least, most));
        self
    }

    /// Makes the value optional. `none` is the word for having no value.
    pub(super) const fn or(mut self, none: &'static str) -> Self {
        self.setting.none = Some(none);
        self
    }
}
