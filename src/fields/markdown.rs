//! Both tables as Markdown, for the reference page.

use std::fmt::Write;

use super::{Code, FIELDS, Measure, scope};

/// The field table and the codes, as the `fields` command prints them.
pub fn markdown() -> String {
    let mut page = String::from(
        "## Fields\n\n\
         | List | Field | Scope | Producer | Series | Kind | Unit | Read from | Unsupported | Exported |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
    );
    for field in FIELDS {
        let _ = writeln!(
            page,
            "| `{}` | `{}` | {} | {} | `{}` | {} | {} | {} | {} | {} |",
            field.list,
            field.name,
            scope(field.producer),
            serde_name(field.producer),
            field.source(),
            kind(field.measure),
            field.unit,
            field.readers,
            field.provision,
            field.birth,
        );
    }
    page.push_str("\n## Codes of `missing[]`\n\n| Code | Sets `partial` | Meaning |\n|---|---|---|\n");
    for code in Code::ALL {
        let partial = match (code, code.required()) {
            (Code::NotExportedYet, _) => "unless its pair was read",
            (_, true) => "yes",
            (_, false) => "no",
        };
        let _ = writeln!(page, "| `{code}` | {partial} | {} |", code.meaning());
    }
    page
}

fn kind(measure: Measure) -> &'static str {
    match measure {
        Measure::Gauge(_) => "gauge",
        Measure::Mean { .. } => "mean of a histogram",
        Measure::Rate(_) => "rate of a counter",
        Measure::Ratio { .. } => "ratio of counters",
    }
}

/// The producer's name as facts spell it.
fn serde_name(producer: crate::pod::Producer) -> String {
    serde_json::to_value(producer)
        .ok()
        .and_then(|name| name.as_str().map(str::to_owned))
        .unwrap_or_default()
}
