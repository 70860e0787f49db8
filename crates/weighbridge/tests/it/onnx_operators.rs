//! The table of operators in docs/src/reference/onnx-operators.md is that of the exporter.
//!
//! `SNAPSHOTS=overwrite cargo test -p weighbridge --test it onnx_operators` writes it anew.

use std::fmt::Write as _;
use weighbridge::formats::onnx::Onnx;
use weighbridge_testkit::testdata;

const HEAD: &str = "\
# ONNX operators

Operators of Paddle programs that `convert` exports to ONNX, by their names in protobuf programs (`.pdmodel`, `__model__`) and in PIR
(`.json`, `pd_op.` and `onednn_op.`). Some variants of an operator are refused; the message says which. `weighbridge program MODEL --ops`
lists the operators of a program.

Each is compared with Paddle in at least one of the two forms, except for some that run on a GPU only: `skip_layernorm`, `fused_fc_elementwise_layernorm`,
`fused_embedding_eltwise_layernorm`, `multihead_matmul`, `fused_bias_act`, `fused_bias_dropout_residual_layer_norm`,
`fused_bias_residual_layernorm`. They were compared with numpy, as was `pad2d`, which Paddle 2.6 no longer runs.
";

#[test]
fn the_page_lists_all_operators() {
    let (desc, pir) = Onnx::exported_operators();
    let mut page = HEAD.to_owned();
    for (title, names) in [("Protobuf programs", desc), ("PIR", pir)] {
        writeln!(page, "\n## {title}\n\n{} operators:\n", names.len()).unwrap();
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        writeln!(page, "{}", names.join(", ")).unwrap();
    }
    let path = testdata("../docs/src/reference/onnx-operators.md");
    if std::env::var("SNAPSHOTS").is_ok_and(|mode| mode == "overwrite") {
        std::fs::write(&path, &page).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), page);
}
