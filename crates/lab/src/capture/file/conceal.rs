//! Replaces the strings in labels by hashes, so that a recording can be shared. Equal strings get equal hashes, and
//! different strings different hashes.
//!
//! Each string is replaced by its SipHash-2-4 (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012) under
//! a 128-bit key. The recording does not contain the key. Samples, the number of series, and the values of `le`, `quantile`,
//! and of what statsd says of a value, remain visible.

use crate::generate::driver::statsd::{RATE_LABEL, TYPE_LABEL};
use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Labels that are never concealed: queries compute with the numbers of the first two, and a replay needs the others.
const VISIBLE: [&str; 4] = ["le", "quantile", TYPE_LABEL, RATE_LABEL];

/// Parts of a recording to be concealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Conceal {
    /// Label values and tenant names.
    pub values: bool,
    pub metrics: bool,
    pub labels: bool,
}

#[derive(Clone)]
pub struct Concealer {
    key: [u64; 2],
    what: Conceal,
}

impl std::fmt::Debug for Concealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Concealer").field("what", &self.what).finish_non_exhaustive()
    }
}

impl Concealer {
    pub fn new(what: Conceal, key: [u8; 16]) -> Self {
        let half = |at: usize| u64::from_le_bytes(key[at..at + 8].try_into().expect("BUG: not eight bytes"));
        Self { key: [half(0), half(8)], what }
    }

    /// Creates a concealer with a random key, which is never stored.
    pub fn fresh(what: Conceal) -> Result<Self> {
        let mut key = [0; 16];
        let mut random = File::open("/dev/urandom").context("cannot open /dev/urandom")?;
        random.read_exact(&mut key).context("cannot read random numbers")?;
        Ok(Self::new(what, key))
    }

    /// Creates a concealer with the key in a file of at least 16 bytes. The same key gives the same hashes in several
    /// recordings.
    pub fn from_file(what: Conceal, path: &Path) -> Result<Self> {
        const KEY_FILE_BYTES_MAX: u64 = 4096;
        let mut bytes = Vec::new();
        let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        file.take(KEY_FILE_BYTES_MAX).read_to_end(&mut bytes).context("cannot read the file with the key")?;
        ensure!(bytes.len() >= 16, "{}: a key must have at least 16 bytes", path.display());
        let [a, b] = [[1; 16], [2; 16]].map(|key| Self::new(what, key).hash(&bytes).to_le_bytes());
        let mut key: [u8; 16] = bytes[..16].try_into().expect("BUG: fewer than 16 bytes");
        key.iter_mut().zip(a.into_iter().chain(b)).for_each(|(k, h)| *k ^= h);
        Ok(Self::new(what, key))
    }

    pub fn what(&self) -> Conceal {
        self.what
    }

    /// Appends a label's name and value to `out`, each concealed if requested. Empty strings stay empty.
    pub fn label(&self, name: &str, value: &str, out: (&mut String, &mut String)) {
        let (out_name, out_value) = out;
        out_name.clear();
        out_value.clear();
        let is_metric = name == model::labels::METRIC_NAME;
        let keeps_name = is_metric || VISIBLE.contains(&name) || !self.what.labels;
        match keeps_name {
            true => out_name.push_str(name),
            false => self.put(out_name, 'l', name),
        }
        let hides_value = match is_metric {
            true => self.what.metrics,
            false => self.what.values && !VISIBLE.contains(&name),
        };
        match hides_value && !value.is_empty() {
            true => self.put(out_value, if is_metric { 'm' } else { 'v' }, value),
            false => out_value.push_str(value),
        }
    }

    pub fn tenant(&self, tenant: &str) -> String {
        let mut out = String::new();
        match self.what.values && !tenant.is_empty() {
            true => self.put(&mut out, 't', tenant),
            false => out.push_str(tenant),
        }
        out
    }

    /// Appends the hash of `text` as a letter and 16 hexadecimal digits, which is valid in a label name, a label value
    /// and a metric name.
    fn put(&self, out: &mut String, letter: char, text: &str) {
        out.push(letter);
        let hash = self.hash(text.as_bytes());
        (0..16)
            .rev()
            .for_each(|i| out.push(char::from(b"0123456789abcdef"[(hash >> (4 * i)) as usize & 15])));
    }

