//! What is known of a value of a template: what names it may be, whole, and in its parts.

/// What a value may be as a name that something is looked up by: one of these, or several. Of none it is a number, a truth, nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kinds(u8);

impl Kinds {
    pub(super) const NUMBER: Self = Self(0);
    /// A list: no name.
    pub(super) const LIST: Self = Self(1);
    /// A mapping: no name.
    pub(super) const MAPPING: Self = Self(1 << 1);
    /// Text of the template that is the name of nothing that leads further.
    pub(super) const PLAIN: Self = Self(1 << 2);
    /// What the conversation has, whole or a piece of it.
    pub(super) const DATA: Self = Self(1 << 3);
    /// What stands under a name that the files of the model may set: a piece of it may be any name.
    pub(super) const FOREIGN: Self = Self(1 << 4);
    /// Something that may be called, or an object.
    pub(super) const FUNCTION: Self = Self(1 << 5);
    /// Put together, or not known.
    pub(super) const BUILT: Self = Self(1 << 6);
    /// A namespace.
    pub(super) const SPACE: Self = Self(1 << 7);
    const ALL: Self = Self(u8::MAX);
    const CONTAINER: Self = Self::LIST.with(Self::MAPPING);

    pub(super) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// True where it may be one of these.
    pub(super) const fn has(self, any: Self) -> bool {
        self.0 & any.0 != 0
    }

    /// True where it is none but these, or a number.
    pub(super) const fn only(self, these: Self) -> bool {
        self.0 & !these.0 == 0
    }
}

/// Steps into a value that are told apart: its items, theirs, ...
pub(super) const DEPTH: usize = 5;

/// A value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Value {
    /// The value itself; its items, or pieces of a text; theirs, and so on. The last one stands for all below.
    levels: [Kinds; DEPTH],
}

impl Value {
    pub(super) const NUMBER: Self = Self::of(Kinds::NUMBER);
    pub(super) const PLAIN: Self = Self::of(Kinds::PLAIN);
    pub(super) const DATA: Self = Self::of(Kinds::DATA);
    /// Text that was put together.
    pub(super) const TEXT: Self = Self::of(Kinds::BUILT);
    /// Whatever there is.
    pub(super) const ANY: Self = Self::of(Kinds::ALL);

    const fn of(kinds: Kinds) -> Self {
        Self { levels: [kinds; DEPTH] }
    }

    /// A text of which this is the kind, and that of its pieces.
    pub(super) fn text(whole: Kinds, pieces: Kinds) -> Self {
        Self::of(pieces).topped(whole)
    }

    /// What stands under a name that the files of the model may set. Single letters of it lead nowhere.
    pub(super) fn foreign() -> Self {
        Self::DATA.topped(Kinds::FOREIGN)
    }

    /// The same parts of something else.
    fn topped(self, top: Kinds) -> Self {
        let mut value = self;
        value.levels[0] = top;
        value
    }

    /// A list of such items.
    pub(super) fn list(items: Self) -> Self {
        let mut value = items.topped(Kinds::LIST);
        value.levels[1..].copy_from_slice(&items.levels[..DEPTH - 1]);
        value.levels[DEPTH - 1] = items.levels[DEPTH - 1].with(items.levels[DEPTH - 2]);
        value
    }

    /// A mapping with such names and values.
    pub(super) fn mapping(items: Self) -> Self {
        Self::list(items).topped(Kinds::MAPPING)
    }

    /// A namespace, of which the attributes are known elsewhere.
    pub(super) fn namespace() -> Self {
        Self::NUMBER.topped(Kinds::SPACE)
    }

    /// The same, or something that may be called.
    pub(super) fn or_function(self) -> Self {
        self.topped(self.top().with(Kinds::FUNCTION))
    }

    /// One of its items, or a piece of it; nothing that was put there later.
    pub(super) fn part(self) -> Self {
        let mut value = self;
        value.levels.copy_within(1.., 0);
        value
    }

    /// Either of both.
    pub(super) fn or(self, other: Self) -> Self {
        let mut value = self;
        value.levels.iter_mut().zip(other.levels).for_each(|(kinds, other)| *kinds = kinds.with(other));
        value
    }

    /// What it is itself.
    pub(super) fn top(self) -> Kinds {
        self.levels[0]
    }

    /// True for what is a number, a truth, or nothing for certain.
    pub(super) fn is_number(self) -> bool {
        self.top() == Kinds::NUMBER
    }

    /// True for what is a list for certain.
    pub(super) fn is_list(self) -> bool {
        self.top() == Kinds::LIST
    }

    /// True for what is a mapping for certain.
    pub(super) fn is_mapping(self) -> bool {
        self.top() == Kinds::MAPPING
    }

    /// True for what the template made for certain, and nothing that it is given.
    pub(super) fn is_own(self) -> bool {
        self.top().only(Kinds::CONTAINER)
    }

    /// True for what is the name of nothing that leads further, whatever is put together of it.
    pub(super) fn is_harmless(self) -> bool {
        let harmless = Kinds::PLAIN.with(Kinds::CONTAINER);
        self.levels.iter().all(|kinds| kinds.only(harmless))
    }

    /// A text that may look something up when it is formatted.
    pub(super) fn formats(self) -> bool {
        self.top().has(Kinds::BUILT) || (self.top().has(Kinds::PLAIN) && self.levels[1].has(Kinds::BUILT))
    }

    /// A list of the same: of a text, its letters.
    pub(super) fn listed(self) -> Self {
        self.topped(Kinds::LIST)
    }

    /// Lists of what it has: pairs of a mapping.
    pub(super) fn pairs(self) -> Self {
        Self::list(self.listed())
    }

    /// Some of it, one behind the other: a slice, or the other way round.
    pub(super) fn some(self) -> Self {
        let mut top = self.top().without(Kinds::PLAIN.with(Kinds::FOREIGN));
        if self.top().has(Kinds::PLAIN) {
            top = top.with(self.levels[1]);
        }
        if self.top().has(Kinds::FOREIGN) {
            top = top.with(Kinds::BUILT).with(Kinds::DATA);
        }
        self.topped(top)
    }

    /// It as text.
    pub(super) fn as_text(self) -> Self {
        let text = Kinds::PLAIN.with(Kinds::DATA).with(Kinds::FOREIGN);
        if self.is_number() {
            return Self::PLAIN;
        }
        if self.top().only(text) { self } else { Self::TEXT }
    }

    /// A piece of it as text, or all of that in other letters.
    pub(super) fn cut(self) -> Self {
        let text = self.as_text();
        if text.top().has(Kinds::FOREIGN) { Self::TEXT } else { text.or(text.part()) }
    }
}
