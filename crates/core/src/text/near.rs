//! Names that somebody may have meant.

/// Names longer than this, in characters, are held against each other only by what they contain.
const LONGEST: usize = 128;
/// The most letters that may be apart, of names of any length.
const MOST_APART: usize = 8;
/// Pairs of letters that are held against each other in all, about a second's work: there may be millions of names.
const MOST_PAIRS: usize = 1 << 30;

/// Up to `most` of `names` that may be meant by `wanted`: those that contain it, or else those that a few
/// letters tell from it, the nearest first. Case does not count.
pub fn near<'a, I>(names: impl Fn() -> I, wanted: &str, most: usize) -> Vec<&'a str>
where
    I: Iterator<Item = &'a str>,
{
    let wanted = wanted.to_lowercase();
    let holds = |name: &&str| name.to_lowercase().contains(&wanted);
    let found: Vec<&str> = names().filter(holds).take(most).collect();
    let letters: Vec<char> = wanted.chars().collect();
    if !found.is_empty() || letters.len() > LONGEST {
        return found;
    }
    // One letter in three, at most.
    let limit = letters.len().div_ceil(3).min(MOST_APART);
    let mut best: Vec<(usize, &str)> = Vec::new();
    let mut left = MOST_PAIRS;
    for name in names() {
        // A letter is at most four bytes.
        if name.len() > 4 * (letters.len() + limit) || name.len() + limit < letters.len() {
            continue;
        }
        let Some(rest) = left.checked_sub(letters.len() * name.len()) else { break };
        left = rest;
        let Some(apart) = letters_apart(&letters, name, limit) else { continue };
        let place = best.partition_point(|(other, _)| *other <= apart);
        if place < most {
            best.insert(place, (apart, name));
            best.truncate(most);
        }
    }
    best.into_iter().map(|(_, name)| name).collect()
}

/// The letters to insert, leave out or replace until both are the same; `None` if more than `limit`.
fn letters_apart(wanted: &[char], name: &str, limit: usize) -> Option<usize> {
    let mut row: Vec<usize> = (0..=wanted.len()).collect();
    for (place, letter) in name.to_lowercase().chars().enumerate() {
        let mut before = std::mem::replace(&mut row[0], place + 1);
        for (i, own) in wanted.iter().enumerate() {
            let replaced = before + usize::from(*own != letter);
            before = row[i + 1];
            row[i + 1] = replaced.min(row[i] + 1).min(before + 1);
        }
        if row.iter().all(|apart| *apart > limit) {
            return None;
        }
    }
    row.last().copied().filter(|apart| *apart <= limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_meant_is_found() {
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
        assert_eq!(found, [long[1]], "the nearest of what is much alike");
        assert_eq!(near(|| names.iter().copied(), "", 2), ["user_1", "user_12"]);
    }
}
