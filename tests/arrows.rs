//! The rooms of `src/` and who may use whom: each module's `use crate::` lines against the table.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Rooms in rows from the top; a room may use those of lower rows only.
const ROWS: [&[&str]; 4] = [
    &["snapshot"],
    &["window", "scrape", "index", "render"],
    &["fields", "arguments"],
    &["exposition", "pod"],
];

fn sources(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push((
                path.display().to_string(),
                fs::read_to_string(&path).expect("a source file"),
            ));
        }
    }
}

#[test]
fn each_room_uses_only_what_stands_below_it() {
    let rows: BTreeMap<&str, usize> = ROWS
        .iter()
        .enumerate()
        .flat_map(|(row, rooms)| rooms.iter().map(move |room| (*room, row)))
        .collect();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut wrong = Vec::new();
    let mut arrows = 0;
    for entry in fs::read_dir(&source).expect("src/") {
        let path = entry.expect("an entry").path();
        if !path.is_dir() {
            continue;
        }
        let room = path
            .file_name()
            .and_then(|name| name.to_str())
            .expect("a name")
            .to_owned();
        let row = *rows
            .get(room.as_str())
            .unwrap_or_else(|| panic!("src/{room} is in no row of the table"));
        let mut files = Vec::new();
        sources(&path, &mut files);
        for (file, text) in files {
            for line in text.lines() {
                for part in line.split("crate::").skip(1) {
                    let used = part
                        .split(|c: char| !c.is_alphanumeric() && c != '_')
                        .next()
                        .unwrap_or_default();
                    let Some(below) = rows.get(used) else { continue };
                    arrows += 1;
                    if used != room && *below <= row {
                        wrong.push(format!("{file}: {}", line.trim()));
                    }
                }
            }
        }
    }
    assert!(arrows > 0, "no arrow was found");
    assert_eq!(wrong, Vec::<String>::new());
}
