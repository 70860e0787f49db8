//! Elements of a document in XML: names, attributes, nested elements and texts.

use weighbridge_core::budget::Budget;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::text::quoted;

/// Memory of an element or an attribute, besides its texts.
const ENTRY: u64 = 150;

/// Maximum bytes of an entity, with its semicolon.
const MAX_ENTITY: usize = 12;

/// Element.
#[derive(Debug, Default)]
pub(crate) struct Element {
    /// Name.
    pub(crate) name: String,
    /// Offset of its tag.
    pub(crate) at: u64,
    /// Attributes in the order of the file.
    pub(crate) attributes: Vec<(String, String)>,
    /// Nested elements.
    pub(crate) children: Vec<Element>,
    /// Text before the first nested element.
    pub(crate) text: String,
}

impl Element {
    /// Returns an attribute.
    pub(crate) fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// Returns the first nested element of a name.
    pub(crate) fn child(&self, name: &str) -> Option<&Self> {
        self.children.iter().find(|child| child.name == name)
    }

    /// Returns the nested elements of a nested element: the items of a list.
    pub(crate) fn items(&self, name: &str) -> &[Self] {
        self.child(name).map_or(&[], |child| &child.children)
    }
}

/// Parses a document; returns its root.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`], `bad-text`; [`weighbridge_core::Kind::Limit`].
pub(crate) fn parse(text: &str, budget: &Budget) -> Result<Element> {
    let mut open: Vec<Element> = Vec::new();
    let (mut rest, end) = (text, text.len());
    let fail = |text: &str, rest: &str| {
        let shown: String = rest.chars().take(40).collect();
        Error::corrupt("bad-text", text).at((end - rest.len()) as u64).found(quoted(&shown))
    };
    loop {
        let Some(begin) = rest.find('<') else {
            return Err(fail("the network ends within an element", ""));
        };
        let (before, tag) = rest.split_at(begin);
        if let Some(parent) = open.last_mut().filter(|parent| parent.children.is_empty()) {
            budget.take_memory(before.len() as u64)?;
            parent.text.push_str(&unescaped(before.trim()));
        }
        let skipped = [("<?", "?>"), ("<!--", "-->")].into_iter().find(|(start, _)| tag.starts_with(start));
        if let Some((_, stop)) = skipped {
            let stop_at = tag.find(stop).ok_or_else(|| fail("a comment has no end", tag))?;
            rest = tag.get(stop_at + stop.len()..).unwrap_or_default();
            continue;
        }
        if tag.starts_with("<!") {
            return Err(fail("the network has a document type or raw text, which is not read", tag));
        }
        if let Some(name) = tag.strip_prefix("</") {
            let (name, after) = name.split_once('>').ok_or_else(|| fail("a tag has no end", tag))?;
            let Some(closed) = open.pop().filter(|closed| closed.name == name.trim_end()) else {
                return Err(fail("an end tag does not match its element", tag));
            };
            rest = after;
            match open.last_mut() {
                Some(parent) => parent.children.push(closed),
                None => return Ok(closed),
            }
            continue;
        }
        let at = (end - tag.len()) as u64;
        let (mut element, after, is_empty) =
            start(tag, budget).ok_or_else(|| fail("a tag is malformed", tag))?;
        budget.take_memory(ENTRY)?;
        Budget::check_depth(open.len()).map_err(|error| error.at(at))?;
        element.at = at;
        rest = after;
        match (is_empty, open.last_mut()) {
            (false, _) => open.push(element),
            (true, Some(parent)) => parent.children.push(element),
            (true, None) => return Ok(element),
        }
    }
}

/// Parses a start tag: the element, the text after it, and true for an element without an end tag. `None` if it is malformed, or beyond
/// the budget.
fn start<'a>(tag: &'a str, budget: &Budget) -> Option<(Element, &'a str, bool)> {
    let is_name = |c: char| !c.is_whitespace() && !matches!(c, '=' | '>' | '/' | '<' | '"' | '\'');
    let word = |text: &'a str| text.split_at(text.find(|c| !is_name(c)).unwrap_or(text.len()));
    let (name, mut rest) = word(tag.strip_prefix('<')?);
    if name.is_empty() {
        return None;
    }
    let mut element = Element { name: name.to_owned(), ..Element::default() };
    loop {
        rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix('>') {
            return Some((element, after, false));
        }
        if let Some(after) = rest.strip_prefix("/>") {
            return Some((element, after, true));
        }
        let (key, after) = word(rest);
        let value = after.trim_start().strip_prefix('=')?.trim_start();
        let quote = value.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
        let (value, after) = value.get(1..)?.split_once(quote)?;
        budget.take_memory(ENTRY.saturating_add((key.len() + value.len()) as u64)).ok()?;
        if key.is_empty() {
            return None;
        }
        element.attributes.push((key.to_owned(), unescaped(value)));
        rest = after;
    }
}

/// Replaces entities by their characters. Others stay as they are.
fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('&') {
        out.push_str(before);
        // Far semicolons are not searched, so that the work is that of the text.
        let end = after.bytes().take(MAX_ENTITY).position(|byte| byte == b';');
        let found = end.and_then(|end| Some((entity(after.get(..end)?)?, after.get(end + 1..)?)));
        match found {
            Some((character, after)) => {
                out.push(character);
                rest = after;
            }
            None => {
                out.push('&');
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out
}

fn entity(name: &str) -> Option<char> {
    Some(match name {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        _ => {
            let number = name.strip_prefix('#')?;
            let number = match number.strip_prefix('x') {
                Some(digits) => u32::from_str_radix(digits, 16),
                None => number.parse(),
            };
            char::from_u32(number.ok()?)?
        }
    })
}
