//! Broken bodies: no panic, and a family gives another answer only where its own lines were changed.

use super::captures::capture;
use super::*;

/// Families of a capture, one of each kind where it has them.
const CAPTURES: [(&str, &[(&str, Kind)]); 6] = [
    (
        "vllm-0.32.0_single_02_after_20_requests",
        &[
            (GAUGE, Kind::Gauge),
            (COUNTER, Kind::Counter),
            (HISTOGRAM, Kind::Histogram),
        ],
    ),
    (
        "sglang-0.5.23_single_02_after_20_requests",
        &[
            ("sglang:num_running_reqs", Kind::Gauge),
            ("sglang:prefill_effective_tokens_total", Kind::Counter),
            ("sglang:time_to_first_token_seconds", Kind::Histogram),
        ],
    ),
    (
        "sglang-0.5.23_single_06_openmetrics_accept",
        &[
            ("sglang_num_running_reqs", Kind::Gauge),
            ("sglang_prompt_tokens_total", Kind::Counter),
        ],
    ),
    (
        "sglang-router-0.3.2_ordinary_06_retries_exhausted_503",
        &[
            ("smg_worker_pool_size", Kind::Gauge),
            ("smg_http_responses_total", Kind::Counter),
        ],
    ),
    (
        "smg-1.13.0_ordinary_02_after_38_successes",
        &[
            ("smg_worker_pool_size", Kind::Gauge),
            ("smg_router_requests_total", Kind::Counter),
        ],
    ),
    (
        "vllm-router-0.1.17_pd_02_after_22_requests",
        &[
            ("vllm_router_worker_health", Kind::Gauge),
            ("vllm_router_pd_requests_total", Kind::Counter),
        ],
    ),
];

/// What a mutation puts in, besides any byte.
const TOKENS: [&str; 32] = [
    "\n", "\r\n", "\r", " ", "\t", "{", "}", "\"", "\\", "\\\"", ",", "=", "#", "# ", "# TYPE ", "# HELP ", "# EOF\n",
    "NaN", "+Inf", "Inf", "-", "+", ".", "e", "0", "_sum", "_bucket", "_total", "le=\"1\"", "\u{FFFE}", "\u{e9}",
    " gauge\n",
];

/// A fixed sequence (SplitMix64): a failure is found again by running the same test.
struct Sequence(u64);

impl Sequence {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }

    fn range(&mut self, length: usize) -> std::ops::Range<usize> {
        let start = self.below(length + 1);
        start..length.min(start + self.below(40))
    }

    fn mutate(&mut self, body: &mut Vec<u8>, families: &[(&str, Kind)]) {
        let place = self.below(body.len() + 1);
        match self.below(8) {
            0 if place < body.len() => body[place] = self.below(256) as u8,
            1 if place < body.len() => body[place] ^= 1 << self.below(8),
            2 => drop(body.drain(self.range(body.len()))),
            3 => {
                let copied = body[self.range(body.len())].to_vec();
                body.splice(place..place, copied);
            }
            4 => body.truncate(place),
            5 => drop(body.splice(place..place, families[self.below(families.len())].0.bytes())),
            6 => {
                let mut lines: Vec<&[u8]> = body.split_inclusive(|byte| *byte == b'\n').collect();
                if !lines.is_empty() {
                    let (one, other) = (self.below(lines.len()), self.below(lines.len()));
                    lines.swap(one, other);
                    *body = lines.concat();
                }
            }
            _ => drop(body.splice(place..place, TOKENS[self.below(TOKENS.len())].bytes())),
        }
    }

    /// Some lines of a body, around one of the places.
    fn window(&mut self, lines: &[&[u8]], places: &[usize]) -> Vec<u8> {
        let place = places[self.below(places.len())];
        let start = place.saturating_sub(self.below(8));
        lines[start..lines.len().min(place + 1 + self.below(40))].concat()
    }
}

/// The lines that speak of a family, found in another way than the reader finds them.
fn own_lines<'a>(body: &'a [u8], family: &str) -> Vec<&'a [u8]> {
    let bare = family.trim_end_matches("_total").as_bytes();
    let is_blank = |byte: &u8| *byte == b' ' || *byte == b'\t';
    body.split(|byte| *byte == b'\n')
        .filter(|line| {
            let start: Vec<u8> = line.iter().copied().skip_while(is_blank).collect();
            match start.first() {
                Some(b'#') => start.windows(bare.len()).any(|part| part == bare),
                Some(b'{') => start[1..]
                    .iter()
                    .copied()
                    .skip_while(is_blank)
                    .skip(1)
                    .collect::<Vec<_>>()
                    .starts_with(bare),
                _ => start.starts_with(bare),
            }
        })
        .collect()
}

