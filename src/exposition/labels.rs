//! The label set of one series. Knows no label by name.

use std::sync::Arc;

/// The labels of one series, in the order of their names: two lines that write the same labels in another order are one series. So are
/// two of which one writes a label with an empty value and the other does not write it: such a label is none.
///
/// Samples are kept, and many of them: a set is one text, shared by its clones.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Labels(Arc<Text>);

#[derive(Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Text {
    /// Names and values, one behind the other.
    text: Box<str>,
    /// Where in the text each of them ends.
    ends: Box<[u32]>,
}

impl Labels {
    /// The value of the label `name`, escapes resolved.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(label, _)| *label == name).map(|(_, value)| value)
    }

    /// The same set without the label `name`.
    pub fn without(&self, name: &str) -> Self {
        self.iter().filter(|(label, _)| *label != name).collect()
    }

    /// Names and values, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let Text { text, ends } = &*self.0;
        let part = |start: u32, end: u32| &text[start as usize..end as usize];
        let mut start = 0;
        ends.chunks_exact(2).map(move |ends| {
            let label = (part(start, ends[0]), part(ends[0], ends[1]));
            start = ends[1];
            label
        })
    }
}

impl<N: AsRef<str>, V: AsRef<str>> FromIterator<(N, V)> for Labels {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(labels: I) -> Self {
        let mut labels: Vec<_> = labels
            .into_iter()
            .filter(|(_, value)| !value.as_ref().is_empty())
            .collect();
        labels.sort_unstable_by(|(name, value), (other_name, other_value)| {
            (name.as_ref(), value.as_ref()).cmp(&(other_name.as_ref(), other_value.as_ref()))
        });
        let (mut text, mut ends) = (String::new(), Vec::with_capacity(2 * labels.len()));
        for part in labels.iter().flat_map(|(name, value)| [name.as_ref(), value.as_ref()]) {
            text.push_str(part);
            // A line is at most some kilobytes long.
            ends.push(text.len() as u32);
        }
        Self(Arc::new(Text {
            text: text.into(),
            ends: ends.into(),
        }))
    }
}
