//! Native half of the Python package `weighbridge`: thin classes over the library, completed in `python/weighbridge`.
//!
//! | module | content |
//! | --- | --- |
//! | `index`, `entry`, `row_names`, `program` | an opened checkpoint, a tensor, its row names, its program |
//! | `memory`, `dlpack`, `borrowed` | zero-copy exchange of elements with other libraries |
//! | `save` | writing checkpoints made or opened in Python |
//! | `verbs` | the verbs, with the options of jobs as keywords, and the command itself |
//! | `wording` | hints worded for Python |
//! | `biggraph`, `paddle`, `primitiv` | format-specific functions |
//! | `errors`, `lost` | exceptions; truncation of mapped files in use |
//! | `values`, `work` | conversion of Python values; long work, Ctrl-C, progress |
//!
//! All input, output and computation runs without the GIL.

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

/// Native part of `weighbridge`. Use it through the package `weighbridge`.
// Untested without the GIL: a free-threaded interpreter enables it when this module is imported.
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
    use crate::verbs::importing::{import_edges, import_layout};
    #[pymodule_export]
    use crate::verbs::looking::{info, ls, show, stats};
    #[pymodule_export]
    use crate::verbs::models::{checkpoint, program};
    #[pymodule_export]
    use crate::verbs::ranking::{evaluate, neighbors, rank};
    #[pymodule_export]
    use crate::verbs::writing::{convert, edit, merge, shard};

    /// Escapes control and invisible characters for display in a terminal.
    #[pyfunction]
    fn escape_text(text: &str) -> String {
        weighbridge::text::escape(text)
    }

    /// Dtype name for another library's spelling; `None` if it is unknown.
    #[pyfunction]
    fn element_type(spelling: &str) -> Option<&'static str> {
        weighbridge::tensor::DType::from_spelling(spelling).map(|dtype| dtype.name())
    }

    /// Keywords that hints can name, by function.
    #[pyfunction]
    fn hinted_keywords() -> Vec<(&'static str, Vec<String>)> {
        crate::wording::keywords()
    }

    /// Name, accepted values and description of a setting.
    type Setting = (&'static str, &'static str, &'static str);

    /// Id, title, extensions and settings of each format.
    #[pyfunction]
    fn formats() -> Vec<(&'static str, &'static str, Vec<&'static str>, Vec<Setting>)> {
        let infos = weighbridge::formats::ALL.iter().map(|format| format.info());
        let rows = infos.map(|info| {
            let extensions = info.extensions.iter().map(|(extension, _)| *extension).collect();
            let settings = info.settings.iter().map(|one| (one.name, one.values, one.what)).collect();
            (info.id, info.title, extensions, settings)
        });
        rows.collect()
    }

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        // Affects panics of this module only: other extension modules keep their hooks.
        weighbridge::quiet_panics();
        crate::lost::register();
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("LIMITS", weighbridge::Limits::NAMES.to_vec())?;
        module.add("DTYPES", weighbridge::tensor::DType::ALL.map(|dtype| dtype.name()).to_vec())
    }
}
