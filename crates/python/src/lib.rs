//! What the Python package `weighbridge` is made of: thin classes over the library, made whole in `python/weighbridge`.
//!
//! | module | what it is |
//! | --- | --- |
//! | `index`, `entry`, `labels`, `program` | an opened checkpoint, a tensor of it, the names of its rows, its program |
//! | `memory`, `dlpack`, `borrowed` | elements handed to other libraries, and taken from them, without a copy |
//! | `save` | writing what was made or opened in Python |
//! | `verbs` | the verbs, whose keywords are the options of jobs, and the command itself |
//! | `wording` | hints in the words of Python |
//! | `biggraph`, `paddle`, `primitiv` | what only one format has |
//! | `errors`, `lost` | exceptions; files that are cut short while arrays look into them |
//! | `values`, `work` | values of Python; long work, Ctrl-C, progress |
//!
//! All input and output, and all computing, is done without the interpreter's lock.

mod biggraph;
mod borrowed;
mod dlpack;
mod entry;
mod errors;
mod floats;
mod index;
mod lost;
mod memory;
mod paddle;
mod primitiv;
mod program;
mod row_names;
mod save;
mod values;
mod verbs;
mod wording;
mod work;

/// The part of `weighbridge` that is written in Rust. Use it through the package `weighbridge`.
// Nobody has tried it without the interpreter's lock: an interpreter that can do without takes it when this is imported.
#[pyo3::pymodule(gil_used = true)]
mod _weighbridge {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::biggraph::{NextVersion, Store};
    #[pymodule_export]
    use crate::borrowed::{entry_of_array, entry_of_bytes, entry_of_dlpack};
    #[pymodule_export]
    use crate::entry::Entry;
    #[pymodule_export]
    use crate::index::{Index, open_index};
    #[pymodule_export]
    use crate::lost::guard_maps;
    #[pymodule_export]
    use crate::memory::Memory;
    #[pymodule_export]
    use crate::paddle::{
        named_variable, program_leaks, program_prototxt, read_program, state_structure, strip_program,
        write_program,
    };
    #[pymodule_export]
    use crate::primitiv::{batched, optimizer_defaults, read_optimizer, write_optimizer};
    #[pymodule_export]
    use crate::program::Program;
    #[pymodule_export]
    use crate::row_names::RowNames;
    #[pymodule_export]
    use crate::save::save_tensors;
    #[pymodule_export]
    use crate::verbs::checking::{diff, scan, scan_rules, seal, verify};
    #[pymodule_export]
    use crate::verbs::command;
    #[pymodule_export]
    use crate::verbs::looking::{info, ls, show, stats};
    #[pymodule_export]
    use crate::verbs::models::{checkpoint, program};
    #[pymodule_export]
    use crate::verbs::writing::{convert, edit, merge, shard};

    /// The text with what could harm a terminal, or hide, escaped.
    #[pyfunction]
    fn escape_text(text: &str) -> String {
        weighbridge::text::escape(text)
    }

    /// The name of the type of elements that is spelled so by whichever library; `None` where there is none.
    #[pyfunction]
    fn element_type(spelling: &str) -> Option<&'static str> {
        weighbridge::tensor::DType::from_spelling(spelling).map(|dtype| dtype.name())
    }

    /// The keywords that hints name, by function.
    #[pyfunction]
    fn hinted_keywords() -> Vec<(&'static str, Vec<String>)> {
        crate::wording::keywords()
    }

    /// The name of a setting, the values it takes, and what it does.
    type Setting = (&'static str, &'static str, &'static str);

    /// What is known of each format: id, title, extensions, settings.
    #[pyfunction]
    fn formats() -> Vec<(&'static str, &'static str, Vec<&'static str>, Vec<Setting>)> {
        let known = weighbridge::formats::ALL.iter().map(|format| format.info());
        let told = known.map(|facts| {
            let extensions = facts.extensions.iter().map(|(extension, _)| *extension).collect();
            let settings = facts.settings.iter().map(|one| (one.name, one.values, one.what)).collect();
            (facts.id, facts.title, extensions, settings)
        });
        told.collect()
    }

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        // Of this module alone: other modules have hooks of their own.
        weighbridge::quiet_panics();
        crate::lost::register();
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("LIMITS", weighbridge::Limits::NAMES.to_vec())?;
        module.add("DTYPES", weighbridge::tensor::DType::ALL.map(|dtype| dtype.name()).to_vec())
    }
}
