//! What one body costs: a real one, and bodies of 1 MiB made to be expensive. Prints the best of five runs; the contract's limit is
//! 200 ms of CPU for any body of 1 MiB.

use std::time::{Duration, Instant};

use model_deployment::exposition::{Kind, Wanted, read};

const GAUGE: &str = "vllm:num_requests_running";
const HISTOGRAM: &str = "vllm:time_to_first_token_seconds";
const BODY_BYTES: usize = 1024 * 1024;

/// A body of lines until the next would be one too many.
fn fill(line: impl Fn(usize) -> String) -> Vec<u8> {
    let mut body = String::new();
    for number in 0.. {
        let line = line(number);
        if body.len() + line.len() >= BODY_BYTES {
            break;
        }
        body += &line;
        body.push('\n');
    }
    body.into_bytes()
}

fn labels(count: usize, number: usize) -> String {
    (0..count).map(|label| format!("l{label}=\"{number}\",")).collect()
}

fn main() {
    let mut wanted = Wanted::default();
    wanted.add(GAUGE, Kind::Gauge);
    wanted.add_with_buckets(HISTOGRAM);
    wanted.add_prefix("vllm:");
    for family in 0..12 {
        wanted.add(&format!("vllm:counter_{family}_total"), Kind::Counter);
        wanted.add_with_buckets(&format!("vllm:histogram_{family}_seconds"));
    }
    let capture = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/fixtures/exposition/vllm-0.32.0_single_02_after_20_requests.prom"
    );
    let bodies = [
        ("a real engine", std::fs::read(capture).expect("the capture")),
        (
            "many small series",
            fill(|number| format!("{GAUGE}{{a=\"{number}\"}} 1")),
        ),
        ("one series again and again", fill(|_| format!("{GAUGE} 1"))),
        (
            "many labels",
            fill(|number| format!("{GAUGE}{{{}}} 1", labels(64, number))),
        ),
        (
            "a label twice",
            fill(|number| format!("{GAUGE}{{{}l0=\"\"}} 1", labels(63, number))),
        ),
        (
            "carriage returns",
            fill(|number| format!("{GAUGE}{{a=\"{}{number}\"}} 1", "\r".repeat(4000))),
        ),
        (
            "broken at its end",
            fill(|number| format!("{GAUGE}{{{}}} 1x", labels(64, number))),
        ),
        (
            "exemplars",
            fill(|number| format!("{GAUGE}{{a=\"{number}\"}} 1 # {{{}}} 1", labels(64, number))),
        ),
        (
            "many buckets",
            fill(|number| format!("{HISTOGRAM}_bucket{{le=\"{number}\"}} 1")),
        ),
        ("unwanted names", fill(|number| format!("a{number} 1"))),
        ("shortest lines", fill(|_| "a 1".to_owned())),
        ("declarations", fill(|_| "#TYPE a b".to_owned())),
        (
            "no samples of the prefix",
            fill(|number| format!("vllm:a{{{} 1", labels(64, number))),
        ),
        ("line ends", vec![b'\n'; BODY_BYTES]),
        ("one name", vec![b'a'; BODY_BYTES]),
    ];
    for (name, body) in &bodies {
        let run = || {
            let start = Instant::now();
            std::hint::black_box(read(body, &wanted).ok());
            start.elapsed()
        };
        let best = (0..5).map(|_| run()).min().unwrap_or(Duration::ZERO);
        println!(
            "{name:28} {:>8} bytes {:>8.2} ms",
            body.len(),
            best.as_secs_f64() * 1000.0
        );
    }
}
