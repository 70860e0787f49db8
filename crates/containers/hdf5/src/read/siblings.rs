//! Nodes of trees of the first kind, each of which leads to the nodes beside it.

use std::collections::HashMap;
use weighbridge_core::error::{Error, Result};

/// The last node of each level, and the one that it says is next.
#[derive(Default)]
pub(super) struct Siblings(HashMap<u8, (u64, u64)>);

impl Siblings {
    /// Takes in the next node of `level` in order.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`] where it or the node before it leads elsewhere.
    pub(super) fn meet(&mut self, level: u8, address: u64, left: u64, right: u64) -> Result<()> {
        let before = self.0.insert(level, (address, right));
        let fits = match before {
            Some((before, next)) => left == before && next == address,
            None => left == u64::MAX,
        };
        if fits { Ok(()) } else { Err(bad("a node of a tree does not lead to the node beside it", address)) }
    }

    /// Fails where anything follows the last nodes.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`].
    pub(super) fn end(&self) -> Result<()> {
        let leads_on = self.0.values().find(|(_, next)| *next != u64::MAX);
        let error = |&(address, _): &_| Err(bad("the last node of a tree leads to another", address));
        leads_on.map_or(Ok(()), error)
    }
}

fn bad(text: &str, address: u64) -> Error {
    Error::corrupt("hdf5-corrupt", format!("HDF5: {text}")).at(address)
}
