//! Expressions, as Jinja parses them, with what is known of their values.

use super::lexer::{Broken, Lexer, Token};
use super::names::{Names, begins_safely, literal};
use super::value::{Kinds, Value};
use std::borrow::Cow;
use std::fmt::Display;

/// Expressions within expressions.
const DEPTH: usize = 60;

/// What binds the operands: the tighter, the higher.
const OR: u8 = 1;
const AND: u8 = 2;
const NOT: u8 = 3;
const COMPARE: u8 = 4;
const ADD: u8 = 5;
const TIE: u8 = 6;
const TIMES: u8 = 7;
const POWER: u8 = 8;

/// An expression.
#[derive(Debug, Clone)]
pub(super) struct Item<'a> {
    pub(super) value: Value,
    /// The text that it is.
    pub(super) literal: Option<Cow<'a, str>>,
    /// The name that it is.
    pub(super) name: Option<&'a str>,
    /// It begins with a text of the template that no name that leads further begins with.
    begins: bool,
    /// It ends with a text of the template that no name of two underscores ends with.
    ends: bool,
}

impl<'a> Item<'a> {
    pub(super) fn of(value: Value) -> Self {
        Self { value, literal: None, name: None, begins: false, ends: false }
    }

    fn text(text: Cow<'a, str>) -> Self {
        let (begins, ends) = (begins_safely(&text), !text.is_empty() && !text.ends_with('_'));
        Self { value: literal(&text), literal: Some(text), name: None, begins, ends }
    }
}

/// What a function is given.
#[derive(Debug, Default)]
pub(super) struct Arguments<'a> {
    pub(super) positional: Vec<Item<'a>>,
    pub(super) named: Vec<(&'a str, Item<'a>)>,
    /// Some are in a list or mapping.
    pub(super) unpacked: bool,
    unpacked_items: Option<Value>,
}

impl<'a> Arguments<'a> {
    pub(super) fn keyword(&self, name: &str) -> Option<&Item<'a>> {
        self.named.iter().find(|(key, _)| *key == name).map(|(_, item)| item)
    }

    pub(super) fn unpacked_items(&self) -> Value {
        self.unpacked_items.unwrap_or(Value::NUMBER)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.positional.is_empty() && self.named.is_empty() && !self.unpacked
    }

    /// What is given by a name, and the names.
    pub(super) fn named_values(&self) -> Value {
        let named = self.named.iter().map(|(key, item)| item.value.or(literal(key)));
        named.fold(Value::NUMBER, Value::or)
    }

    /// All of it, with the names.
    pub(super) fn all(&self) -> Value {
        self.all_from(0).or(self.named_values())
    }

    /// The positional ones from a place on, and all others, without their names.
    pub(super) fn all_from(&self, place: usize) -> Value {
        let positional = self.positional.iter().skip(place);
        let all = positional.chain(self.named.iter().map(|(_, item)| item));
        all.fold(self.unpacked_items(), |all, item| all.or(item.value))
    }
}

/// Goes through a template once.
#[derive(Debug)]
pub(super) struct Reader<'a, 'n> {
    text: &'a str,
    lexer: Lexer<'a>,
    pub(super) token: Token<'a>,
    next: Option<Token<'a>>,
    pub(super) names: &'n mut Names<'a>,
    /// What was found first.
    pub(super) found: Option<String>,
    depth: usize,
}

impl<'a, 'n> Reader<'a, 'n> {
    pub(super) fn new(text: &'a str, names: &'n mut Names<'a>) -> Result<Self, Broken> {
        let mut lexer = Lexer::new(text);
        let token = lexer.next()?;
        Ok(Self { text, lexer, token, next: None, names, found: None, depth: 0 })
    }

    /// Notes that the template reaches further than what it is given.
    pub(super) fn reach(&mut self, what: impl Display) {
        if self.found.is_none() {
            let line = self.text[..self.lexer.at].matches('\n').count() + 1;
            self.found = Some(format!("line {line} of the template {what}"));
        }
    }

    /// A place of the template: each token has its own.
    pub(super) fn lexer_at(&self) -> usize {
        self.lexer.at
    }

