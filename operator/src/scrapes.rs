//! What the operator counts of its reads of Pods. Its one label is a code of the contract: no series is about one Pod.

use std::time::Duration;

use model_deployment::scrape::Unread;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::telemetry::{Histograms, Label};

/// Upper bounds of a read's time, in seconds: a read is given up after two.
const SECONDS: [f64; 9] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0];

/// Registers the series, and gives what is to be told of each read.
pub fn observer(registry: &mut Registry) -> impl Fn(Option<Unread>, Duration) + Send + Sync + use<> {
    let reads = Histograms::<Label<String>>::new_with_constructor(|| Histogram::new(SECONDS));
    registry.register(
        "scrape_duration_seconds",
        "How long reads of Pods took, by what came of them",
        reads.clone(),
    );
    move |unread, took| {
        let outcome = unread.map_or_else(|| "Read".to_owned(), |unread| unread.code().to_string());
        reads.get_or_create(&[("outcome", outcome)]).observe(took.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text::encode;

    #[test]
    fn reads_are_told_apart_by_code_and_nothing_else() {
        let mut registry = Registry::default();
        let observe = observer(&mut registry);
        for status in 500..600 {
            observe(Some(Unread::HttpStatus(status)), Duration::from_millis(3));
        }
        observe(None, Duration::from_secs(1));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let counts: Vec<_> = text.lines().filter(|line| line.contains("_count")).collect();
        assert_eq!(counts.len(), 2, "{text}");
        for line in [
            r#"scrape_duration_seconds_count{outcome="HttpStatus"} 100"#,
            r#"scrape_duration_seconds_count{outcome="Read"} 1"#,
        ] {
            assert!(counts.contains(&line), "{text}");
        }
    }
}
