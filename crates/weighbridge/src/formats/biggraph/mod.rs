//! PyTorch-BigGraph: entities, edges, partitioned tables of embeddings and their checkpoints.
//!
//! | room | what it is |
//! | --- | --- |
//! | `config` | the configuration: keys, defaults, rules |
//! | `text` | count files, name files, version files, training statistics |
//! | `layout` | names of files, partitions and buckets: arithmetic and words, no bytes |
//! | `edges` | columns of edges, and edges that move into other partitions |
//! | `rows` | sources of rows: random ones, and rows of a table in another order |
//! | `read` | from files and folders to an index |
//! | `state` | the optimizer's blobs: what they say about which tensor |
//! | `write` | from an index to the files of a folder |
//! | `check` | what upstream finds late or never |

pub mod config;
pub mod edges;
pub mod layout;
mod partitions;
pub mod rows;
mod state;
pub mod text;
mod write;

pub use partitions::Partitions;
