//! Keys of the configuration.

use super::field::{Field, InvalidValue, Loader, Rule, Writer, given, object};
use super::parameters::Side;
use weighbridge_core::text::escape;

/// Defines a structure with the keys as fields, in writing order: name, type,
/// rule, default (`None`: required), and whether release 1.0.0 has the key.
macro_rules! schema {
    ($(#[$what:meta])* $name:ident {
        $($(#[$doc:meta])* $key:ident: $kind:ty, $rule:ident, $default:expr, $old:literal;)*
    }) => {
        $(#[$what])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name {
            $($(#[$doc])* pub $key: $kind,)*
        }

        impl $name {
            /// Keys in the order of writing.
            pub const KEYS: &'static [&'static str] = &[$(stringify!($key)),*];
        }

        impl Field for $name {
            fn load(json: &super::json::Json, loader: &mut Loader) -> Result<Self, InvalidValue> {
                $(let mut $key: Option<$kind> = None;)*
                for (key, value) in object(json, "Not a schema")? {
                    let key = loader.lower(key);
                    match key.as_str() {
                        $(stringify!($key) => {
                            if let Some(value) = loader.value(stringify!($key), Rule::$rule, value)? {
                                $key = Some(value);
                            }
                        })*
                        _ => loader.unknown(&key, Self::KEYS)?,
                    }
                }
                Ok(Self { $($key: given(stringify!($key), $key.or($default))?,)* })
            }

            fn dump(&self, writer: &mut Writer) {
                writer.open('{');
                $(if $old || !writer.release {
                    writer.key(stringify!($key));
                    self.$key.dump(writer);
                })*
                writer.close('}');
            }
        }
    };
}

schema! {
    /// Entity type.
    EntityType {
        /// Number of partitions; 1 if unpartitioned.
        num_partitions: u64, Positive, None, true;
        /// True where entities are sets of features: the rows of the table are features.
        featurized: bool, Any, Some(false), true;
        /// Number of columns, if different from the global dimension.
        dimension: Option<u64>, Positive, Some(None), false;
    }
}

schema! {
    /// Relation type.
    Relation {
        /// Name; names may repeat.
        name: String, NonEmpty, None, true;
        /// Entity type of left sides.
        lhs: String, NonEmpty, None, true;
        /// Entity type of right sides.
        rhs: String, NonEmpty, None, true;
        /// Weight of its loss.
        weight: f64, Positive, Some(1.0), true;
        /// Operator applied to one side before the comparison.
        operator: String, Any, Some("none".to_owned()), true;
        /// True where all entities are negatives.
        all_negs: bool, Any, Some(false), true;
    }
}

schema! {
    /// Configuration, parsed by [`Config::parse`]; each field is a key of `config.json`.
    Config {
        /// Entity types by name, in order.
        entities: Vec<(String, EntityType)>, NonEmpty, None, true;
        /// Relations; edges refer to them by index.
        relations: Vec<Relation>, NonEmpty, None, true;
        /// Number of columns of tables.
        dimension: u64, Positive, None, true;
        /// Standard deviation of initial rows.
        init_scale: f64, Positive, Some(1e-3), true;
        /// Maximum norm of rows.
        max_norm: Option<f64>, Positive, Some(None), true;
        /// True where each entity type has a vector that is added to all its rows.
        global_emb: bool, Any, Some(true), true;
        /// Comparator of two rows: `dot`, `cos`, `l2`, `squared_l2`.
        comparator: String, Any, Some("cos".to_owned()), true;
        /// True where the first column is a bias.
        bias: bool, Any, Some(false), true;
        /// Loss function: `ranking`, `logistic` or `softmax`.
        loss_fn: String, Any, Some("ranking".to_owned()), true;
        /// Margin of the ranking loss.
        margin: f64, Any, Some(0.1), true;
        /// Weight of the regularizer.
        regularization_coef: f64, Any, Some(0.0), false;
        /// Regularizer.
        regularizer: String, Any, Some("N3".to_owned()), false;
        /// Folder of entity counts and names.
        entity_path: String, Any, None, true;
        /// Folders of edges.
        edge_paths: Vec<String>, Any, None, true;
        /// Checkpoint folder.
        checkpoint_path: String, Any, None, true;
        /// Folder of initial rows.
        init_path: Option<String>, Any, Some(None), true;
        /// Interval of snapshots in epochs.
        checkpoint_preservation_interval: Option<i64>, Any, Some(None), true;
        /// Total number of epochs.
        num_epochs: u64, NonNegative, Some(1), true;
        /// Number of chunks of each bucket.
        num_edge_chunks: Option<u64>, Positive, Some(None), true;
        /// Maximum number of edges of a chunk, if the number of chunks is not set.
        max_edges_per_chunk: u64, Positive, Some(1_000_000_000), true;
        /// Order of buckets.
        bucket_order: BucketOrder, Any, Some(BucketOrder::InsideOut), true;
        /// Number of processes.
        workers: Option<u64>, Positive, Some(None), true;
        /// Number of edges of a batch.
        batch_size: u64, Positive, Some(1000), true;
        /// Number of negatives taken from the batch.
        num_batch_negs: u64, NonNegative, Some(50), true;
        /// Number of negatives taken from the partition.
        num_uniform_negs: u64, NonNegative, Some(50), true;
        /// True where left sides are not corrupted.
        disable_lhs_negs: bool, Any, Some(false), true;
        /// True where right sides are not corrupted.
        disable_rhs_negs: bool, Any, Some(false), true;
        /// Learning rate.
        lr: f64, NonNegative, Some(1e-2), true;
        /// Learning rate of operators, if different.
        relation_lr: Option<f64>, NonNegative, Some(None), true;
        /// Fraction of held-out edges.
        eval_fraction: f64, NonNegative, Some(0.05), true;
        /// Like `num_batch_negs`, in evaluation.
        eval_num_batch_negs: Option<u64>, NonNegative, Some(Some(1000)), true;
        /// Like `num_uniform_negs`, in evaluation.
        eval_num_uniform_negs: Option<u64>, NonNegative, Some(Some(1000)), true;
        /// No effect.
        background_io: bool, Any, Some(false), true;
        /// Log level: 0 or 1.
        verbose: u64, NonNegative, Some(0), true;
        /// Delay in seconds.
        hogwild_delay: f64, NonNegative, Some(2.0), true;
        /// True where relations are rows of parameter tables.
        dynamic_relations: bool, Any, Some(false), true;
        /// Number of machines.
        num_machines: u64, Positive, Some(1), true;
        /// Partition servers: -1 for the trainers; 0 for none, with partitions on disk; otherwise the number started separately.
        num_partition_servers: i64, Any, Some(-1), true;
        /// Method by which machines find each other.
        distributed_init_method: Option<String>, Any, Some(None), true;
        /// True where buckets wait for a partition that was trained before.
        distributed_tree_init_order: bool, Any, Some(true), true;
        /// Number of GPUs.
        num_gpus: i64, Any, Some(0), false;
        /// Number of process groups.
        num_groups_for_partition_server: i64, Any, Some(16), false;
        /// Number of process groups for each partition server of sharded partitions.
        num_groups_per_sharded_partition_server: i64, Any, Some(1), false;
        /// Size of partition shards in MiB.
        partition_shard_size: i64, Any, Some(250), false;
        /// True where a GPU computes in binary16.
        half_precision: bool, Any, Some(false), false;
    }
}

impl Relation {
    /// Entity type of one side.
    pub fn side(&self, side: Side) -> &str {
        match side {
            Side::Lhs => &self.lhs,
            Side::Rhs => &self.rhs,
        }
    }
}

/// Training order of buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BucketOrder {
    /// Random order.
    Random,
    /// Consecutive buckets share a partition.
    Affinity,
    /// By layers min(l, r), highest first.
    InsideOut,
    /// By layers min(l, r), lowest first.
    OutsideIn,
}

impl BucketOrder {
    const ALL: [Self; 4] = [Self::Random, Self::Affinity, Self::InsideOut, Self::OutsideIn];

    /// Returns the word used in `config.json`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Affinity => "affinity",
            Self::InsideOut => "inside_out",
            Self::OutsideIn => "outside_in",
        }
    }
}

impl Field for BucketOrder {
    fn load(json: &super::json::Json, _: &mut Loader) -> Result<Self, InvalidValue> {
        let super::json::Json::Text(word) = json else { return Err(InvalidValue::new("Not a str")) };
        let same = |order: &Self| order.as_str().to_uppercase() == word.to_uppercase();
        let unknown = || InvalidValue::new(format!("Unknown option: {}", escape(word)));
        Self::ALL.into_iter().find(same).ok_or_else(unknown)
    }
    fn dump(&self, writer: &mut Writer) {
        writer.text(self.as_str());
    }
}
