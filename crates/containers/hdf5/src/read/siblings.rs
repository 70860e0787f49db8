//! Sibling addresses of version-1 B-tree nodes.

use std::collections::HashMap;
use weighbridge_core::error::{Error, Result};

/// Last visited node of each level, and the right sibling that it states.
#[derive(Default)]
pub(super) struct Siblings(HashMap<u8, (u64, u64)>);

impl Siblings {
    /// Checks the next node of `level` in order.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`] where the sibling addresses of it and the node before do not match.
    pub(super) fn check_next(&mut self, level: u8, address: u64, left: u64, right: u64) -> Result<()> {
        let before = self.0.insert(level, (address, right));
        let fits = match before {
            Some((before, next)) => left == before && next == address,
            None => left == u64::MAX,
        };
        if fits { Ok(()) } else { Err(bad("a B-tree node has a wrong sibling address", address)) }
    }

    /// Fails where a last node of a level has a right sibling.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`].
    pub(super) fn end(&self) -> Result<()> {
        let leads_on = self.0.values().find(|(_, next)| *next != u64::MAX);
        let error =
            |&(address, _): &_| Err(bad("the last B-tree node of a level has a right sibling", address));
        leads_on.map_or(Ok(()), error)
    }
}

fn bad(text: &str, address: u64) -> Error {
    Error::corrupt("hdf5-corrupt", format!("HDF5: {text}")).at(address)
}
