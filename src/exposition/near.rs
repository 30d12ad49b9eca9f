//! Names that nearly are a wanted one: what a renamed family, a foreign prefix or a client without `_total` leaves behind. Finds a
//! name for a sentence, never a value.

use super::family::Family;
use super::line::{self, Line};
use super::wanted::Wanted;

/// Changes of the name from line to line that are looked at. Lines of one family stand together, so the widest real body has some
/// hundred; a hostile one has a name a line.
const NAMES: usize = 4096;

/// A name longer than this is no near match of anything.
const NAME_BYTES: usize = 128;

/// Looks for a near match of each absent family: the first in the body.
pub(super) fn name(body: &[u8], wanted: &Wanted, families: &mut [Family]) {
    let mut absent: Vec<_> = families
        .iter_mut()
        .zip(wanted.families())
        .filter(|(family, _)| family.is_absent())
        .map(|(family, want)| (family, parts(&want.name, wanted.prefixes())))
        .collect();
    if absent.is_empty() {
        return;
    }
    let mut last = "";
    let names = line::split(body)
        .filter_map(|line| match line::classify(line) {
            Line::Sample(start) => Some(start.name),
            _ => None,
        })
        .filter(|name| std::mem::replace(&mut last, name) != *name);
    for name in names.take(NAMES).filter(|name| is_speakable(name)) {
        for (family, (prefix, local)) in &mut absent {
            if is_near(name, prefix, local) {
                family.set_near(name);
            }
        }
    }
}

/// Whether a name may stand in a sentence. In quotes, a body can write anything for a name, an address too.
fn is_speakable(name: &str) -> bool {
    name.len() <= NAME_BYTES && name.bytes().all(line::is_name_byte)
}

/// The producer's prefix of a wanted name, with `_` for `:`, and what follows it, without the suffix that tells the figure.
fn parts<'a>(wanted: &'a str, prefixes: &[String]) -> (String, &'a str) {
    let wanted = stem(wanted);
    let split = |prefix: &String| Some((prefix.replace(':', "_"), wanted.strip_prefix(prefix.as_str())?));
    prefixes
        .iter()
        .find_map(split)
        .unwrap_or_else(|| (String::new(), wanted))
}

/// Whether `name` is a wanted one with or without `_total` (or a histogram's suffix), behind no prefix, another one, or a longer one.
///
/// Behind the producer's own prefix, a further word makes another name: `vllm:external_prefix_cache_hits` is not
/// `vllm:prefix_cache_hits`.
fn is_near(name: &str, prefix: &str, local: &str) -> bool {
    let Some(before) = stem(name).strip_suffix(local) else {
        return false;
    };
    let has_no_further_word = || {
        let before = before.replace(':', "_");
        before.rsplit_once(prefix).is_none_or(|(_, further)| further.is_empty())
    };
    before.is_empty() || before.ends_with(':') || before.ends_with('_') && has_no_further_word()
}

/// Without the suffix that tells the figure. `_created` is none of them: it holds a time.
fn stem(name: &str) -> &str {
    ["_total", "_sum", "_count", "_bucket"]
        .into_iter()
        .find_map(|suffix| name.strip_suffix(suffix))
        .unwrap_or(name)
}
