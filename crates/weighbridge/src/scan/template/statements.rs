//! Tags, and what they set.

use super::lexer::{Broken, Token};
use super::reader::{Item, Reader};
use super::value::Value;

/// Tags without anything behind their name that is a value.
#[rustfmt::skip]
const BARE: &[&str] = &[
    "else", "endfor", "endif", "endmacro", "endcall", "endfilter", "endset", "endwith", "endblock", "endautoescape", "break",
    "continue", "generation", "endgeneration", "debug",
];

/// A name that is set, and the attribute of it that is meant.
type Target<'a> = (&'a str, Option<&'a str>);

impl<'a> Reader<'a, '_> {
    /// Goes through the template to its end.
    pub(super) fn all(&mut self) -> Result<(), Broken> {
        loop {
            match self.step()? {
                Token::BeginOutput => {
                    self.tuple(true)?;
                }
                Token::BeginTag => self.tag()?,
                Token::End => return Ok(()),
                _ => return Err(Broken),
            }
            if self.step()? != Token::Close {
                return Err(Broken);
            }
        }
    }

    fn tag(&mut self) -> Result<(), Broken> {
        match self.expect_name()? {
            "set" => self.set()?,
            "for" => self.for_loop()?,
            "if" | "elif" => {
                self.tuple(false)?;
            }
            "macro" => {
                let name = self.expect_name()?;
                self.names.set(name, Value::BUILT);
                let parameters = self.signature()?;
                self.names.macros.entry(name).or_default();
                // Of several with one name each may be meant.
                for (place, parameter) in parameters.iter().enumerate() {
                    self.names.give(parameter, Value::NUMBER);
                    let other = self.names.macros.get(name).and_then(|known| known.get(place)).copied();
                    match other {
                        Some(other) if other != *parameter => {
                            let (a, b) = (self.names.get(other), self.names.get(parameter));
                            self.names.set(other, b);
                            self.names.set(parameter, a);
                        }
                        Some(_) => {}
                        None => self.names.macros.entry(name).or_default().push(parameter),
                    }
                }
            }
            "call" => {
                if self.is_operator("(") {
                    for parameter in self.signature()? {
                        self.names.give(parameter, self.names.handed.unwrap_or(Value::NUMBER));
                    }
                }
                self.expression()?;
            }
            "with" => {
                while !matches!(self.token, Token::Close) {
                    let name = self.expect_name()?;
                    self.expect("=")?;
                    let value = self.expression()?.value;
                    self.names.set(name, value);
                    if !self.skip(",")? {
                        break;
                    }
                }
            }
            "filter" => {
                let base = self.one_filter(Item::of(Value::TEXT))?;
                self.more_filters(base)?;
            }
            "do" | "print" | "extends" | "autoescape" => {
                self.tuple(true)?;
            }
            "include" => {
                self.expression()?;
                while !matches!(self.token, Token::Close) {
                    self.expect_name()?;
                }
            }
            "import" => {
                self.expression()?;
                if !self.skip_name("as")? {
                    return Err(Broken);
                }
                let name = self.expect_name()?;
                self.names.set(name, Value::BUILT);
                while !matches!(self.token, Token::Close) {
                    self.expect_name()?;
                }
            }
            "from" => {
                self.expression()?;
                while !matches!(self.token, Token::Close) {
                    // Names, `as`, `with context`: whatever it is, it may come from there.
                    if !self.skip(",")? {
                        let name = self.expect_name()?;
                        self.names.set(name, Value::BUILT);
                    }
                }
            }
            "block" => {
                while !matches!(self.token, Token::Close) {
                    self.expect_name()?;
                }
            }
            // An end may repeat the name of its block.
            name if BARE.contains(&name) => {
                if name == "endblock" && !matches!(self.token, Token::Close) {
                    self.expect_name()?;
                }
            }
            _ => return Err(Broken),
        }
        Ok(())
    }

    fn more_filters(&mut self, mut base: Item<'a>) -> Result<(), Broken> {
        while self.skip("|")? {
            base = self.one_filter(base)?;
        }
        Ok(())
    }

    /// `a = b`, `a, b = c`, `a.b = c`, or the text up to `endset`.
    fn set(&mut self) -> Result<(), Broken> {
        let (targets, several) = self.targets("")?;
        let value = if self.skip("=")? {
            let value = self.tuple(true)?.value;
            if several { self.names.part(value, None) } else { value }
        } else {
            self.more_filters(Item::of(Value::TEXT))?;
            Value::TEXT
        };
        self.assign(&targets, value);
        Ok(())
    }

    fn assign(&mut self, targets: &[Target<'a>], value: Value) {
        for (name, attribute) in targets {
            match attribute {
                Some(attribute) => self.names.set_attribute(attribute, value),
                None => self.names.set(name, value),
            }
        }
    }

    /// Names that are set, and whether they are items of a list. They end with `=`, the name `end`, or the tag.
    fn targets(&mut self, end: &str) -> Result<(Vec<Target<'a>>, bool), Broken> {
        let (mut targets, mut several) = (Vec::new(), false);
        loop {
            match &self.token {
                Token::Operator("=" | "|") | Token::Close => break,
                Token::Name(name) if *name == end => break,
                Token::Operator("(" | ")") => {
                    self.step()?;
                }
                Token::Operator(",") => {
                    several = true;
                    self.step()?;
                }
                Token::Name(_) => {
                    let name = self.expect_name()?;
                    let attribute = if self.skip(".")? { Some(self.expect_name()?) } else { None };
                    targets.push((name, attribute));
                }
                _ => return Err(Broken),
            }
        }
        if targets.is_empty() { Err(Broken) } else { Ok((targets, several)) }
    }

    /// `a, b in c if d recursive`
    fn for_loop(&mut self) -> Result<(), Broken> {
        let (targets, several) = self.targets("in")?;
        if !self.skip_name("in")? {
            return Err(Broken);
        }
        let through = self.tuple(false)?.value;
        let mut item = self.names.part(through, None);
        if let (true, Some(given)) = (self.names.is_recursive, self.names.arguments) {
            item = item.or(given.part()).or(given.part().part());
        }
        self.names.go_through(item);
        let value = if several { self.names.part(item, None) } else { item };
        self.assign(&targets, value);
        if self.skip_name("if")? {
            self.expression()?;
        }
        if self.skip_name("recursive")? {
            self.names.is_recursive = true;
        }
        Ok(())
    }

    /// `(a, b=c)`: the names, which have what they are without being given.
    fn signature(&mut self) -> Result<Vec<&'a str>, Broken> {
        let mut names = Vec::new();
        self.expect("(")?;
        while !self.skip(")")? {
            let name = self.expect_name()?;
            if self.skip("=")? {
                let value = self.expression()?.value;
                self.names.set(name, value);
            }
            names.push(name);
            if !self.is_operator(")") {
                self.expect(",")?;
            }
        }
        Ok(names)
    }
}