/// Where a body speaks of a name for the first time.
fn first_line_with(lines: &[&[u8]], name: &str) -> usize {
    let speaks = |line: &&[u8]| line.windows(name.len()).any(|part| part == name.as_bytes());
    lines.iter().position(speaks).expect(name)
}

/// Mutated bodies made of one window.
const MUTANTS: usize = 20;

fn run(bodies: usize) {
    let mut sequence = Sequence(20_261_130);
    let captures = CAPTURES.map(|(file, families)| (capture(file), families));
    let captures = captures.each_ref().map(|(body, families)| {
        let lines: Vec<&[u8]> = body.split_inclusive(|byte| *byte == b'\n').collect();
        let places: Vec<usize> = families.iter().map(|(name, _)| first_line_with(&lines, name)).collect();
        (lines, places, *families)
    });
    let mut unchanged = 0_usize;
    for turn in 0..bodies / MUTANTS {
        let (lines, places, families) = &captures[turn % captures.len()];
        let original = sequence.window(lines, places);
        for _ in 0..MUTANTS {
            let mut mutated = original.clone();
            for _ in 0..=sequence.below(4) {
                sequence.mutate(&mut mutated, families);
            }
            unchanged += compare(&original, &mutated, families);
        }
    }
    assert!(
        unchanged > bodies / 4,
        "the mutations leave enough families alone for the comparison to mean something"
    );
}

/// Compares the families whose lines are the same in both bodies, and says how many there were.
fn compare(original: &[u8], mutated: &[u8], families: &[(&str, Kind)]) -> usize {
    let mut wanted = Wanted::default();
    for (name, kind) in families {
        match kind {
            Kind::Histogram => wanted.add_with_buckets(name),
            kind => wanted.add(name, *kind),
        }
    }
    let after = read(mutated, &wanted);
    let mut unchanged = 0;
    for (name, kind) in families {
        let answer_after = after.as_ref().ok().map(|after| answer(after, name, *kind));
        let context = || format!("{name} in {:?}", String::from_utf8_lossy(mutated));
        for value in answer_after
            .iter()
            .flatten()
            .flat_map(|answer| answer.values().flatten())
        {
            assert!(value.is_finite() && *value >= 0.0, "{value}: {}", context());
        }
        let own = own_lines(original, name);
        if own == own_lines(mutated, name) {
            unchanged += 1;
            // The family alone, behind a comment that makes it metrics text.
            let alone = [&b"#"[..], &own.join(&b'\n')].join(&b'\n');
            let before = read(&alone, &wanted).expect("a comment makes it metrics text");
            // A body with nothing left in it is no metrics text; then the family has no line either.
            assert_eq!(
                answer_after.unwrap_or(Err(())),
                answer(&before, name, *kind),
                "{}",
                context()
            );
        }
    }
    unchanged
}

type Answer = std::collections::BTreeMap<Labels, Vec<f64>>;

/// All figures of a family.
fn answer(exposition: &Exposition, name: &str, kind: Kind) -> Result<Answer, ()> {
    let family = exposition.family(name).expect("wanted");
    if kind != Kind::Histogram {
        let series = family.series().map_err(drop)?;
        return Ok(series
            .iter()
            .map(|(labels, value)| (labels.clone(), vec![*value]))
            .collect());
    }
    let figures = |histogram: &Histogram| {
        [histogram.sum, histogram.count]
            .into_iter()
            .chain(histogram.buckets.iter().flatten().map(|(_, count)| *count))
            .collect()
    };
    let histograms = family.histograms().map_err(drop)?;
    Ok(histograms
        .iter()
        .map(|(labels, histogram)| (labels.clone(), figures(histogram)))
        .collect())
}

/// `MUTATIONS` asks for more than the usual two thousand: ten million take some twenty minutes of a release build.
#[test]
fn a_mutation_changes_only_the_families_whose_lines_it_changes() {
    run(std::env::var("MUTATIONS").map_or(2_000, |count| count.parse().expect("a number of mutations")));
}
