//! Faults of a configuration that upstream finds late or never.

use super::{Config, parameters};
use crate::layout::{is_type_name, plain_path};
use weighbridge_core::finding::Finding;
use weighbridge_core::text::escape;

/// Maximum number of types, and of relations, with individually listed faults.
const MAX_LISTED: usize = 20;

impl Config {
    /// Returns faults and oddities of a parsed configuration: those that upstream finds when
    /// training starts, during training, or never.
    pub fn problems(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        self.of_entities(&mut found);
        self.of_relations(&mut found);
        self.of_training(&mut found);
        self.of_evaluation(&mut found);
        self.of_paths(&mut found);
        found
    }

    fn of_entities(&self, found: &mut Vec<Finding>) {
        for (name, entity) in &self.entities {
            if found.len() >= MAX_LISTED {
                found.push(Finding::unchecked("types-not-checked", "further entity types were not checked"));
                break;
            }
            let shown = escape(name);
            if !is_type_name(name) {
                let text = format!(
                    "invalid entity type name {shown:?}: torch refuses dots, file names cannot contain /"
                );
                found.push(Finding::error("type-name", text));
            }
            if entity.featurized && entity.num_partitions > 1 {
                let text = format!("the entity type {shown} is featurized and partitioned");
                found.push(Finding::warning("featurized-partitioned", text));
            }
        }
        if let Err(error) = self.sides() {
            found.extend(Finding::from_error(&error));
        }
        if self.global_emb && self.dynamic_relations {
            let text = "Cannot have global embs with dynamic rels: training does not start";
            found.push(Finding::error("global-dynamic", text).hint("set global_emb to false"));
        }
        let one = self.entities.iter().all(|(_, entity)| entity.num_partitions <= 1);
        if self.num_machines > 1 && one {
            let text = "distributed training needs partitioned entity types";
            found.push(Finding::error("machines", text));
        }
    }

    fn of_relations(&self, found: &mut Vec<Finding>) {
        let before = found.len();
        let types = self.by_name();
        let dimension = |name: &str| types.get(name).map(|own| own.dimension.unwrap_or(self.dimension));
        for (index, relation) in self.relations.iter().enumerate() {
            let name = format!("relation {index} ({})", escape(&relation.name));
            if !parameters::is_operator(&relation.operator) {
                let text = format!("{name}: unknown operator {:?}", escape(&relation.operator));
                let hint = format!("use one of {}", parameters::operator_names());
                found.push(Finding::error("operator", text).hint(hint));
            }
            let (lhs, rhs) = (dimension(&relation.lhs), dimension(&relation.rhs));
            if lhs != rhs {
                let (lhs, rhs) = (lhs.unwrap_or(0), rhs.unwrap_or(0));
                let text = format!("{name}: the sides have different dimensions, {lhs} and {rhs}");
                found.push(Finding::error("dimensions-differ", text));
            }
            let odd = |d: Option<u64>| d.is_some_and(|d| d % 2 == 1);
            if relation.operator == "complex_diagonal" && (odd(rhs) || self.dynamic_relations && odd(lhs)) {
                let text = format!("{name}: complex_diagonal needs an even dimension");
                found.push(Finding::error("odd-dimension", text));
            }
            if found.len() >= before + MAX_LISTED {
                let text = "further relations were not checked";
                found.push(Finding::unchecked("relations-not-checked", text));
                break;
            }
        }
    }

