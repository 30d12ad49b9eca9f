//! A command line in the making.

/// Arguments in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line(Vec<String>);

impl Line {
    /// Begins with the program and its words.
    pub fn program<const N: usize>(words: [&str; N]) -> Self {
        Self(words.map(str::to_owned).to_vec())
    }

    /// A word on its own.
    pub fn word(&mut self, word: impl Into<String>) -> &mut Self {
        self.0.push(word.into());
        self
    }

    /// An option with a value, as two words: what engines' users read in the engines' own documentation.
    pub fn option(&mut self, flag: &str, value: impl ToString) -> &mut Self {
        self.word(flag).word(value.to_string())
    }

    /// An option with a value, as one word.
    pub fn assign(&mut self, flag: &str, value: impl ToString) -> &mut Self {
        self.word(format!("{flag}={}", value.to_string()))
    }

    /// An option with several values. A command line must not end with one: what follows would join it (finding E of the
    /// compatibility notes).
    pub fn list(&mut self, flag: &str, values: impl IntoIterator<Item = String>) -> &mut Self {
        self.word(flag);
        self.0.extend(values);
        self
    }

    /// A user's own arguments, as they are.
    pub fn extend(&mut self, arguments: &[String]) -> &mut Self {
        self.0.extend_from_slice(arguments);
        self
    }

    /// The arguments.
    pub fn into_arguments(self) -> Vec<String> {
        self.0
    }
}
