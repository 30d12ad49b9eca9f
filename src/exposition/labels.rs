//! The label set of one series. Knows no label by name.

/// The labels of one series, in the order of their names: two lines that write the same labels in another order are one series.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Labels(Vec<(String, String)>);

impl Labels {
    /// The value of the label `name`, escapes resolved.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(label, _)| *label == name).map(|(_, value)| value)
    }

    /// The same set without the label `name`.
    pub fn without(&self, name: &str) -> Self {
        Self(self.0.iter().filter(|(label, _)| label != name).cloned().collect())
    }

    /// Names and values, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Labels {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(labels: I) -> Self {
        let mut labels: Vec<_> = labels
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        labels.sort_unstable();
        Self(labels)
    }
}