    fn hash(&self, bytes: &[u8]) -> u64 {
        let mut v =
            [0x736f_6d65_7073_6575, 0x646f_7261_6e64_6f6d, 0x6c79_6765_6e65_7261, 0x7465_6462_7974_6573];
        (0..4).for_each(|i| v[i] ^= self.key[i % 2]);
        let (words, rest) = bytes.as_chunks::<8>();
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        last[7] = bytes.len() as u8;
        for word in words.iter().chain([&last]).map(|word| u64::from_le_bytes(*word)) {
            v[3] ^= word;
            rounds(&mut v, 2);
            v[0] ^= word;
        }
        v[2] ^= 0xff;
        rounds(&mut v, 4);
        v[0] ^ v[1] ^ v[2] ^ v[3]
    }
}

fn rounds(v: &mut [u64; 4], count: usize) {
    for _ in 0..count {
        v[0] = v[0].wrapping_add(v[1]);
        v[2] = v[2].wrapping_add(v[3]);
        v[1] = v[1].rotate_left(13) ^ v[0];
        v[3] = v[3].rotate_left(16) ^ v[2];
        v[0] = v[0].rotate_left(32);
        v[2] = v[2].wrapping_add(v[1]);
        v[0] = v[0].wrapping_add(v[3]);
        v[1] = v[1].rotate_left(17) ^ v[2];
        v[3] = v[3].rotate_left(21) ^ v[0];
        v[2] = v[2].rotate_left(32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Conceal = Conceal { values: true, metrics: true, labels: true };

    #[test]
    fn is_siphash_2_4() {
        // the test vector in appendix A of the paper
        let key: [u8; 16] = std::array::from_fn(|i| i as u8);
        let message: Vec<u8> = (0..15).collect();
        assert_eq!(Concealer::new(ALL, key).hash(&message), 0xa129_ca61_49be_45e5);
    }

    fn label(concealer: &Concealer, name: &str, value: &str) -> (String, String) {
        let (mut out_name, mut out_value) = (String::from("old"), String::from("old"));
        concealer.label(name, value, (&mut out_name, &mut out_value));
        (out_name, out_value)
    }

    #[test]
    fn the_chosen_parts_are_concealed_consistently() {
        let owned = |(a, b): (&str, &str)| (a.to_owned(), b.to_owned());
        let none = Concealer::new(Conceal::default(), [7; 16]);
        assert_eq!(label(&none, "pod", "x-1"), owned(("pod", "x-1")));
        let values = Concealer::new(Conceal { values: true, ..Conceal::default() }, [7; 16]);
        assert_eq!(label(&values, "__name__", "up"), owned(("__name__", "up")));
        assert_eq!(label(&values, "le", "0.5"), owned(("le", "0.5")));
        assert_eq!(label(&values, "pod", ""), owned(("pod", "")));
        let (name, value) = label(&values, "pod", "x-1");
        assert!(name == "pod" && value.len() == 17 && value.starts_with('v'));
        assert_eq!(label(&values, "node", "x-1").1, value, "equal texts stay equal");
        assert_ne!(label(&values, "pod", "x-2").1, value);
        let other = Concealer::new(Conceal { values: true, ..Conceal::default() }, [8; 16]);
        assert_ne!(label(&other, "pod", "x-1").1, value, "different keys give different hashes");
        let all = Concealer::new(ALL, [7; 16]);
        assert!(
            label(&all, "pod", "x").0.starts_with('l') && label(&all, "__name__", "up").1.starts_with('m')
        );
        assert_eq!(label(&all, "__name__", "up").0, "__name__");
        assert_eq!(label(&all, "le", "+Inf"), owned(("le", "+Inf")));
        assert_eq!(label(&all, "statsd_type", "c"), owned(("statsd_type", "c")));
        assert_eq!(none.tenant("a"), "a");
        assert!(all.tenant("a").starts_with('t') && all.tenant("").is_empty());
        assert!(!format!("{all:?}").contains('7'), "the debug output shows the key");
    }

    #[test]
    fn keys_are_read_from_a_file_or_random() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::fs::write(&path, "short").unwrap();
        assert!(Concealer::from_file(ALL, &path).is_err());
        std::fs::write(&path, "a key of quite some length").unwrap();
        let [a, b] = [0, 1].map(|_| Concealer::from_file(ALL, &path).unwrap());
        assert_eq!(label(&a, "pod", "x"), label(&b, "pod", "x"));
        std::fs::write(&path, "a key of quite some lengti").unwrap();
        let other = Concealer::from_file(ALL, &path).unwrap();
        assert_ne!(
            label(&a, "pod", "x"),
            label(&other, "pod", "x"),
            "a byte beyond the sixteenth has no effect"
        );
        let [c, d] = [0, 1].map(|_| Concealer::fresh(ALL).unwrap());
        assert_ne!(label(&c, "pod", "x"), label(&d, "pod", "x"));
    }
}
