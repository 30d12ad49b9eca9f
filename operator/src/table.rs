//! An answer as a person on call reads it: one line a role and Pod, then what is missing and why. Pure; knows no terminal.
//!
//! A gauge is a sum over the Pods of a role and stands on the role's line; what is measured over a window stands on the Pod's. A role of
//! one Pod has one line. A column that nothing fills is left out.

mod grid;
mod number;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use anstyle::{AnsiColor, Style};
use model_deployment_crds::metrics::{Missing, ModelDeploymentMetrics, Windowed};

use grid::{Align, Cell, grid};

/// A column of figures.
struct Column {
    heading: &'static str,
    figure: Figure,
}

/// What stands in a column. The names of one column never stand together on one line.
enum Figure {
    /// A gauge of one of these names.
    Gauge(&'static [&'static str]),
    /// The cache hits of a scope.
    Hits(&'static str),
    /// Median and 99th percentile of a latency; its mean where the window has no buckets.
    Latency(&'static str),
    /// A rate of one of these names.
    Rate(&'static [&'static str]),
}

const COLUMNS: [Column; 13] = [
    column("RUNNING", Figure::Gauge(&["router-running", "running"])),
    column("WAITING", Figure::Gauge(&["waiting"])),
    column("TRANSFERRING", Figure::Gauge(&["decode-transfer-waiting"])),
    column("LOCAL HITS", Figure::Hits("local-prefix")),
    column("STORE HITS", Figure::Hits("external-store")),
    column("DEVICE HITS", Figure::Hits("device-prefix")),
    column("HOST HITS", Figure::Hits("host-prefix")),
    column("STORAGE HITS", Figure::Hits("storage-prefix")),
    column("TTFT P50/P99", Figure::Latency("ttft")),
    column("TPOT P50/P99", Figure::Latency("tpot")),
    column("ITL P50/P99", Figure::Latency("itl")),
    column(
        "REQUESTS/S",
        Figure::Rate(&["pd-requests", "requests", "successful-requests"]),
    ),
    column("ERRORS/S", Figure::Rate(&["errors", "pd-errors", "request-errors"])),
];

const fn column(heading: &'static str, figure: Figure) -> Column {
    Column { heading, figure }
}

/// The figures of one line, by column.
type Line = BTreeMap<usize, String>;

/// One role, or the router: its own line, and one a Pod.
#[derive(Default)]
struct Role {
    /// Pods that contributed to every gauge, and Pods that were to.
    pods: Option<(u32, u32)>,
    line: Line,
    by_pod: BTreeMap<String, Line>,
}

/// Roles in the order of the table: engines, then routers; each by name.
type Roles = BTreeMap<(bool, String), Role>;

/// The table, with a line end after each line.
pub fn table(answer: &ModelDeploymentMetrics, coloured: bool) -> String {
    let paint = |style: Style| if coloured { style } else { Style::new() };
    let bold = paint(Style::new().bold());
    let (required, harmless) = (
        paint(AnsiColor::Red.on_default()),
        paint(AnsiColor::Yellow.on_default()),
    );
    let mut text = format!(
        "{bold}{}{bold:#} in {}, {}",
        answer.metadata.name, answer.metadata.namespace, answer.timestamp.0
    );
    if answer.partial {
        let _ = write!(text, ", {required}partial{required:#}");
    }
    text.push('\n');

    let roles = roles(answer);
    if !roles.is_empty() {
        text.push('\n');
        text.push_str(&figures(&roles, bold));
    }
    text.push('\n');
    if answer.missing.is_empty() {
        text.push_str("Nothing is missing.\n");
    } else {
        text.push_str(&missing(&answer.missing, bold, required, harmless));
    }
    text
}

