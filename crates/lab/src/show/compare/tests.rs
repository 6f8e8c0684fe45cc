use super::*;
use crate::result::Judgement;
use crate::show::html::tests::sample;

#[test]
fn ratios_say_who_is_better() {
    let (a, mut b) = (sample(100_000.0), sample(150_000.0));
    b.totals.latency.p99_s = a.totals.latency.p99_s * 1.01;
    b.observed.insert("rss_peak_bytes".into(), 5.5e8);
    b.versions.insert("target".into(), "Prometheus 3.1".into());
    b.verdict[2].pass = true;
    b.verdict.push(Judgement {
        rule: "memory".into(),
        limit: "≤ 1 GiB".into(),
        pass: true,
        ..Judgement::default()
    });
    b.seed += 1;
    let both = Comparison::of(&a, &b);
    assert_eq!((both.a.as_str(), both.b.as_str()), ("Floodmark 0.1.0", "Prometheus 3.1"));
    let figure = |name: &str| both.figures.iter().find(|f| f.name == name).unwrap();
    assert_eq!((figure("samples_per_s").ratio, figure("samples_per_s").better), (Some(1.5), Some('b')));
    assert_eq!((figure("rss_peak_bytes").ratio, figure("rss_peak_bytes").better), (Some(0.5), Some('b')));
    assert_eq!(figure("p99_s").better, None, "a hundredth is noise");
    assert_eq!((figure("lost").ratio, figure("lost").better), (None, None));
    assert_eq!(both.passed, (Some(false), Some(true)));
    assert_eq!(both.rules.len(), 4);
    assert_eq!((&both.rules[3].a, both.rules[3].b.as_ref().unwrap().1), (&None, true));
    assert!(both.caveats.iter().any(|c| c.contains("seeds differ")), "{:?}", both.caveats);

    let text = both.to_text(false);
    assert!(text.contains("100k/s") && text.contains("1.50") && text.contains("BROKEN (97.74 %)"), "{text}");
    assert!(both.to_text(true).lines().count() > text.lines().count() / 2);
    let json: serde_json::Value = serde_json::from_str(&both.to_json().unwrap()).unwrap();
    assert_eq!(json["figures"][0]["ratio"], 1.5);

    let page = both.to_html(&a, &b);
    if let Ok(dir) = std::env::var("FLOODMARK_PAGES") {
        std::fs::write(std::path::Path::new(&dir).join("compare.html"), &page).unwrap();
    }
    assert_eq!(page.matches("<script").count(), 2);
    assert!(page.contains("B: Prometheus 3.1") && page.contains("1.50 ×") && !page.contains("<img"));
}

#[test]
fn equal_and_empty_results() {
    let a = sample(10.0);
    let both = Comparison::of(&a, &a);
    assert_eq!((both.a.as_str(), both.b.as_str()), ("A", "B"));
    assert!(both.figures.iter().all(|f| f.better.is_none() && f.ratio.is_none_or(|r| r == 1.0)));
    let empty = RunResult { partial: true, ..RunResult::default() };
    let both = Comparison::of(&empty, &a);
    assert_eq!(both.passed.0, None);
    assert!(both.caveats.iter().any(|c| c == "A was ended before its time"));
    both.to_html(&empty, &a);
    for (r, text) in [(1.5, "1.50"), (12.34, "12.3"), (250.0, "250"), (1e-5, "1.0e-5"), (0.0, "0.00")] {
        assert_eq!(ratio(r), text);
    }
}
