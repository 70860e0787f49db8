//! Steps common to all formats after opening a file.

use crate::{Names, OpenOptions, row_names};
use std::collections::HashMap;
use weighbridge_core::checkpoint::{Attributes, Checkpoint, Note};
use weighbridge_core::error::{Kind, Result};
use weighbridge_core::tensor::Order;

/// Adds the file to the error, checks the index against the limits, and restores row names stored as tensors.
///
/// # Errors
/// The error of opening; [`Kind::Limit`].
pub(crate) fn settle(opened: Result<Checkpoint>, label: &str, options: &OpenOptions) -> Result<Checkpoint> {
    let mut checkpoint =
        opened.map_err(|error| if error.kind() == Kind::Usage { error } else { error.in_file(label) })?;
    checkpoint.check_parts(&options.limits)?;
    row_names::gather(&mut checkpoint);
    Ok(checkpoint)
}

/// Applies the names selected by the options.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`] if the file does not have these names.
pub(crate) fn choose_names(checkpoint: &mut Checkpoint, options: &OpenOptions) -> Result<()> {
    match options.names {
        Names::AsStored => Ok(()),
        Names::Structured => checkpoint.use_names(Attributes::STRUCTURED_NAME, Attributes::VARIABLE_NAME),
        Names::Variable => {
            one_of_each(checkpoint)?;
            checkpoint.use_names(Attributes::VARIABLE_NAME, Attributes::STRUCTURED_NAME)
        }
    }
}

/// Removes duplicates: several structured names may be one variable. A tensor with the same variable name and the same elements as
/// an earlier one is dropped, with a note.
fn one_of_each(checkpoint: &mut Checkpoint) -> Result<()> {
    let mut first = HashMap::<String, usize>::new();
    let mut duplicates = Vec::new();
    for (place, tensor) in checkpoint.tensors.iter().enumerate().filter(|(_, t)| t.role.slot().is_none()) {
        let Some(name) = tensor.text_attribute(Attributes::VARIABLE_NAME) else { continue };
        let Some(&other) = first.get(name) else {
            first.insert(name.to_owned(), place);
            continue;
        };
        let other = &checkpoint.tensors[other];
        let alike = (tensor.dtype(), &tensor.shape) == (other.dtype(), &other.shape);
        if alike && tensor.read_tensor(Order::Row)? == other.read_tensor(Order::Row)? {
            duplicates.push((
                place,
                format!("{} omitted: same variable and elements as {}", tensor.name(), other.name()),
            ));
        }
    }
    for (place, text) in duplicates.into_iter().rev() {
        checkpoint.tensors.remove(place);
        checkpoint.notes.push(Note::new("one-variable", text));
    }
    Ok(())
}
