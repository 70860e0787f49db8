//! The keys.

use super::field::{Field, Loader, Rule, Writer, Wrong, given, object};
use super::parameters::Side;
use weighbridge_core::text::escape;

/// Defines a structure whose fields are the keys, in the order in which they are written: name, type,
/// rule, default (`None`: it must be given), and whether release 1.0.0 knows it.
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
            /// The keys, in the order in which they are written.
            pub const KEYS: &'static [&'static str] = &[$(stringify!($key)),*];
        }

        impl Field for $name {
            fn load(json: &super::json::Json, loader: &mut Loader) -> Result<Self, Wrong> {
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
    /// A type of entities.
    EntityType {
        /// The number of partitions; 1 where it is not partitioned.
        num_partitions: u64, Positive, None, true;
        /// True where entities are sets of features: the rows of the table are features.
        featurized: bool, Any, Some(false), true;
        /// The number of columns, where it is not that of the whole configuration.
        dimension: Option<u64>, Positive, Some(None), false;
    }
}

schema! {
    /// A type of relations.
    Relation {
        /// Its name; names may repeat.
        name: String, NonEmpty, None, true;
        /// The type of left sides.
        lhs: String, NonEmpty, None, true;
        /// The type of right sides.
        rhs: String, NonEmpty, None, true;
        /// The factor of its loss.
        weight: f64, Positive, Some(1.0), true;
        /// What is done to one side before both are compared.
        operator: String, Any, Some("none".to_owned()), true;
        /// True where all entities are negatives.
        all_negs: bool, Any, Some(false), true;
    }
}

schema! {
    /// A configuration. [`Config::parse`] makes one; each field is a key of `config.json`.
    Config {
        /// The types of entities, by name, in order.
        entities: Vec<(String, EntityType)>, NonEmpty, None, true;
        /// The relations; edges mean them by their index.
        relations: Vec<Relation>, NonEmpty, None, true;
        /// The number of columns of tables.
        dimension: u64, Positive, None, true;
        /// The standard deviation of the rows that training begins with.
        init_scale: f64, Positive, Some(1e-3), true;
        /// Rows longer than this are made shorter.
        max_norm: Option<f64>, Positive, Some(None), true;
        /// True where each type has a vector that is added to all its rows.
        global_emb: bool, Any, Some(true), true;
        /// How two rows are compared: `dot`, `cos`, `l2`, `squared_l2`.
        comparator: String, Any, Some("cos".to_owned()), true;
        /// True where the first column is a bias.
        bias: bool, Any, Some(false), true;
        /// `ranking`, `logistic` or `softmax`.
        loss_fn: String, Any, Some("ranking".to_owned()), true;
        /// The margin of the ranking loss.
        margin: f64, Any, Some(0.1), true;
        /// The weight of the regulariser.
        regularization_coef: f64, Any, Some(0.0), false;
        /// The regulariser.
        regularizer: String, Any, Some("N3".to_owned()), false;
        /// The folder of counts and names.
        entity_path: String, Any, None, true;
        /// The folders of edges.
        edge_paths: Vec<String>, Any, None, true;
        /// The folder of checkpoints.
        checkpoint_path: String, Any, None, true;
        /// A folder of rows to begin with.
        init_path: Option<String>, Any, Some(None), true;
        /// A snapshot is kept every so many epochs.
        checkpoint_preservation_interval: Option<i64>, Any, Some(None), true;
        /// The number of epochs in all.
        num_epochs: u64, NonNegative, Some(1), true;
        /// The number of chunks that each bucket is cut into.
        num_edge_chunks: Option<u64>, Positive, Some(None), true;
        /// The most edges of a chunk, where the number of chunks is not given.
        max_edges_per_chunk: u64, Positive, Some(1_000_000_000), true;
        /// The order of buckets.
        bucket_order: BucketOrder, Any, Some(BucketOrder::InsideOut), true;
        /// The number of processes.
        workers: Option<u64>, Positive, Some(None), true;
        /// The number of edges of a batch.
        batch_size: u64, Positive, Some(1000), true;
        /// Negatives taken from the batch.
        num_batch_negs: u64, NonNegative, Some(50), true;
        /// Negatives taken from the partition.
        num_uniform_negs: u64, NonNegative, Some(50), true;
        /// True where left sides are not corrupted.
        disable_lhs_negs: bool, Any, Some(false), true;
        /// True where right sides are not corrupted.
        disable_rhs_negs: bool, Any, Some(false), true;
        /// The learning rate.
        lr: f64, NonNegative, Some(1e-2), true;
        /// The learning rate of operators, where it is another.
        relation_lr: Option<f64>, NonNegative, Some(None), true;
        /// The part of the edges that is held out.
        eval_fraction: f64, NonNegative, Some(0.05), true;
        /// As `num_batch_negs`, in evaluation.
        eval_num_batch_negs: Option<u64>, NonNegative, Some(Some(1000)), true;
        /// As `num_uniform_negs`, in evaluation.
        eval_num_uniform_negs: Option<u64>, NonNegative, Some(Some(1000)), true;
        /// Of no effect.
        background_io: bool, Any, Some(false), true;
        /// How much is logged: 0 or 1.
        verbose: u64, NonNegative, Some(0), true;
        /// Seconds.
        hogwild_delay: f64, NonNegative, Some(2.0), true;
        /// True where relations are rows of tables of parameters.
        dynamic_relations: bool, Any, Some(false), true;
        /// The number of machines.
        num_machines: u64, Positive, Some(1), true;
        /// -1: the trainers; 0: none, partitions go by disk; else so many are started elsewhere.
        num_partition_servers: i64, Any, Some(-1), true;
        /// How machines find each other.
        distributed_init_method: Option<String>, Any, Some(None), true;
        /// True where buckets wait for a partition that was trained before.
        distributed_tree_init_order: bool, Any, Some(true), true;
        /// The number of GPUs.
        num_gpus: i64, Any, Some(0), false;
        /// Groups of processes.
        num_groups_for_partition_server: i64, Any, Some(16), false;
        /// Groups of processes for a server of sharded partitions.
        num_groups_per_sharded_partition_server: i64, Any, Some(1), false;
        /// MiB.
        partition_shard_size: i64, Any, Some(250), false;
        /// True where a GPU computes in binary16.
        half_precision: bool, Any, Some(false), false;
    }
}

impl Relation {
    /// The type of one side.
    pub fn side(&self, side: Side) -> &str {
        match side {
            Side::Lhs => &self.lhs,
            Side::Rhs => &self.rhs,
        }
    }
}

/// The order in which buckets are trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BucketOrder {
    /// Any.
    Random,
    /// Buckets that share a partition follow each other.
    Affinity,
    /// By layers min(l, r), highest first.
    InsideOut,
    /// By layers min(l, r), lowest first.
    OutsideIn,
}

impl BucketOrder {
    const ALL: [Self; 4] = [Self::Random, Self::Affinity, Self::InsideOut, Self::OutsideIn];

    /// The word in `config.json`.
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
    fn load(json: &super::json::Json, _: &mut Loader) -> Result<Self, Wrong> {
        let super::json::Json::Text(word) = json else { return Err(Wrong::new("Not a str")) };
        let same = |order: &Self| order.as_str().to_uppercase() == word.to_uppercase();
        let unknown = || Wrong::new(format!("Unknown option: {}", escape(word)));
        Self::ALL.into_iter().find(same).ok_or_else(unknown)
    }
    fn dump(&self, writer: &mut Writer) {
        writer.text(self.as_str());
    }
}
