//! A ModelDeployment in YAML.
//!
//! YAML stays YAML: what `yes`, `0644` or a repeated key mean is for the API server to say, whose reading (YAML 1.1) is not that of
//! the parser used here, and who finds repeated keys for a caller that asks for strict validation. Aliases are not followed, so
//! none can multiply.

use granit_parser::{Event, Parser, ScalarStyle, Span};

use super::inbound::{DEEPEST, Inbound, Refused};
use super::splices::Splices;
use super::{SERVED, STORED};

/// The places of `text` that name the version.
///
/// # Errors
/// `text` is not one YAML document, is of another version, or names the version in a place that it shares with something else.
pub fn rename(kind: Inbound, text: &str) -> Result<Splices<'_>, Refused> {
    let options = granit_parser::options! {
        emit_comments: false,
        flow_nesting_limit: DEEPEST,
        block_nesting_limit: DEEPEST,
    };
    let mut walk = Walk {
        kind,
        text,
        open: Vec::new(),
        splices: Splices::new(text, STORED),
    };
    let mut documents = 0;
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = event?;
        match event {
            Event::DocumentStart(..) => documents += 1,
            Event::Scalar(value, style, anchor, _) => walk.scalar(&value, style, anchor, span)?,
            Event::Alias(_) => walk.alias()?,
            Event::MappingStart(_, anchor, _) => walk.start(true, anchor)?,
            Event::SequenceStart(_, anchor, _) => walk.start(false, anchor)?,
            Event::MappingEnd | Event::SequenceEnd => drop(walk.open.pop()),
            _ => {}
        }
        if documents > 1 {
            return Err(Refused::Documents);
        }
    }
    Ok(walk.splices)
}

/// What a node is to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Object,
    ObjectVersion,
    Metadata,
    ManagedFields,
    ManagedField,
    ManagedFieldVersion,
    Elsewhere,
}

impl Place {
    /// The value of `key`, where this is a mapping.
    fn member(self, key: &str) -> Self {
        match (self, key) {
            (Place::Object, "apiVersion") => Place::ObjectVersion,
            (Place::Object, "metadata") => Place::Metadata,
            (Place::Metadata, "managedFields") => Place::ManagedFields,
            (Place::ManagedField, "apiVersion") => Place::ManagedFieldVersion,
            _ => Place::Elsewhere,
        }
    }

    /// An element, where this is a sequence.
    fn element(self) -> Self {
        match self {
            Place::ManagedFields => Place::ManagedField,
            _ => Place::Elsewhere,
        }
    }

    /// Whether a mapping here is one whose members matter.
    fn is_mapping(self) -> bool {
        matches!(self, Place::Object | Place::Metadata | Place::ManagedField)
    }
}

/// A mapping or sequence that the walk is in.
struct Open {
    place: Place,
    next: Next,
}

/// What the next node of a collection is.
enum Next {
    Element,
    Key,
    Value(Place),
}

/// What the node at hand is.
enum Node {
    Key(Place),
    Value(Place),
}

struct Walk<'a> {
    kind: Inbound,
    text: &'a str,
    open: Vec<Open>,
    splices: Splices<'a>,
}

impl Walk<'_> {
    /// The place of the node that begins, which is behind the walk from then on.
    fn node(&mut self) -> Node {
        let Some(open) = self.open.last_mut() else {
            return Node::Value(Place::Object);
        };
        match open.next {
            Next::Element => Node::Value(open.place.element()),
            Next::Key => {
                // A key that is no scalar is none of ours.
                open.next = Next::Value(Place::Elsewhere);
                Node::Key(open.place)
            }
            Next::Value(place) => {
                open.next = Next::Key;
                Node::Value(place)
            }
        }
    }

    fn scalar(&mut self, value: &str, style: ScalarStyle, anchor: usize, span: Span) -> Result<(), Refused> {
        match self.node() {
            Node::Key(Place::Elsewhere) => {}
            Node::Key(mapping) => {
                // Merging brings members in that stand elsewhere.
                if value == "<<" && style == ScalarStyle::Plain {
                    return Err(Refused::Indirect);
                }
                let member = match mapping.member(value) {
                    Place::Metadata if !self.kind.has_managed_fields() => Place::Elsewhere,
                    member => member,
                };
                if let Some(open) = self.open.last_mut() {
                    open.next = Next::Value(member);
                }
            }
            Node::Value(place) => {
                own(place, anchor)?;
                if place == Place::ObjectVersion && !is_null(value, style) {
                    self.kind.check(value)?;
                }
                if matches!(place, Place::ObjectVersion | Place::ManagedFieldVersion) && value == SERVED {
                    self.replace(span);
                }
            }
        }
        Ok(())
    }

    fn alias(&mut self) -> Result<(), Refused> {
        match self.node() {
            Node::Key(Place::Elsewhere) | Node::Value(Place::Elsewhere) => Ok(()),
            _ => Err(Refused::Indirect),
        }
    }

    fn start(&mut self, mapping: bool, anchor: usize) -> Result<(), Refused> {
        let place = match self.node() {
            Node::Key(_) => Place::Elsewhere,
            Node::Value(place) => place,
        };
        own(place, anchor)?;
        let fits = if mapping {
            place.is_mapping()
        } else {
            place == Place::ManagedFields
        };
        self.open.push(Open {
            place: if fits { place } else { Place::Elsewhere },
            next: if mapping { Next::Key } else { Next::Element },
        });
        Ok(())
    }

    /// Replaces a scalar that reads `v1`'s name, keeping its quotes.
    fn replace(&mut self, span: Span) {
        let Some(range) = span.byte_range() else { return };
        self.splices.replace(match self.text[range.clone()].find(SERVED) {
            Some(start) => range.start + start..range.start + start + SERVED.len(),
            // Between double quotes, the only style that has escapes.
            None => range.start + 1..range.end - 1,
        });
    }
}

/// A node that has an anchor is another's too.
fn own(place: Place, anchor: usize) -> Result<(), Refused> {
    match place {
        Place::Object | Place::Elsewhere => Ok(()),
        _ if anchor == 0 => Ok(()),
        _ => Err(Refused::Indirect),
    }
}

fn is_null(value: &str, style: ScalarStyle) -> bool {
    style == ScalarStyle::Plain && matches!(value, "" | "~" | "null" | "Null" | "NULL")
}
