//! One line of metrics text: what it is, and the name at its start. Knows no family and reads no label.

/// A line, as far as its start tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    /// Nothing but blanks.
    Blank,
    /// A comment that declares nothing.
    Comment,
    /// `# HELP name …`, or `# TYPE name word`, whose `kind` is the word.
    Declaration { name: &'a str, kind: Option<&'a str> },
    /// Starts as a sample does.
    Sample(Start<'a>),
    /// No line of this format.
    Other,
}

/// A line that starts as a sample does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Start<'a> {
    /// The metric name.
    pub(super) name: &'a str,
    /// Everything behind the name.
    pub(super) rest: &'a [u8],
    /// The name stands in quotes as the first thing inside the braces, so that `rest` continues there.
    pub(super) quoted: bool,
}

/// Stands at the start of a text, and within one that was put together from several.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// The lines of a body, without their ends and byte order marks. Both LF and CRLF end a line, and the last may have no end.
pub(super) fn split(body: &[u8]) -> impl Iterator<Item = &[u8]> {
    body.split(|byte| *byte == b'\n').map(|line| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        trim(line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line))
    })
}

/// Says what a line is.
pub(super) fn classify(line: &[u8]) -> Line<'_> {
    match line.first() {
        None => Line::Blank,
        Some(b'#') => declaration(&line[1..]).unwrap_or(Line::Comment),
        Some(b'{') => quoted_start(&line[1..]).map_or(Line::Other, Line::Sample),
        Some(_) => start(line).map_or(Line::Other, Line::Sample),
    }
}

fn start(line: &[u8]) -> Option<Start<'_>> {
    let (name, rest) = line.split_at(line.iter().take_while(|byte| is_name_byte(**byte)).count());
    if !is_name(name) {
        return None;
    }
    Some(Start {
        name: text(name)?,
        rest,
        quoted: false,
    })
}

/// `{"name",label="value"} 1`, the way of writing a name that came with UTF-8 names. Only a name without escapes is told here: no wanted
/// name has any.
fn quoted_start(inside: &[u8]) -> Option<Start<'_>> {
    let inside = trim(inside).strip_prefix(b"\"")?;
    let end = inside.iter().position(|byte| *byte == b'"')?;
    if trim(&inside[end + 1..]).starts_with(b":") {
        // The member of a JSON object.
        return None;
    }
    Some(Start {
        name: text(&inside[..end])?,
        rest: &inside[end + 1..],
        quoted: true,
    })
}

fn declaration(comment: &[u8]) -> Option<Line<'_>> {
    let (keyword, rest) = token(comment);
    let (name, rest) = token(rest);
    let name = name
        .strip_prefix(b"\"")
        .and_then(|name| name.strip_suffix(b"\""))
        .unwrap_or(name);
    let kind = match keyword {
        b"HELP" => None,
        b"TYPE" => Some(text(token(rest).0)?),
        _ => return None,
    };
    Some(Line::Declaration {
        name: text(name)?,
        kind,
    })
}

/// The text up to the next blank, and what follows it.
fn token(text: &[u8]) -> (&[u8], &[u8]) {
    let text = trim(text);
    text.split_at(text.iter().position(|byte| is_blank(*byte)).unwrap_or(text.len()))
}

/// Without the blanks at both ends.
fn trim(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|byte| !is_blank(*byte)).unwrap_or(text.len());
    let end = text
        .iter()
        .rposition(|byte| !is_blank(*byte))
        .map_or(start, |last| last + 1);
    &text[start..end]
}

/// A blank of this format: space or tab.
fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

fn is_name(name: &[u8]) -> bool {
    name.first().is_some_and(|first| !first.is_ascii_digit())
}

/// Whether a byte may stand in a name without quotes.
pub(super) fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':'
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}
