//! One row per case: the results of strict opening, of lenient opening, and of loading into an object as the original does, with
//! the reason where one of these differs from the original.

/// A case with its expected treatment.
#[derive(Debug)]
pub(crate) struct Case {
    /// The name of the file without variant.
    pub(crate) name: &'static str,
    /// Opening as an index, with default options.
    pub(crate) strict: Verdict,
    /// Opening as an index, leniently.
    pub(crate) lenient: Verdict,
    /// Loading into the object that the original loaded into, as the original does.
    pub(crate) load: Verdict,
    /// Why a verdict differs from the original's; empty where none does.
    pub(crate) reason: &'static str,
}

/// What is done with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is read, and nothing is odd.
    Read,
    /// It is read with a note of that code.
    Note(&'static str),
    /// It is refused with that code.
    Refuse(&'static str),
}
use Verdict::{Note, Read, Refuse};

impl Verdict {
    /// True where the file is read.
    pub(crate) fn accepts(self) -> bool {
        !matches!(self, Self::Refuse(_))
    }
}

const fn row(
    name: &'static str,
    strict: Verdict,
    lenient: Verdict,
    load: Verdict,
    reason: &'static str,
) -> Case {
    Case { name, strict, lenient, load, reason }
}

/// The same verdict three times.
const fn all(name: &'static str, verdict: Verdict, reason: &'static str) -> Case {
    row(name, verdict, verdict, verdict, reason)
}

const AGREED: &str = "";
const TRAILING: &str = "bytes after the end mean a count that is too small, or files that were joined by mistake: \
    not read silently";
const TWICE: &str =
    "a name that occurs twice means a broken writer, and half of it would be dropped: not read silently";
const WRAPS: &str = "the volume passes 2^32; the original computes it modulo 2^32 and holds a tensor with fewer values \
    than elements, which no one can want";
const NO_TARGET: &str =
    "the file is whole; that a program has no such parameter shows only when it is loaded";

#[rustfmt::skip]
pub(crate) const CASES: &[Case] = &[
    // A parameter, and what may follow it.
    all("ok_minimal",                     Read, AGREED),
    all("ok_one_stat",                    Read, AGREED),
    all("load_without_stats",             Read, AGREED),
    all("load_without_stats_bad_stat",    Refuse("length-mismatch"), AGREED),
    row("trailing_garbage",               Refuse("trailing-bytes"), Note("trailing-bytes"), Note("trailing-bytes"), TRAILING),
    row("trailing_second_object",         Refuse("trailing-bytes"), Note("trailing-bytes"), Note("trailing-bytes"), TRAILING),
    // Files cut short.
    row("empty_file",                     Refuse("empty-file"), Refuse("empty-file"), Refuse("truncated"), AGREED),
    all("header_only",                    Refuse("truncated"), AGREED),
    all("truncated_last_byte",            Refuse("truncated"), AGREED),
    all("truncated_in_values",            Refuse("truncated"), AGREED),
    all("truncated_in_header",            Refuse("truncated"), AGREED),
    all("missing_num_stats",              Refuse("truncated"), AGREED),
    // Headers.
    all("version_0_0",                    Refuse("wrong-version"), AGREED),
    all("version_0_2",                    Refuse("wrong-version"), AGREED),
    all("version_1_1",                    Refuse("wrong-version"), AGREED),
    all("version_1_0",                    Refuse("wrong-version"), AGREED),
    row("type_model",                     Refuse("primitiv-marker"), Refuse("primitiv-marker"), Refuse("wrong-kind"), AGREED),
    row("type_tensor",                    Read, Read, Refuse("wrong-kind"), "a whole Tensor file; only who asked for a Parameter has the wrong file"),
    all("type_unknown",                   Refuse("unknown-type"), AGREED),
    all("header_fixint",                  Refuse("primitiv-marker"), AGREED),
    all("header_uint8",                   Refuse("primitiv-marker"), AGREED),
    all("header_uint16_type",             Refuse("primitiv-marker"), AGREED),
    all("header_uint64",                  Refuse("primitiv-marker"), AGREED),
    all("header_int32",                   Refuse("primitiv-marker"), AGREED),
    all("header_magic_array",             Refuse("primitiv-marker"), AGREED),
    // Counts.
    all("num_stats_fixint",               Refuse("primitiv-marker"), AGREED),
    all("num_stats_nil",                  Refuse("primitiv-marker"), AGREED),
    all("num_stats_too_big",              Refuse("impossible-count"), AGREED),
    row("num_stats_smaller_than_content", Refuse("trailing-bytes"), Note("trailing-bytes"), Note("trailing-bytes"), TRAILING),
    // Shapes.
    all("dims_fixint",                    Refuse("primitiv-marker"), AGREED),
    all("dims_array16",                   Note("long-headers"), AGREED),
    all("dims_array32",                   Note("long-headers"), AGREED),
    all("dims_map",                       Refuse("primitiv-marker"), AGREED),
    all("dims_nil",                       Refuse("primitiv-marker"), AGREED),
    all("dims_array_of_uint8",            Refuse("primitiv-marker"), AGREED),
    all("dims_trailing_ones",             Note("trailing-ones"), AGREED),
    all("dims_all_ones",                  Note("trailing-ones"), AGREED),
    all("dims_inner_ones",                Read, AGREED),
    all("dims_eight",                     Read, AGREED),
    all("dims_nine",                      Refuse("too-many-dims"), AGREED),
    all("dims_nine_trailing_ones",        Refuse("too-many-dims"), AGREED),
    all("dims_zero",                      Refuse("zero-dim"), AGREED),
    all("dims_zero_inner",                Refuse("zero-dim"), AGREED),
    all("batch_zero",                     Refuse("zero-batch"), AGREED),
    row("batch_two_value",                Refuse("batched-parameter"), Note("batched-parameter"), Refuse("batched-parameter"), "what is meant is clear, so the index shows it; as an object it stays refused"),
    all("batch_two_stat",                 Read, AGREED),
    all("batch_fixint",                   Refuse("primitiv-marker"), AGREED),
    all("stat_other_shape",               Read, AGREED),
    all("volume_wraps_to_zero",           Refuse("shape-overflow"), AGREED),
    all("volume_wraps_to_one",            Refuse("shape-overflow"), WRAPS),
    all("volume_wraps_to_two",            Refuse("shape-overflow"), WRAPS),
    all("stat_batch_wraps_to_one",        Refuse("shape-overflow"), WRAPS),
    all("stat_batch_wraps_to_zero",       Refuse("shape-overflow"), WRAPS),
    // Values.
    all("data_short_one_value",           Refuse("length-mismatch"), AGREED),
    all("data_long_one_value",            Refuse("length-mismatch"), AGREED),
    all("data_not_multiple_of_four",      Refuse("length-mismatch"), AGREED),
    all("data_empty_bin",                 Refuse("length-mismatch"), AGREED),
    all("data_bin16",                     Note("long-headers"), AGREED),
    all("data_bin32",                     Note("long-headers"), AGREED),
    all("data_str",                       Refuse("primitiv-marker"), AGREED),
    all("data_array_of_float",            Refuse("primitiv-marker"), AGREED),
    all("data_ext",                       Refuse("primitiv-marker"), AGREED),
    all("data_nil",                       Refuse("primitiv-marker"), AGREED),
    all("data_bin32_claims_4gib",         Refuse("length-mismatch"), AGREED),
    all("dims_array32_claims_2pow32",     Refuse("too-many-dims"), AGREED),
    all("stat_name_str32_claims_4gib",    Refuse("truncated"), AGREED),
    // Stats.
    row("stat_duplicate",                 Refuse("duplicate-stat"), Note("duplicate-stat"), Note("duplicate-stat"), TWICE),
    all("stat_name_str8",                 Note("long-headers"), AGREED),
    all("stat_name_str16",                Note("long-headers"), AGREED),
    all("stat_name_str32",                Note("long-headers"), AGREED),
    all("stat_name_bin",                  Refuse("primitiv-marker"), AGREED),
    all("stat_name_nil",                  Refuse("primitiv-marker"), AGREED),
    all("stats_as_map",                   Refuse("primitiv-marker"), AGREED),
    // Models: the target has the parameters `p` and `sm`, `q`.
    all("model_ok",                       Read, AGREED),
    all("model_empty",                    Read, AGREED),
    all("model_subset",                   Read, AGREED),
    row("model_reverse_order",            Note("address-order"), Note("address-order"), Read, AGREED),
    all("model_other_shape",              Read, AGREED),
    row("model_unknown_key",              Read, Read, Refuse("unknown-address"), NO_TARGET),
    row("model_unknown_key_second",       Read, Read, Refuse("unknown-address"), NO_TARGET),
    row("model_submodel_as_key",          Read, Read, Refuse("unknown-address"), NO_TARGET),
    row("model_dotted_key",               Read, Read, Refuse("unknown-address"), NO_TARGET),
    all("model_empty_key_array",          Refuse("empty-address"), AGREED),
    all("model_key_is_str",               Refuse("primitiv-marker"), AGREED),
    row("model_key_too_long",             Read, Read, Refuse("unknown-address"), NO_TARGET),
    row("model_duplicate_key",            Refuse("duplicate-address"), Note("duplicate-address"), Note("duplicate-address"), TWICE),
    all("model_count_too_big",            Refuse("truncated"), AGREED),
    row("model_count_too_small",          Refuse("trailing-bytes"), Note("trailing-bytes"), Note("trailing-bytes"), TRAILING),
    all("model_count_fixint",             Refuse("primitiv-marker"), AGREED),
    all("model_truncated_in_second",      Refuse("truncated"), AGREED),
    all("model_second_bad_shape",         Refuse("length-mismatch"), AGREED),
    all("model_key_array16",              Note("long-headers"), AGREED),
    all("model_key_array32",              Note("long-headers"), AGREED),
    all("model_with_stats",               Read, AGREED),
    all("model_with_stats_dropped",       Read, AGREED),
    row("model_is_parameter_file",        Read, Read, Refuse("wrong-kind"), "a whole Parameter file; only who asked for a Model has the wrong file"),
    row("model_trailing_garbage",         Refuse("trailing-bytes"), Note("trailing-bytes"), Note("trailing-bytes"), TRAILING),
    // Optimizers: the target has default settings.
    all("opt_ok",                         Note("optimizer-keys-missing"), AGREED),
    all("opt_empty_maps",                 Note("optimizer-keys-missing"), AGREED),
    all("opt_unknown_keys",               Note("optimizer-keys-missing"), AGREED),
    all("opt_other_class",                Note("optimizer-keys-missing"), AGREED),
    all("opt_swapped_maps",               Refuse("primitiv-marker"), AGREED),
    all("opt_one_map",                    Refuse("truncated"), AGREED),
    row("opt_duplicate_key",              Refuse("duplicate-key"), Note("duplicate-key"), Note("duplicate-key"), TWICE),
    all("opt_float64",                    Refuse("primitiv-marker"), AGREED),
    all("opt_float_as_uint",              Refuse("primitiv-marker"), AGREED),
    all("opt_epoch_fixint",               Refuse("primitiv-marker"), AGREED),
    all("opt_epoch_uint64",               Refuse("primitiv-marker"), AGREED),
    all("opt_epoch_negative",             Refuse("primitiv-marker"), AGREED),
    all("opt_map16",                      Note("long-headers"), AGREED),
    all("opt_map32",                      Note("long-headers"), AGREED),
    all("opt_maps_as_arrays",             Refuse("primitiv-marker"), AGREED),
    // Only variant a has a negative value; what both have is that keys are missing.
    all("opt_negative_lr_scale",          Note("optimizer-keys-missing"), AGREED),
    all("opt_nan",                        Note("optimizer-value"), AGREED),
    all("opt_key_bin",                    Refuse("primitiv-marker"), AGREED),
    row("opt_trailing_garbage",           Refuse("trailing-bytes"), Note("trailing-bytes"), Note("trailing-bytes"), TRAILING),
    all("opt_map_count_too_big",          Refuse("primitiv-marker"), AGREED),
    all("opt_epoch_in_float_map",         Note("optimizer-keys-missing"), AGREED),
];
