//! Tags, and what they set.

use super::lexer::{Broken, Token};
use super::reader::{Item, Reader};
use super::value::{DEPTH, Value};

/// Tags without anything behind their name that is a value.
#[rustfmt::skip]
const BARE: &[&str] = &[
    "else", "endfor", "endif", "endmacro", "endcall", "endfilter", "endset", "endwith", "endblock", "endautoescape", "break",
    "continue", "generation", "endgeneration", "debug",
];

/// A name that is set.
struct Target<'a> {
    name: &'a str,
    /// The attribute of it that is meant.
    attribute: Option<&'a str>,
    /// How many brackets it stands in.
    depth: usize,
}

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
                let at = self.lexer_at();
                let name = self.expect_name()?;
                let parameters = self.signature()?;
                self.names.define(name, at, parameters);
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
                self.names.set(name, Value::ANY);
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
                        self.names.set(name, Value::ANY);
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

    fn more_filters(&mut self, mut base: Item<'a>) -> Result<Value, Broken> {
        while self.skip("|")? {
            base = self.one_filter(base)?;
        }
        Ok(base.value)
    }

    /// `a = b`, `a, b = c`, `a, (b, c) = d`, `a.b = c`, or the text up to `endset`.
    fn set(&mut self) -> Result<(), Broken> {
        let (targets, several) = self.targets("")?;
        let value = if self.skip("=")? {
            self.tuple(true)?.value
        } else {
            self.more_filters(Item::of(Value::TEXT))?.or(Value::TEXT)
        };
        self.assign(&targets, several, value);
        Ok(())
    }

    /// Sets names to a value, or `several` to its items. Brackets may hold one name, or several: they have what is in these.
    fn assign(&mut self, targets: &[Target<'a>], several: bool, value: Value) {
        let value = if several { self.names.part(value, None) } else { value };
        for target in targets {
            let (mut part, mut all) = (value, value);
            for _ in 0..target.depth {
                part = self.names.part(part, None);
                all = all.or(part);
            }
            match target.attribute {
                Some(attribute) => self.names.set_attribute(attribute, all),
                None => self.names.set(target.name, all),
            }
        }
    }

    /// Names that are set, and whether they are items of a list. They end with `=`, the name `end`, or the tag.
    fn targets(&mut self, end: &str) -> Result<(Vec<Target<'a>>, bool), Broken> {
        let (mut targets, mut several, mut depth) = (Vec::new(), false, 0_usize);
        loop {
            match &self.token {
                Token::Operator("=" | "|") | Token::Close => break,
                Token::Name(name) if *name == end => break,
                Token::Operator("(") => {
                    self.step()?;
                    depth += 1;
                }
                Token::Operator(")") => {
                    self.step()?;
                    depth = depth.checked_sub(1).ok_or(Broken)?;
                }
                Token::Operator(",") => {
                    several |= depth == 0;
                    self.step()?;
                }
                Token::Name(_) => {
                    let name = self.expect_name()?;
                    let attribute = if self.skip(".")? { Some(self.expect_name()?) } else { None };
                    targets.push(Target { name, attribute, depth: depth.min(DEPTH) });
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
        // A loop that calls itself goes through what it is given; which one does stands behind.
        if let Some(given) = self.names.arguments
            && self.names.is_recursive
        {
            item = item.or(self.names.part(given, None));
        }
        self.names.go_through(item);
        self.assign(&targets, several, item);
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