fn roles(answer: &ModelDeploymentMetrics) -> Roles {
    let mut roles = Roles::new();
    let key = |role: &Option<String>, scope: &str| (role.is_none(), role.clone().unwrap_or_else(|| scope.to_owned()));
    for gauge in answer.processing.iter().chain(&answer.queueing) {
        let role = roles.entry(key(&gauge.role, &gauge.scope)).or_default();
        let (fewest, _) = role.pods.unwrap_or((gauge.pod_count, gauge.expected_pods));
        role.pods = Some((fewest.min(gauge.pod_count), gauge.expected_pods));
        if let Some(place) = place(|figure| matches!(figure, Figure::Gauge(names) if names.contains(&&*gauge.name))) {
            role.line.insert(place, number::short(gauge.value));
        }
    }
    for hit in &answer.cache_hits {
        let Some(place) = place(|figure| matches!(figure, Figure::Hits(scope) if *scope == hit.scope)) else {
            continue;
        };
        let role = roles.entry((false, hit.role.clone())).or_default();
        let line = role.by_pod.entry(hit.pod.clone()).or_default();
        line.insert(place, number::percent(hit.rate));
    }
    for windowed in answer.latency.iter().chain(&answer.traffic) {
        let Some(place) = place(|figure| match figure {
            Figure::Latency(name) => *name == windowed.name,
            Figure::Rate(names) => names.contains(&&*windowed.name),
            _ => false,
        }) else {
            continue;
        };
        let role = roles.entry(key(&windowed.role, &windowed.scope)).or_default();
        let line = role.by_pod.entry(windowed.pod.clone()).or_default();
        line.insert(place, measured(windowed));
    }
    roles
}

fn place(is_it: impl Fn(&Figure) -> bool) -> Option<usize> {
    COLUMNS.iter().position(|column| is_it(&column.figure))
}

fn measured(windowed: &Windowed) -> String {
    match (&windowed.quantiles, windowed.unit.as_str()) {
        (Some(quantiles), _) => format!("{}/{}", number::seconds(quantiles.p50), number::seconds(quantiles.p99)),
        (None, "seconds") => format!("mean {}", number::seconds(windowed.value)),
        (None, _) => number::short(windowed.value),
    }
}

fn figures(roles: &Roles, bold: Style) -> String {
    let mut lines = Vec::new();
    for ((_, name), role) in roles {
        let pods = role
            .pods
            .map_or_else(String::new, |(read, expected)| format!("{read}/{expected}"));
        let is_alone = matches!(role.pods, None | Some((_, 1))) && role.by_pod.len() == 1;
        let mut own = role.line.clone();
        if is_alone {
            own.extend(
                role.by_pod
                    .values()
                    .flatten()
                    .map(|(place, figure)| (*place, figure.clone())),
            );
        }
        let pod = role.by_pod.keys().next().filter(|_| is_alone);
        lines.push((name.clone(), pod.cloned().unwrap_or_default(), pods, own));
        if !is_alone {
            let of_pod = |(pod, line): (&String, &Line)| (name.clone(), pod.clone(), String::new(), line.clone());
            lines.extend(role.by_pod.iter().map(of_pod));
        }
    }
    let filled: BTreeSet<usize> = lines.iter().flat_map(|(.., line)| line.keys().copied()).collect();
    let mut headings = vec![("ROLE", Align::Left), ("POD", Align::Left), ("PODS", Align::Right)];
    headings.extend(filled.iter().map(|place| (COLUMNS[*place].heading, Align::Right)));
    let rows = lines.into_iter().map(|(role, pod, pods, line)| {
        let figures = filled.iter().map(|place| line.get(place).cloned().unwrap_or_default());
        [role, pod, pods].into_iter().chain(figures).map(Cell::plain).collect()
    });
    grid(&headings, rows.collect(), bold)
}

/// What is missing: what makes the answer partial first.
fn missing(missing: &[Missing], bold: Style, required: Style, harmless: Style) -> String {
    let headings = ["MISSING", "REQUIRED", "POD", "SOURCE", "REASON"].map(|heading| (heading, Align::Left));
    let mut entries: Vec<_> = missing.iter().collect();
    entries.sort_by_key(|entry| !entry.required);
    let rows = entries.into_iter().map(|entry| {
        let (style, word) = if entry.required {
            (required, "yes")
        } else {
            (harmless, "no")
        };
        vec![
            Cell::styled(entry.code.clone(), style),
            Cell::plain(word.to_owned()),
            Cell::plain(entry.pod.clone()),
            Cell::plain(entry.source.clone()),
            Cell::plain(entry.reason.clone()),
        ]
    });
    grid(&headings, rows.collect(), bold)
}
