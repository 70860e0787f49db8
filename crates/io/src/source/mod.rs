//! Local files and folders as sources; re-exports [`weighbridge_core::source`].

mod file;
mod folder;
mod identity;
mod map;
#[cfg(test)]
mod mapped_tests;
mod stamp;
#[cfg(test)]
mod tests;

pub(crate) use file::read_exact_at as read_file_at;
pub use file::{FileSource, PathKind, check_local};
pub use folder::{LocalFolder, Survey, check_no_links};
pub use identity::FileIdentity;
pub use map::Map;
pub(crate) use map::PrivateMap;
#[cfg(test)]
pub use map::guarded;
pub use map::{MapSource, guard_maps, maps_are_guarded, notify as notify_of_lost_pages};
pub use stamp::{Stamp, name_below, own_name, real_path};
#[doc(no_inline)]
pub use weighbridge_core::source::*;
