//! Order of the storages in an archive, as a check of their names.
//!
//! Without a directory, the name of a member occurs only once, and no checksum covers it. The pickle names all storages, and
//! `torch.save` writes them in the order of their numbers, of their names, or of the pickle.

use std::collections::{HashMap, HashSet};
use weighbridge_zip::Member;

/// Maximum gap between a member and the header of the next one: a data descriptor.
const MAX_DESCRIPTOR: u64 = 24;

/// Returns the header offsets of storages that break all of these orders. Either of two neighbors may have
/// the wrong name. `keys` are the keys of the pickle in its order.
pub(super) fn out_of_order(members: &[Member], keys: &[String]) -> HashSet<u64> {
    let mut by_name = keys.to_vec();
    by_name.sort_unstable();
    let mut by_number = by_name.clone();
    by_number.sort_by_key(|key| (key.len(), key.clone()));
    let mut members: Vec<(&Member, &str)> = members
        .iter()
        .filter_map(|member| Some((member, member.name.split_once("/data/").map(|(_, key)| key)?)))
        .collect();
    members.sort_by_key(|(member, _)| member.header_offset);
    [keys, &by_name, &by_number]
        .into_iter()
        .map(|order| against(&members, order))
        .min_by_key(HashSet::len)
        .unwrap_or_default()
}

/// Returns the header offsets of storages that break one order.
fn against(members: &[(&Member, &str)], order: &[String]) -> HashSet<u64> {
    let ranks: HashMap<&str, usize> =
        order.iter().enumerate().map(|(rank, key)| (key.as_str(), rank)).collect();
    // A storage that the pickle does not name does not belong to any tensor.
    let known: Vec<(&Member, usize)> =
        members.iter().filter_map(|(member, key)| Some((*member, *ranks.get(key)?))).collect();
    let mut odd = HashSet::new();
    for pair in known.windows(2) {
        let &[(first, rank), (second, next)] = pair else { continue };
        let end = first.data_offset.saturating_add(first.compressed_len);
        let side_by_side = second.header_offset.saturating_sub(end) <= MAX_DESCRIPTOR;
        if next <= rank || (side_by_side && next != rank + 1) {
            odd.extend([first.header_offset, second.header_offset]);
        }
    }
    odd
}

#[cfg(test)]
mod tests {
    use super::*;
    use weighbridge_zip::Method;

    /// Storages at multiples of 100 bytes; `places` are the multiples.
    fn odd(places: &[(u64, &str)], keys: &[&str]) -> Vec<u64> {
        let member = |&(place, key): &(u64, &str)| Member {
            name: format!("archive/data/{key}"),
            method: Method::Stored,
            header_offset: place * 100,
            data_offset: place * 100 + 50,
            compressed_len: 50,
            len: 50,
            crc32: 0,
        };
        let members: Vec<_> = places.iter().map(member).collect();
        let keys: Vec<String> = keys.iter().map(|&key| key.to_owned()).collect();
        let mut odd: Vec<_> = out_of_order(&members, &keys).into_iter().map(|at| at / 100).collect();
        odd.sort_unstable();
        odd
    }

    #[test]
    fn reports_storages_out_of_order() {
        let keys = ["0", "1", "2", "10"];
        assert_eq!(odd(&[(0, "0"), (1, "1"), (2, "2"), (3, "10")], &keys), [0; 0]);
        assert_eq!(odd(&[(0, "0"), (1, "1"), (2, "10"), (3, "2")], &keys), [0; 0], "by name");
        assert_eq!(odd(&[(0, "0"), (1, "1"), (3, "10")], &keys), [0; 0], "one is lost");
        assert_eq!(odd(&[(0, "0"), (1, "2"), (3, "10")], &keys), [0, 1], "0 and 2 side by side");
        assert_eq!(odd(&[(0, "2"), (2, "0"), (4, "10")], &keys), [0, 2]);
        assert_eq!(odd(&[(0, "7"), (1, "3")], &["7", "3"]), [0; 0], "as the pickle has them");
    }
}
