//! Combined verdict of several paths, each checked by itself: the worst one counts.

use crate::error::{Error, Kind, Result};
use crate::finding::Verdict;
use serde_json::{Value as Json, json};

/// The worst of the verdicts on several paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Worst {
    /// Every path is sound.
    Sound,
    /// At least one path is unsound.
    Unsound,
    /// No path is unsound, but not every path could be checked completely.
    CouldNotTell,
    /// No path is unsound, but a path could not be read.
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
    /// Returns the exit code of the command: 0, 1, 3; 2 where a path could not be read.
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
    /// Paths that were checked completely and are sound.
    pub sound: usize,
    /// Paths that could not be checked completely.
    pub could_not_tell: usize,
    /// Unsound paths.
    pub unsound: usize,
    /// Paths that could not be read.
    pub failed: usize,
}

impl Counts {
    /// Counts one path.
    ///
    /// # Errors
    /// [`Kind::Cancelled`], where the job was cancelled.
    pub fn add(&mut self, checked: &Result<Verdict, &Error>) -> Result<()> {
        match checked {
            Ok(Verdict::Sound) => self.sound += 1,
            Ok(Verdict::CouldNotTell) => self.could_not_tell += 1,
            Ok(Verdict::Unsound) => self.unsound += 1,
            Err(error) if error.kind() == Kind::Cancelled => return Err(Error::cancelled()),
            Err(_) => self.failed += 1,
        }
        Ok(())
    }

    /// Returns the number of counted paths.
    pub fn all(&self) -> usize {
        self.sound + self.could_not_tell + self.unsound + self.failed
    }

    /// Returns the worst verdict so far, of `paths` in total. The result is not `Sound` before all paths are counted.
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

/// Returns the JSON document of a path that cannot be read.
pub fn unread(path: &str, error: &Error) -> Json {
    json!({ "path": path, "error": error.to_json() })
}

/// Returns the JSON document of several paths.
pub fn of_all(documents: Vec<Json>) -> Json {
    json!({ "paths": documents })
}