    pub(super) fn step(&mut self) -> Result<Token<'a>, Broken> {
        let next = match self.next.take() {
            Some(next) => next,
            None => self.lexer.next()?,
        };
        if let Token::Name(name) = next
            && !name.is_ascii()
        {
            // Python makes letters of other scripts the same that the template keeps apart.
            self.reach("has a name with letters beyond ASCII");
        }
        Ok(std::mem::replace(&mut self.token, next))
    }

    fn peek(&mut self) -> Result<&Token<'a>, Broken> {
        if self.next.is_none() {
            self.next = Some(self.lexer.next()?);
        }
        self.next.as_ref().ok_or(Broken)
    }

    pub(super) fn is_operator(&self, operator: &str) -> bool {
        matches!(self.token, Token::Operator(found) if found == operator)
    }

    pub(super) fn is_name(&self, name: &str) -> bool {
        matches!(self.token, Token::Name(found) if found == name)
    }

    /// Passes over it where it is there.
    pub(super) fn skip(&mut self, operator: &str) -> Result<bool, Broken> {
        let is_there = self.is_operator(operator);
        if is_there {
            self.step()?;
        }
        Ok(is_there)
    }

    pub(super) fn skip_name(&mut self, name: &str) -> Result<bool, Broken> {
        let is_there = self.is_name(name);
        if is_there {
            self.step()?;
        }
        Ok(is_there)
    }

    pub(super) fn expect(&mut self, operator: &str) -> Result<(), Broken> {
        if self.skip(operator)? { Ok(()) } else { Err(Broken) }
    }

    pub(super) fn expect_name(&mut self) -> Result<&'a str, Broken> {
        match self.step()? {
            Token::Name(name) => Ok(name),
            _ => Err(Broken),
        }
    }

    /// `a if b else c`
    pub(super) fn expression(&mut self) -> Result<Item<'a>, Broken> {
        self.depth += 1;
        if self.depth > DEPTH {
            return Err(Broken);
        }
        let mut item = self.operands(OR)?;
        while self.skip_name("if")? {
            self.operands(OR)?;
            if !self.skip_name("else")? {
                // Nothing is no text, and ties as an empty one.
                item = Item::of(item.value);
                continue;
            }
            // What stands behind goes on as a condition of its own.
            let other = self.operands(OR)?;
            item = Item::of(item.value.or(other.value));
        }
        self.depth -= 1;
        Ok(item)
    }

    /// Expressions with commas between, which are a list; `whole` where each may have a condition.
    pub(super) fn tuple(&mut self, whole: bool) -> Result<Item<'a>, Broken> {
        let mut items = Value::NUMBER;
        let mut first = None;
        let mut commas = false;
        loop {
            let ends = matches!(self.token, Token::Close)
                || self.is_operator(")")
                || (!whole && self.is_name("recursive"));
            if ends {
                break;
            }
            let item = if whole { self.expression()? } else { self.operands(OR)? };
            items = items.or(item.value);
            first.get_or_insert(item);
            if !self.skip(",")? {
                break;
            }
            commas = true;
        }
        match first {
            Some(first) if !commas => Ok(first),
            Some(_) => Ok(Item::of(Value::list(items))),
            None if self.is_operator(")") => Ok(Item::of(Value::list(items))),
            None => Err(Broken),
        }
    }

    /// Operators that bind as tight as `least`, or tighter.
    fn operands(&mut self, least: u8) -> Result<Item<'a>, Broken> {
        let mut left = if least <= NOT && self.is_name("not") {
            while self.skip_name("not")? {}
            self.operands(COMPARE)?;
            Item::of(Value::NUMBER)
        } else {
            self.unary(true)?
        };
        loop {
            let (operator, binds) = match &self.token {
                Token::Name("or") => ("or", OR),
                Token::Name("and") => ("or", AND),
                Token::Name("in") => ("in", COMPARE),
                Token::Name("not") => ("not", COMPARE),
                Token::Operator(operator) => match *operator {
                    "==" | "!=" | "<" | "<=" | ">" | ">=" => ("in", COMPARE),
                    "+" | "-" => (*operator, ADD),
                    "~" => ("~", TIE),
                    "*" | "/" | "//" | "%" => (*operator, TIMES),
                    "**" => ("-", POWER),
                    _ => break,
                },
                _ => break,
            };
            if binds < least || (operator == "not" && *self.peek()? != Token::Name("in")) {
                break;
            }
            self.step()?;
            if operator == "not" {
                self.step()?;
            }
            let right = self.operands(binds + 1)?;
            left = combined(operator, &left, &right);
        }
        Ok(left)
    }

    fn unary(&mut self, filters: bool) -> Result<Item<'a>, Broken> {
        let mut signs = false;
        while self.is_operator("-") || self.is_operator("+") {
            self.step()?;
            signs = true;
        }
        let mut item = self.primary()?;
        item = self.behind(item, false)?;
        if signs {
            item = Item::of(Value::NUMBER);
        }
        if filters { self.behind(item, true) } else { Ok(item) }
    }

    fn primary(&mut self) -> Result<Item<'a>, Broken> {
        match self.step()? {
            Token::Number => Ok(Item { begins: true, ..Item::of(Value::NUMBER) }),
            Token::Text(mut text) => {
                while let Token::Text(_) = self.token {
                    if let Token::Text(more) = self.step()? {
                        text.to_mut().push_str(&more);
                    }
                }
                Ok(Item::text(text))
            }
            Token::Name("true" | "True" | "false" | "False" | "none" | "None") => Ok(Item::of(Value::NUMBER)),
            Token::Name(name) => {
                // A function that is called is not a value.
                let called = self.is_operator("(");
                let value = if called { Value::ANY } else { self.names.get(name) };
                Ok(Item { name: Some(name), ..Item::of(value) })
            }
            Token::Operator("(") => {
                let item = self.nested(|reader| reader.tuple(true))?;
                self.expect(")")?;
                Ok(Item { name: None, ..item })
            }
            Token::Operator("[") => {
                let mut items = Value::NUMBER;
                while !self.skip("]")? {
                    items = items.or(self.expression()?.value);
                    if !self.is_operator("]") {
                        self.expect(",")?;
                    }
                }
                Ok(Item::of(Value::list(items)))
            }
            Token::Operator("{") => {
                let mut items = Value::NUMBER;
                while !self.skip("}")? {
                    items = items.or(self.expression()?.value);
                    self.expect(":")?;
                    items = items.or(self.expression()?.value);
                    if !self.is_operator("}") {
                        self.expect(",")?;
                    }
                }
                Ok(Item::of(Value::mapping(items)))
            }
            _ => Err(Broken),
        }
    }

    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, Broken>) -> Result<T, Broken> {
        self.depth += 1;
        if self.depth > DEPTH {
            return Err(Broken);
        }
        let read = read(self)?;
        self.depth -= 1;
        Ok(read)
    }

    /// What stands behind: `.name`, `[key]`, `(arguments)`, and with `filters` also `| filter` and `is test`.
    fn behind(&mut self, mut item: Item<'a>, filters: bool) -> Result<Item<'a>, Broken> {
        loop {
            match &self.token {
                Token::Operator(".") => {
                    self.step()?;
                    item = match self.step()? {
                        Token::Name(name) => self.member(item, name)?,
                        Token::Number => Item::of(self.names.part(item.value, None)),
                        _ => return Err(Broken),
                    };
                }
                Token::Operator("[") => {
                    self.step()?;
                    item = self.subscript(item)?;
                }
                Token::Operator("(") => {
                    let arguments = self.arguments()?;
                    let value = match item.name {
                        Some(name) => self.function(name, &arguments),
                        None => {
                            self.names.lose(arguments.all());
                            Value::ANY
                        }
                    };
                    item = Item::of(value);
                }
                Token::Operator("|") if filters => {
                    self.step()?;
                    item = self.one_filter(item)?;
                }
                Token::Name("is") if filters => {
                    self.step()?;
                    self.test()?;
                    item = Item::of(Value::NUMBER);
                }
                _ => return Ok(item),
            }
        }
    }

    /// Behind a dot, or a text in brackets: an attribute, or a method that is called.
    fn member(&mut self, base: Item<'a>, name: &str) -> Result<Item<'a>, Broken> {
        let value = self.access(&base, name);
        if self.is_operator("(") {
            let arguments = self.arguments()?;
            return Ok(Item::of(self.method(&base, name, &arguments)));
        }
        Ok(Item::of(value))
    }

    /// `base[key]`, from behind the bracket on.
    fn subscript(&mut self, base: Item<'a>) -> Result<Item<'a>, Broken> {
        let (mut keys, mut slice, mut several) = (Vec::new(), false, false);
        loop {
            if self.is_operator("]") {
                break;
            }
            if !(self.is_operator(":") || self.is_operator(",")) {
                keys.push(self.expression()?);
            }
            while self.skip(":")? {
                slice = true;
                if !(self.is_operator(":") || self.is_operator(",") || self.is_operator("]")) {
                    self.expression()?;
                }
            }
            if !self.skip(",")? {
                break;
            }
            // Several keys are a list, which is no name.
            several = true;
        }
        self.expect("]")?;
        let key = match keys.pop() {
            _ if several => return Ok(Item::of(self.names.part(base.value, None))),
            _ if slice => return Ok(Item::of(base.value.some())),
            Some(key) => key,
            None => return Err(Broken),
        };
        if let Some(name) = &key.literal {
            let name = name.clone();
            return self.member(base, &name);
        }
        // Mappings have no names of one underscore.
        let is_none = key.ends && base.value.is_mapping();
        if key.value.top().has(Kinds::BUILT) && !is_none {
            self.reach(
                "looks something up by a name that is put together, or comes from the files of the model",
            );
        }
        let value = self.names.part(base.value, None);
        // It may be the name of a method.
        Ok(Item::of(if key.value.is_number() { value } else { value.or_function() }))
    }

    /// A filter from its name on.
    pub(super) fn one_filter(&mut self, base: Item<'a>) -> Result<Item<'a>, Broken> {
        let mut name = Cow::Borrowed(self.expect_name()?);
        while self.skip(".")? {
            let more = self.expect_name()?;
            let name = name.to_mut();
            name.push('.');
            name.push_str(more);
        }
        let arguments = if self.is_operator("(") { self.arguments()? } else { Arguments::default() };
        Ok(Item::of(self.filter(&name, &base, &arguments)))
    }

    /// A test from its name on: it gives a truth, and looks nothing up by itself.
    fn test(&mut self) -> Result<(), Broken> {
        self.skip_name("not")?;
        self.expect_name()?;
        while self.skip(".")? {
            self.expect_name()?;
        }
        let has_operand = match &self.token {
            Token::Operator("(") => {
                self.arguments()?;
                false
            }
            Token::Name("else" | "or" | "and") => false,
            Token::Name("is") => return Err(Broken),
            Token::Name(_) | Token::Text(_) | Token::Number | Token::Operator("[" | "{") => true,
            _ => false,
        };
        if has_operand {
            let operand = self.primary()?;
            self.behind(operand, false)?;
        }
        Ok(())
    }

    /// `(a, b=c, *d, **e)`
    pub(super) fn arguments(&mut self) -> Result<Arguments<'a>, Broken> {
        let mut arguments = Arguments::default();
        self.expect("(")?;
        while !self.skip(")")? {
            if self.is_operator("*") || self.is_operator("**") {
                self.step()?;
                let given = self.expression()?.value;
                let items = self.names.part(given, None);
                arguments.unpacked = true;
                arguments.unpacked_items =
                    Some(arguments.unpacked_items.map_or(items, |known| known.or(items)));
            } else if let Token::Name(name) = self.token
                && *self.peek()? == Token::Operator("=")
            {
                self.step()?;
                self.step()?;
                arguments.named.push((name, self.expression()?));
            } else {
                arguments.positional.push(self.expression()?);
            }
            if !self.is_operator(")") {
                self.expect(",")?;
            }
        }
        Ok(arguments)
    }
}

/// What an operator gives.
fn combined<'a>(operator: &str, left: &Item<'a>, right: &Item<'a>) -> Item<'a> {
    let (a, b) = (left.value, right.value);
    let is_number = a.is_number() || b.is_number();
    let tied = || {
        if a.is_harmless() && b.is_harmless() {
            return Value::PLAIN;
        }
        if left.begins { Value::text(Kinds::PLAIN, Kinds::BUILT) } else { Value::TEXT }
    };
    let value = match operator {
        "or" => a.or(b),
        "in" => Value::NUMBER,
        "~" => return Item { begins: left.begins, ends: right.ends, ..Item::of(tied()) },
        // Numbers are added to numbers, lists to lists.
        "+" if is_number => Value::NUMBER,
        "+" if a.is_list() || b.is_list() => a.or(b).listed(),
        "+" if left.begins || right.ends => {
            return Item { begins: left.begins, ends: right.ends, ..Item::of(tied()) };
        }
        "+" if a.is_harmless() && b.is_harmless() => a.or(b),
        // Texts, or lists.
        "+" => a.or(b).or(Value::TEXT),
        "*" if a.is_number() => b,
        "*" if b.is_number() => a,
        // A text formats what follows.
        "%" if a.is_number() => Value::NUMBER,
        "%" if a.top() == Kinds::DATA && b.is_number() => Value::NUMBER,
        "%" => Value::TEXT,
        _ if is_number => Value::NUMBER,
        _ => a.or(b),
    };
    Item::of(value)
}
