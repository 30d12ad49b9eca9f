//! Places of a text that get another content.

use std::ops::Range;

/// The places of `text` where `by` is to stand.
#[derive(Debug)]
pub struct Splices<'a> {
    text: &'a str,
    by: &'static str,
    places: Vec<Range<usize>>,
}

impl<'a> Splices<'a> {
    /// No place yet.
    pub fn new(text: &'a str, by: &'static str) -> Self {
        Splices {
            text,
            by,
            places: Vec::new(),
        }
    }

    /// Replaces `range`. Places come in their order and apart from each other.
    pub fn replace(&mut self, range: Range<usize>) {
        self.places.push(range);
    }

    /// Replaces `part`, a slice of the text itself.
    pub fn replace_part(&mut self, part: &'a str) {
        let start = part.as_ptr().addr() - self.text.as_ptr().addr();
        self.replace(start..start + part.len());
    }

    /// The new text; `None` where nothing is replaced.
    pub fn apply(self) -> Option<Vec<u8>> {
        if self.places.is_empty() {
            return None;
        }
        let text = self.text.as_bytes();
        let mut spliced = Vec::with_capacity(text.len() + self.places.len() * self.by.len());
        let mut end = 0;
        for place in self.places {
            spliced.extend_from_slice(&text[end..place.start]);
            spliced.extend_from_slice(self.by.as_bytes());
            end = place.end;
        }
        spliced.extend_from_slice(&text[end..]);
        Some(spliced)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_replaced_stays() {
        let text = "one, two, one";
        let mut splices = Splices::new(text, "three");
        splices.replace_part(&text[..3]);
        splices.replace(10..13);
        assert_eq!(splices.apply().unwrap(), b"three, two, three");
        assert_eq!(Splices::new(text, "three").apply(), None);
    }
}
