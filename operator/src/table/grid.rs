//! Cells in columns. Knows no answer.

use anstyle::Style;

/// Spaces between two columns.
const GAP: usize = 2;

/// Where a cell stands in its column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Align {
    Left,
    Right,
}

/// One cell.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    pub(super) fn plain(text: String) -> Self {
        Self::styled(text, Style::new())
    }

    /// Control characters are not let through to a terminal: a Pod had a hand in some texts.
    pub(super) fn styled(text: String, style: Style) -> Self {
        Self {
            text: text.replace(char::is_control, "\u{fffd}"),
            style,
        }
    }
}

/// A line of headings, then the rows. No line ends in spaces.
pub(super) fn grid(headings: &[(&str, Align)], rows: Vec<Vec<Cell>>, heading: Style) -> String {
    let first = headings
        .iter()
        .map(|(text, _)| Cell::styled((*text).to_owned(), heading))
        .collect();
    let rows: Vec<Vec<Cell>> = std::iter::once(first).chain(rows).collect();
    let width = |column: usize| {
        rows.iter()
            .map(|row| row[column].text.chars().count())
            .max()
            .unwrap_or_default()
    };
    let widths: Vec<_> = (0..headings.len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let mut spaces = 0;
        for (column, Cell { text: cell, style }) in row.iter().enumerate() {
            let padding = widths[column] - cell.chars().count();
            let (before, after) = match headings[column].1 {
                Align::Left => (0, padding),
                Align::Right => (padding, 0),
            };
            if cell.is_empty() {
                spaces += padding + GAP;
                continue;
            }
            text.push_str(&" ".repeat(spaces + before));
            text.push_str(&format!("{style}{cell}{style:#}"));
            spaces = after + GAP;
        }
        text.push('\n');
    }
    text
}
