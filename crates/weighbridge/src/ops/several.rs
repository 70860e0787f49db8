//! Several paths, each looked at by itself: the worst of them counts.

use crate::error::{Error, Kind, Result};
use crate::finding::Verdict;
use serde_json::{Value as Json, json};

/// The worst of the verdicts on several paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Worst {
    /// All is well.
    Sound,
    /// Something was found to be wrong.
    Unsound,
    /// Nothing wrong was found, but not everything could be looked at.
    CouldNotTell,
    /// Nothing wrong was found, but a path could not be read at all.
    Failed,
}

impl From<Verdict> for Worst {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Sound => Self::Sound,
            Verdict::Unsound => Self::Unsound,
            Verdict::CouldNotTell => Self::CouldNotTell,
        }
    }
}

impl Worst {
    /// The exit code of the command: 0, 1, 3; 2 where a path could not be read.
    pub fn code(self) -> u8 {
        match self {
            Self::Sound => 0,
            Self::Unsound => 1,
            Self::CouldNotTell => 3,
            Self::Failed => 2,
        }
    }
}

/// Counts of verdicts on several paths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Paths of which everything was checked and nothing is wrong.
    pub sound: usize,
    /// Paths of which not everything could be checked.
    pub could_not_tell: usize,
    /// Paths with something wrong.
    pub unsound: usize,
    /// Paths that could not be read.
    pub failed: usize,
}

impl Counts {
    /// Counts one path.
    ///
    /// # Errors
    /// [`Kind::Cancelled`], where somebody asked to stop.
    pub fn add(&mut self, looked: &Result<Verdict, &Error>) -> Result<()> {
        match looked {
            Ok(Verdict::Sound) => self.sound += 1,
            Ok(Verdict::CouldNotTell) => self.could_not_tell += 1,
            Ok(Verdict::Unsound) => self.unsound += 1,
            Err(error) if error.kind() == Kind::Cancelled => return Err(Error::cancelled()),
            Err(_) => self.failed += 1,
        }
        Ok(())
    }

    /// The number of paths that were counted.
    pub fn all(&self) -> usize {
        self.sound + self.could_not_tell + self.unsound + self.failed
    }

    /// The worst so far, where there are `paths` in all. As long as some were not looked at it cannot be told that
    /// all is well.
    pub fn worst(&self, paths: usize) -> Worst {
        if self.unsound > 0 {
            Worst::Unsound
        } else if self.failed > 0 {
            Worst::Failed
        } else if self.could_not_tell > 0 || self.all() < paths {
            Worst::CouldNotTell
        } else {
            Worst::Sound
        }
    }
}

/// The document of a path that cannot be read.
pub fn unread(path: &str, error: &Error) -> Json {
    json!({ "path": path, "error": error.to_json() })
}

/// The document of several paths.
pub fn of_all(documents: Vec<Json>) -> Json {
    json!({ "paths": documents })
}
