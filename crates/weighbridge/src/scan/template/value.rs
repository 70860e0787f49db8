//! What is known of a value of a template: what names it may be, whole, and in its parts.

/// What a value may be as a name that something is looked up by. The later, the worse; of two values the worse one counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A number, a truth, nothing.
    Number,
    /// A list or a mapping: no name.
    List,
    /// Text of the template that is the name of nothing that leads further.
    Plain,
    /// What the conversation has, whole or a piece of it.
    Data,
    /// Put together, or not known.
    Built,
}

/// Steps into a value that are told apart: its items, theirs, ...
const DEPTH: usize = 5;

/// A value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Value {
    /// The value itself; its items, or pieces of a text; theirs, and so on. The last one stands for all below.
    levels: [Kind; DEPTH],
    /// Its methods are those of text, numbers or messages: nothing that the template has put there.
    pub(super) native: bool,
    /// It is, or holds, a namespace.
    pub(super) space: bool,
}

impl Value {
    pub(super) const NUMBER: Self = Self::of(Kind::Number, true);
    pub(super) const PLAIN: Self = Self::of(Kind::Plain, true);
    pub(super) const DATA: Self = Self::of(Kind::Data, true);
    pub(super) const BUILT: Self = Self::of(Kind::Built, false);
    /// Text that was put together.
    pub(super) const TEXT: Self = Self::of(Kind::Built, true);

    const fn of(kind: Kind, native: bool) -> Self {
        Self { levels: [kind; DEPTH], native, space: false }
    }

    /// A text of which this is the kind, and that of its pieces.
    pub(super) fn text(whole: Kind, pieces: Kind) -> Self {
        let mut value = Self::of(pieces, true);
        value.levels[0] = whole;
        value
    }

    /// A list of such items.
    pub(super) fn list(items: Self) -> Self {
        let mut value = Self { native: false, ..items };
        value.levels[DEPTH - 1] = items.levels[DEPTH - 1].max(items.levels[DEPTH - 2]);
        value.levels[1..DEPTH - 1].copy_from_slice(&items.levels[..DEPTH - 2]);
        value.levels[0] = Kind::List;
        value
    }

    /// A namespace, of which the attributes are known elsewhere.
    pub(super) fn namespace() -> Self {
        Self { space: true, ..Self::list(Self::NUMBER) }
    }

    /// One of its items, or a piece of it.
    pub(super) fn part(self) -> Self {
        let mut value = self;
        value.levels.copy_within(1.., 0);
        // The items of a list may be lists, with functions in them.
        value.native = self.native || value.levels.iter().all(|kind| *kind < Kind::Built);
        value
    }

    /// Either of both.
    pub(super) fn or(self, other: Self) -> Self {
        let mut value = self;
        value.levels.iter_mut().zip(other.levels).for_each(|(kind, other)| *kind = (*kind).max(other));
        value.native &= other.native;
        value.space |= other.space;
        value
    }

    pub(super) fn kind(self) -> Kind {
        self.levels[0]
    }

    /// What its items are, or pieces of the text.
    pub(super) fn items(self) -> Kind {
        self.levels[1]
    }

    /// True for what is the name of nothing that leads further, whatever is put together of it.
    pub(super) fn is_harmless(self) -> bool {
        self.levels.iter().all(|kind| *kind <= Kind::Plain)
    }

    /// A list of the same: of a text, its pieces.
    pub(super) fn listed(self) -> Self {
        match self.kind() {
            Kind::List | Kind::Data => self,
            _ if self.native => self.as_list(),
            _ => self,
        }
    }

    /// The same, where it is known to be a list.
    pub(super) fn as_list(self) -> Self {
        let mut value = Self { native: false, ..self };
        value.levels[0] = Kind::List;
        value
    }

    /// Lists of what it has: pairs of a mapping, groups of a list.
    pub(super) fn grouped(self) -> Self {
        if self.kind() == Kind::List { Self::list(self) } else { self }
    }

    /// Some of it, one behind the other: a slice, or the other way round.
    pub(super) fn some(self) -> Self {
        if self.kind() == Kind::List { self } else { self.part() }
    }
}
