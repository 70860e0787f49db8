use super::*;

fn file(name: &str) -> String {
    String::from_utf8(weighbridge_testkit::golden(format!("biggraph/text/{name}"))).unwrap()
}

const SMALL: &str = r#"{"entities": {"a": {"num_partitions": 4}}, "relations": [{"name": "r", "lhs": "a", "rhs": "a"}],
    "dimension": 4, "entity_path": "e", "edge_paths": ["x"], "checkpoint_path": "m" KEYS}"#;

fn with(keys: &str) -> Result<(Config, Vec<Finding>)> {
    Config::parse(&SMALL.replace("KEYS", keys), false)
}

fn config(keys: &str) -> Config {
    with(keys).unwrap().0
}

#[test]
fn upstream_files_round_trip_byte_for_byte() {
    for name in ["std.json", "dyn.json", "feat.json", "legacy.json"] {
        let text = file(name);
        let (config, findings) = Config::parse(&text, false).unwrap();
        assert_eq!(config.to_json(), text, "{name}");
        assert_eq!(findings, []);
    }
    let release = file("release.json");
    let (config, _) = Config::parse(&release, false).unwrap();
    assert_eq!(config.to_json_of_release(), release);
    assert_ne!(config.to_json(), release);
}

#[test]
fn lists_parameters_in_optimizer_order() {
    let (config, _) = Config::parse(&file("std.json"), false).unwrap();
    let found: Vec<_> =
        config.parameters(0).unwrap().into_iter().map(|p| (p.key, p.path.join("/"), p.shape)).collect();
    let expected: serde_json::Value = serde_json::from_str(&file("std.parameters.json")).unwrap();
    let expected: Vec<(String, String, Vec<u64>)> = serde_json::from_value(expected).unwrap();
    assert_eq!(found, expected);
    let dynamic = self::config(r#", "dynamic_relations": true, "global_emb": false"#);
    assert_eq!(dynamic.parameters(7).unwrap(), []);
    let mut affine = dynamic;
    affine.relations[0].operator = "affine".into();
    let keys: Vec<_> = affine.parameters(7).unwrap().into_iter().map(|p| (p.key, p.shape)).collect();
    assert_eq!(
        keys,
        [
            ("lhs_operators.0.linear_transformations".to_owned(), vec![7, 4, 4]),
            ("lhs_operators.0.translations".to_owned(), vec![7, 4]),
            ("rhs_operators.0.linear_transformations".to_owned(), vec![7, 4, 4]),
            ("rhs_operators.0.translations".to_owned(), vec![7, 4]),
        ]
    );
    affine.relations[0].operator = "rotate".into();
    assert_eq!(affine.parameters(1).unwrap_err().code().as_str(), "operator");
}

#[test]
fn accepts_values_like_upstream() {
    let found = config(
        r#", "batchSize": 7, "maxNorm": 1, "bucketOrder": "Inside_Out", "bias": "ON", "global_emb": 0,
        "lr": NaN, "init_path": null, "num_epochs": true, "eval_num_batch_negs": null"#,
    );
    assert_eq!((found.batch_size, found.max_norm, found.bias, found.global_emb), (7, Some(1.0), true, false));
    assert!(found.lr.is_nan() && found.init_path.is_none());
    assert_eq!((found.num_epochs, found.eval_num_batch_negs), (1, None));
    assert_eq!((found.num_uniform_negs, found.hogwild_delay), (50, 2.0));
    assert_eq!(with(r#", "num_epochs": true"#).unwrap().1[0].code, "config-number");
    assert!(found.to_json().contains("\"lr\": NaN,") && found.to_json().contains("\"max_norm\": 1.0,"));
}

#[test]
fn rejects_values_like_upstream() {
    for (keys, words) in [
        (r#", "num_epochs": 4.0"#, "num_epochs: Not an int"),
        (r#", "num_epochs": -1"#, "num_epochs: must be >= 0"),
        (r#", "dimension": 0"#, "dimension: must be > 0"),
        (r#", "lr": "0.1""#, "lr: Not a float"),
        (r#", "lr": null"#, "lr: Not a float"),
        (r#", "bias": 2"#, "bias: Not a bool"),
        (r#", "bias": 1.0"#, "bias: Not a bool"),
        (r#", "bucket_order": "other""#, "bucket_order: Unknown option: other"),
        (r#", "edge_paths": "x""#, "edge_paths: Not a list"),
        (r#", "edge_paths": ["x", 1]"#, "edge_paths[1]: Not a str"),
        (r#", "entities": {}"#, "entities: must be non-empty"),
        (r#", "entities": {"a": {}}"#, "entities['a']: the key `num_partitions` is missing"),
        (r#", "entities": {"b": {"num_partitions": 1}}"#, "unknown left-hand side entity type a"),
        (r#", "relations": [{"name": "", "lhs": "a", "rhs": "a"}]"#, "relations[0].name: must be non-empty"),
        (
            r#", "dynamic_relations": true, "relations": [{"name": "r", "lhs": "a", "rhs": "a"}, {"name": "r", "lhs": "a", "rhs": "a"}]"#,
            "only one",
        ),
        (r#", "disable_lhs_negs": 1, "disable_rhs_negs": 1"#, "both sides"),
        (r#", "batchsizes": 1"#, "Unknown key: batchsizes"),
    ] {
        let error = with(keys).unwrap_err();
        assert_eq!(error.code().as_str(), "config");
        assert!(error.message().contains(words), "{keys}: {}", error.message());
    }
    assert_eq!(with(r#", "batch_sise": 1"#).unwrap_err().hint_text(), Some("did you mean `batch_size`?"));
    assert_eq!(Config::parse("[]", false).unwrap_err().code().as_str(), "config");
}

#[test]
fn lenient_mode_reports_ignored_values() {
    let text = SMALL
        .replace("KEYS", r#", "batch_sise": 1, "lr": "x", "disable_lhs_negs": 1, "disable_rhs_negs": 1"#);
    let (config, findings) = Config::parse(&text, true).unwrap();
    assert_eq!(config.lr, 0.01);
    assert_eq!(findings.iter().filter(|f| f.code == "config").count(), 3);
    assert!(Config::parse("{}", true).is_err());
}

#[test]
fn python_code_is_not_run() {
    let error = Config::parse("def get_torchbiggraph_config():\n    return make()\n", true).unwrap_err();
    assert_eq!(error.code().as_str(), "python-config");
    assert!(error.hint_text().unwrap().contains("runpy"));
    let literal = SMALL.replace("KEYS", "").replace('\n', " ");
    let python = format!("def get_torchbiggraph_config():\n    return {literal}\n");
    let (read, findings) = Config::parse(&python, false).unwrap();
    assert_eq!((&read, findings), (&config(""), Vec::new()));
    assert_eq!(json_text(python).unwrap(), read.to_json_for_all());
}

#[test]
fn computes_sides_and_partitions() {
    let mut found = config("");
    assert_eq!(found.sides().unwrap(), Sides { lhs: 4, rhs: 4 });
    assert_eq!(found.clone().with_partitions(2, &[]).sides().unwrap(), Sides { lhs: 2, rhs: 2 });
    let one = EntityType { num_partitions: 1, featurized: false, dimension: Some(6) };
    found.entities.push(("b".into(), one.clone()));
    found.relations[0].rhs = "b".into();
    assert_eq!(found.sides().unwrap(), Sides { lhs: 4, rhs: 1 });
    assert_eq!(
        (found.dimension_of("a"), found.dimension_of("b"), found.dimension_of("c")),
        (Some(4), Some(6), None)
    );
    assert_eq!(found.clone().with_partitions(3, &["b"]).sides().unwrap(), Sides { lhs: 4, rhs: 3 });
    found.entities.push(("c".into(), EntityType { num_partitions: 3, ..one }));
    let mut relation = found.relations[0].clone();
    relation.lhs = "c".into();
    found.relations.push(relation);
    assert_eq!(found.sides().unwrap_err().code().as_str(), "partitions-differ");
}

#[test]
fn reports_faults_that_upstream_finds_late() {
    let codes = |config: &Config| config.problems().iter().map(|f| f.code.as_str()).collect::<Vec<_>>();
    assert_eq!(codes(&config("")), [""; 0]);
    for (keys, code) in [
        (r#", "num_batch_negs": 0, "num_uniform_negs": 0"#, "no-negatives"),
        (r#", "num_batch_negs": 7"#, "batch-size"),
        (r#", "checkpoint_preservation_interval": 0"#, "preservation-interval"),
        (r#", "dynamic_relations": true"#, "global-dynamic"),
        (r#", "comparator": "cosine""#, "comparator"),
        (r#", "loss_fn": "hinge""#, "loss-fn"),
        (r#", "loss_fn": "logistic""#, "logistic-cos"),
        (r#", "verbose": 2"#, "verbose"),
        (r#", "eval_num_batch_negs": 0"#, "eval-negatives"),
        (r#", "eval_fraction": 1.5"#, "eval-fraction"),
        (r#", "entity_path": "s3://x""#, "url"),
        (r#", "init_path": "None""#, "init-path-none"),
        (r#", "edge_paths": []"#, "no-edges"),
        (r#", "entities": {"a": {"num_partitions": 2, "featurized": true}}"#, "featurized-partitioned"),
        (r#", "relations": [{"name": "r", "lhs": "a", "rhs": "a", "operator": "rotate"}]"#, "operator"),
        (
            r#", "dimension": 5, "relations": [{"name": "r", "lhs": "a", "rhs": "a", "operator": "complex_diagonal"}]"#,
            "odd-dimension",
        ),
        (r#", "entities": {"a.b": {"num_partitions": 1}, "a": {"num_partitions": 1}}"#, "type-name"),
        (
            r#", "regularization_coef": 0.1, "relations": [{"name": "r", "lhs": "a", "rhs": "a", "operator": "affine"}]"#,
            "regularizer",
        ),
        (
            r#", "entities": {"a": {"num_partitions": 1}, "b": {"num_partitions": 1, "dimension": 2}}, "relations": [{"name": "r", "lhs": "a", "rhs": "b"}]"#,
            "dimensions-differ",
        ),
        (r#", "num_machines": 2, "entities": {"a": {"num_partitions": 1}}"#, "machines"),
    ] {
        assert_eq!(codes(&config(keys)), [code], "{keys}");
    }
}
