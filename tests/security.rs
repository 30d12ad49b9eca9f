//! docs/security.md against the sources: every test that the page names is one.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const PAGE: &str = "docs/security.md";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn page() -> String {
    fs::read_to_string(root().join(PAGE)).expect(PAGE)
}

/// Every source file that may hold tests.
fn sources() -> String {
    fn gather(folder: &Path, text: &mut String) {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                gather(&path, text);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                text.push_str(&fs::read_to_string(&path).expect("a source file"));
            }
        }
    }
    let mut text = String::new();
    for folder in ["src", "operator/src", "operator/tests", "tests"] {
        gather(&root().join(folder), &mut text);
    }
    text
}

/// Names of all tests: of functions under a test's attribute, and of those that a harness of ours is given.
fn tests(sources: &str) -> BTreeSet<&str> {
    let given = sources.split("test!(").skip(1);
    let given = given.filter_map(|rest| Some(rest.split_once(')')?.0.trim()));
    let mut found: BTreeSet<_> = given.collect();
    let mut announced = false;
    for line in sources.lines().map(str::trim) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            announced = true;
        } else if let Some((_, rest)) = line.split_once("fn ").filter(|_| announced) {
            found.extend(rest.split_once('(').map(|(name, _)| name));
            announced = false;
        }
    }
    found
}

/// What stands in backticks in a cell.
fn named(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// The rows of the table whose last column is headed `Tests`, each as its cells.
fn rows(page: &str) -> Vec<Vec<&str>> {
    let mut rows = Vec::new();
    let mut wanted = false;
    for line in page.lines() {
        match line.strip_prefix("| ").and_then(|line| line.strip_suffix(" |")) {
            Some(line) => {
                let cells: Vec<_> = line.split(" | ").collect();
                if cells.last() == Some(&"Tests") {
                    wanted = true;
                } else if wanted {
                    rows.push(cells);
                }
            }
            None if line.starts_with("|---") => {}
            None => wanted = false,
        }
    }
    rows
}

#[test]
fn every_threat_and_every_failure_names_tests_that_exist() {
    let (page, sources) = (page(), sources());
    let tests = tests(&sources);
    let rows = rows(&page);
    assert!(rows.len() > 28, "{} rows", rows.len());
    for cells in rows {
        let names = named(cells.last().expect("a cell"));
        assert!(!names.is_empty(), "no test: {}", cells[0]);
        for name in names {
            assert!(
                tests.contains(name),
                "{PAGE} names {name}, which is no test: {}",
                cells[0]
            );
        }
    }
}

#[test]
fn every_public_failure_has_its_row() {
    let page = page();
    let numbers: Vec<u32> = rows(&page).iter().filter_map(|cells| cells[0].parse().ok()).collect();
    assert_eq!(numbers, (1..=28).collect::<Vec<_>>());
}

/// Names in running text, too.
#[test]
fn whatever_the_page_calls_a_test_is_one() {
    let (page, sources) = (page(), sources());
    let tests = tests(&sources);
    let long = named(&page).into_iter().filter(|name| name.matches('_').count() >= 3);
    let none: Vec<_> = long
        .filter(|name| {
            name.chars()
                .all(|letter| letter.is_ascii_lowercase() || "_0123456789".contains(letter))
        })
        .filter(|name| !tests.contains(name))
        .collect();
    assert_eq!(none, Vec::<&str>::new());
}
