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
        .map(|(family, want)| (family, &*want.name))
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
        for (family, wanted) in &mut absent {
            if is_near(name, wanted) {
                family.set_near(name);
            }
        }
    }
}

/// Whether a name may stand in a sentence. In quotes, a body can write anything for a name, an address too.
fn is_speakable(name: &str) -> bool {
    name.len() <= NAME_BYTES && name.bytes().all(line::is_name_byte)
}

/// Whether `name` is `wanted` with or without `_total` (or a histogram's suffix), with `_` for `:`, behind or with another prefix.
fn is_near(name: &str, wanted: &str) -> bool {
    let (name, wanted) = (stem(name), stem(wanted));
    if ends_with(name, wanted) {
        return true;
    }
    let local = wanted.rsplit_once(':').map(|(_, local)| local);
    local.is_some_and(|local| name == local || name.rsplit_once(':').is_some_and(|(_, other)| other == local))
}

/// Without the suffix that tells the figure. `_created` is none of them: it holds a time.
fn stem(name: &str) -> &str {
    ["_total", "_sum", "_count", "_bucket"]
        .into_iter()
        .find_map(|suffix| name.strip_suffix(suffix))
        .unwrap_or(name)
}

/// Whether `name` is `wanted`, perhaps behind a longer prefix, where `_` and `:` are one.
fn ends_with(name: &str, wanted: &str) -> bool {
    let is_joint = |byte: u8| byte == b'_' || byte == b':';
    let Some(prefix) = name.len().checked_sub(wanted.len()) else {
        return false;
    };
    let (prefix, tail) = name.as_bytes().split_at(prefix);
    prefix.last().is_none_or(|byte| is_joint(*byte))
        && tail
            .iter()
            .zip(wanted.as_bytes())
            .all(|(a, b)| a == b || is_joint(*a) && is_joint(*b))
}