    fn of_training(&self, found: &mut Vec<Finding>) {
        if !["dot", "cos", "l2", "squared_l2"].contains(&self.comparator.as_str()) {
            let text = format!("unknown comparator {:?}", escape(&self.comparator));
            found.push(Finding::error("comparator", text).hint("use dot, cos, l2 or squared_l2"));
        }
        if !["ranking", "logistic", "softmax"].contains(&self.loss_fn.as_str()) {
            let text = format!("unknown loss function {:?}", escape(&self.loss_fn));
            found.push(Finding::error("loss-fn", text).hint("use ranking, logistic or softmax"));
        }
        if self.loss_fn == "logistic" && self.comparator == "cos" {
            let text = "logistic loss with cos: scores are limited to -1 to 1";
            found.push(Finding::warning("logistic-cos", text));
        }
        if self.regularization_coef != 0.0 && self.regularizer != "N3" {
            let text = format!("unknown regularizer {:?}", escape(&self.regularizer));
            found.push(Finding::error("regularizer", text).hint("use N3"));
        }
        let plain = |o: &str| ["none", "diagonal", "translation", "complex_diagonal"].contains(&o);
        let other =
            self.relations.iter().find(|r| parameters::is_operator(&r.operator) && !plain(&r.operator));
        if let Some(relation) = other.filter(|_| self.regularization_coef != 0.0) {
            let text = format!("the operator {} cannot be regularized", relation.operator);
            found.push(Finding::error("regularizer", text));
        }
        let all = self.relations.iter().all(|relation| relation.all_negs);
        if self.num_batch_negs == 0 && self.num_uniform_negs == 0 && !all {
            let text = "num_batch_negs and num_uniform_negs are both 0: training has no negatives";
            found.push(Finding::error("no-negatives", text));
        }
        if self.num_batch_negs > 0 && !self.batch_size.is_multiple_of(self.num_batch_negs) {
            let text = format!(
                "batch_size ({}) is not a multiple of num_batch_negs ({}): training does not start",
                self.batch_size, self.num_batch_negs
            );
            found.push(Finding::error("batch-size", text));
        }
        match self.checkpoint_preservation_interval {
            Some(0) => {
                let text = "checkpoint_preservation_interval is 0: training fails after the first iteration";
                found.push(Finding::error("preservation-interval", text).hint("set it to null"));
            }
            Some(interval) if interval < 0 => {
                let text = format!("checkpoint_preservation_interval is {interval}");
                found.push(Finding::warning("preservation-interval", text));
            }
            _ => {}
        }
        if self.verbose > 1 {
            let text = format!("verbose is {}: upstream accepts 0 and 1", self.verbose);
            found.push(Finding::error("verbose", text));
        }
        for (key, value) in [("init_scale", self.init_scale), ("lr", self.lr), ("margin", self.margin)] {
            if !value.is_finite() {
                found.push(Finding::error("not-finite", format!("{key} is {value}")));
            }
        }
    }

    fn of_evaluation(&self, found: &mut Vec<Finding>) {
        if self.eval_num_batch_negs.unwrap_or(0) == 0 {
            let text = "eval_num_batch_negs is null or 0: training fails, also without evaluation";
            found.push(Finding::error("eval-negatives", text));
        }
        if self.eval_fraction > 1.0 {
            let text = format!("eval_fraction is {}, above 1", self.eval_fraction);
            found.push(Finding::error("eval-fraction", text));
        }
    }

    fn of_paths(&self, found: &mut Vec<Finding>) {
        let fixed =
            [("entity_path", Some(&self.entity_path)), ("checkpoint_path", Some(&self.checkpoint_path))];
        let edges = self.edge_paths.iter().map(|path| ("edge_paths", Some(path)));
        for (key, path) in fixed.into_iter().chain([("init_path", self.init_path.as_ref())]).chain(edges) {
            if path.is_some_and(|path| plain_path(path).is_err()) {
                let text = format!("{key} is a URL, which upstream refuses");
                found.push(Finding::warning("url", text));
            }
            if key == "init_path" && path.is_some_and(|path| path == "None") {
                let text = "init_path is the text \"None\", probably from a command-line override";
                found.push(Finding::warning("init-path-none", text));
            }
        }
        if self.edge_paths.is_empty() {
            found.push(Finding::warning("no-edges", "edge_paths is empty: training has no edges"));
        }
    }
}
