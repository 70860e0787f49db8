//! Attributes of operators.

/// Named attribute of an operator.
#[derive(Debug, Clone, PartialEq)]
pub struct Attribute {
    /// Name.
    pub name: String,
    /// Type name of the framework: `INTS`, `a_intarray`.
    pub kind: String,
    /// Value.
    pub value: AttributeValue,
}

/// Value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum AttributeValue {
    /// No value: the file states the type only.
    None,
    /// Boolean.
    Bool(bool),
    /// Integer of any width.
    Int(i64),
    /// 32-bit float.
    Float(f32),
    /// 64-bit float.
    Double(f64),
    /// Complex number: real and imaginary part.
    Complex(f64, f64),
    /// Text.
    Text(String),
    /// Bytes that are not UTF-8.
    Bytes(Vec<u8>),
    /// List of values.
    List(Vec<AttributeValue>),
    /// Index of a block in [`super::Topology::blocks`].
    Block(usize),
    /// Name of a variable that supplies the value.
    Variable(String),
    /// Dtype, device or layout, as named by the framework.
    Word(String),
}
