//! Settings of operators.

/// A named setting.
#[derive(Debug, Clone, PartialEq)]
pub struct Attribute {
    /// Its name.
    pub name: String,
    /// The framework's own word for its type: `INTS`, `a_intarray`.
    pub kind: String,
    /// Its value.
    pub value: AttributeValue,
}

/// The value of a setting.
#[derive(Debug, Clone, PartialEq)]
pub enum AttributeValue {
    /// Nothing: the file names the type alone.
    None,
    /// A truth value.
    Bool(bool),
    /// An integer of any width.
    Int(i64),
    /// A 32-bit float.
    Float(f32),
    /// A 64-bit float.
    Double(f64),
    /// A complex number: real and imaginary part.
    Complex(f64, f64),
    /// Text.
    Text(String),
    /// Bytes that are not UTF-8.
    Bytes(Vec<u8>),
    /// Several values.
    List(Vec<AttributeValue>),
    /// The place of a block in [`super::Topology::blocks`].
    Block(usize),
    /// The name of a variable that stands in for the value.
    Variable(String),
    /// An element type, a place, a layout: the framework's own words.
    Word(String),
}
