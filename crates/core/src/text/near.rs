//! Suggestions of similar names.

/// Maximum characters of a name for edit distances; longer ones are compared by substring only.
const MAX_NAME_LEN: usize = 128;
/// Maximum edit distance.
const MAX_DISTANCE: usize = 8;
/// Maximum pairs of letters compared in total, about a second of work: there may be millions of names.
const MAX_PAIRS: usize = 1 << 30;

/// Returns up to `max` of `names` similar to `wanted`: those that contain it, or else those with a small edit distance, nearest
/// first. Case is ignored.
pub fn near<'a, I>(names: impl Fn() -> I, wanted: &str, max: usize) -> Vec<&'a str>
where
    I: Iterator<Item = &'a str>,
{
    let wanted = wanted.to_lowercase();
    let contains = |name: &&str| name.to_lowercase().contains(&wanted);
    let found: Vec<&str> = names().filter(contains).take(max).collect();
    let letters: Vec<char> = wanted.chars().collect();
    if !found.is_empty() || letters.len() > MAX_NAME_LEN {
        return found;
    }
    // At most one letter in three differs.
    let limit = letters.len().div_ceil(3).min(MAX_DISTANCE);
    let mut best: Vec<(usize, &str)> = Vec::new();
    let mut left = MAX_PAIRS;
    for name in names() {
        // A letter is at most four bytes.
        if name.len() > 4 * (letters.len() + limit) || name.len() + limit < letters.len() {
            continue;
        }
        let Some(rest) = left.checked_sub(letters.len() * name.len()) else { break };
        left = rest;
        let Some(distance) = edit_distance(&letters, name, limit) else { continue };
        let place = best.partition_point(|(other, _)| *other <= distance);
        if place < max {
            best.insert(place, (distance, name));
            best.truncate(max);
        }
    }
    best.into_iter().map(|(_, name)| name).collect()
}

/// Returns the edit distance (insert, delete, replace); `None` if it exceeds `limit`.
fn edit_distance(wanted: &[char], name: &str, limit: usize) -> Option<usize> {
    let mut row: Vec<usize> = (0..=wanted.len()).collect();
    for (place, letter) in name.to_lowercase().chars().enumerate() {
        let mut before = std::mem::replace(&mut row[0], place + 1);
        for (i, own) in wanted.iter().enumerate() {
            let replaced = before + usize::from(*own != letter);
            before = row[i + 1];
            row[i + 1] = replaced.min(row[i] + 1).min(before + 1);
        }
        if row.iter().all(|distance| *distance > limit) {
            return None;
        }
    }
    row.last().copied().filter(|distance| *distance <= limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_similar_names() {
        let names = ["user_1", "user_12", "alice", "Alicia", "bob", "süß"];
        let found = |wanted: &str| near(|| names.iter().copied(), wanted, 3);
        assert_eq!(found("USER"), ["user_1", "user_12"], "those that contain it");
        assert_eq!(found("alicf"), ["alice", "Alicia"], "the nearest first");
        assert_eq!(found("alce"), ["alice"]);
        assert_eq!(found("users_1"), ["user_1", "user_12"]);
        assert_eq!((found("suß"), found("bbo")), (vec!["süß"], vec![]));
        assert!(found("charlotte").is_empty() && found(&"x".repeat(1000)).is_empty());
        let long = ["model.layers.0.self_attn.q_proj.weight", "model.layers.1.self_attn.k_proj.weight"];
        let found = near(|| long.iter().copied(), "model.layer.1.self_attn.k_proj.weigth", 1);
        assert_eq!(found, [long[1]], "the nearest of similar names");
        assert_eq!(near(|| names.iter().copied(), "", 2), ["user_1", "user_12"]);
    }
}
