//! What an engine Pod's name says: whose Pod it is and where it stands.

/// What an engine Pod's name says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Named<'a> {
    /// The role's name.
    pub role: &'a str,
    /// The replica's ordinal.
    pub ordinal: u32,
    /// The member of the replica; 0 leads.
    pub member: u32,
}

/// What the name `pod` says in the ModelDeployment `md`: `<md>-<role>-<ordinal>[-<member>]` (resource contract,
/// "Engine Pods"). Where two roles would read one name (`a` and `a-0`), the one that the Pod itself names, `hint`, is taken.
pub fn named<'a>(
    md: &str,
    roles: impl IntoIterator<Item = &'a str>,
    pod: &str,
    hint: Option<&str>,
) -> Option<Named<'a>> {
    let rest = pod.strip_prefix(md)?.strip_prefix('-')?;
    let mut readings = roles.into_iter().filter_map(|role| {
        let numbers = rest.strip_prefix(role)?.strip_prefix('-')?;
        let (ordinal, member) = match numbers.split_once('-') {
            Some((ordinal, member)) => (number(ordinal)?, number(member)?),
            None => (number(numbers)?, 0),
        };
        Some(Named { role, ordinal, member })
    });
    let first = readings.next()?;
    if hint == Some(first.role) {
        return Some(first);
    }
    Some(readings.find(|named| hint == Some(named.role)).unwrap_or(first))
}

/// A number as we write it: digits without a leading zero.
fn number(text: &str) -> Option<u32> {
    let canonical = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    canonical.then(|| text.parse().ok()).flatten()
}
