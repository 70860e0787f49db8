//! What an optimizer remembers, in files of Keras:
//!
//! ```text
//! /model_weights/dense/...            a whole model of Keras 2 (.h5): its layers
//! /optimizer_weights/Adam/m/...       and the optimizer, by names that say nothing of the layer
//! /layers/dense/vars/0                the weights of Keras 3 (.weights.h5): numbered variables of each layer
//! /optimizer/vars/0                   and of the optimizer
//! ```

use std::borrow::Borrow;

/// Which of the datasets at these paths are the state of an optimizer.
pub(super) fn optimizer_state<P: Borrow<str>>(paths: &[Vec<P>]) -> Vec<bool> {
    let first = |path: &[P]| path.first().map(|part| part.borrow().to_owned());
    let is_in = |path: &[P], group: &str| path.len() > 1 && first(path).as_deref() == Some(group);
    let has = |group: &str| paths.iter().any(|path| is_in(path, group));
    let is_numbered = |path: &[P]| match path {
        [.., group, number] => {
            let number = number.borrow();
            group.borrow() == "vars" && !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        }
        _ => false,
    };
    let numbered = |of_optimizer: bool| {
        paths.iter().any(|path| is_in(path, "optimizer") == of_optimizer && is_numbered(path))
    };
    let group = match () {
        () if has("optimizer_weights") && has("model_weights") => "optimizer_weights",
        () if numbered(true) && numbered(false) => "optimizer",
        () => return vec![false; paths.len()],
    };
    paths.iter().map(|path| is_in(path, group)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(paths: &[&str]) -> Vec<bool> {
        let paths: Vec<Vec<&str>> = paths.iter().map(|path| path.split('/').collect()).collect();
        optimizer_state(&paths)
    }

    #[test]
    fn state_is_known_by_the_groups_of_keras() {
        let whole = ["model_weights/dense/dense/kernel:0", "optimizer_weights/Adam/iter:0"];
        assert_eq!(state(&whole), [false, true]);
        let numbered = ["layers/dense/vars/0", "optimizer/vars/0", "optimizer/inner/vars/12"];
        assert_eq!(state(&numbered), [false, true, true]);
        // Groups of these names in other files are not the state of an optimizer.
        assert_eq!(state(&["optimizer_weights/a", "fc/w"]), [false, false]);
        assert_eq!(state(&["optimizer/vars/0", "fc/w"]), [false, false]);
        assert_eq!(state(&["layers/dense/vars/0", "optimizer/rate"]), [false, false]);
    }
}
