//! Column types described by a pickle, which pyarrow loads when it reads the schema.

use arrow_schema::{DataType, Field, Schema};
use weighbridge_core::text::escape;
use weighbridge_scan::Scan;

/// Metadata key of the extension type of a column.
const KEY: &str = "ARROW:extension:name";
/// Extension types of pyarrow with pickled parameters.
const PICKLED: &[&str] = &["arrow.py_extension_type"];

/// Reports every column with a pickled type, including nested columns.
pub(crate) fn judge(schema: &Schema, scan: &mut Scan) {
    let mut open: Vec<&Field> = schema.fields().iter().map(|field| &**field).collect();
    while let Some(field) = open.pop() {
        if field.metadata().get(KEY).is_some_and(|name| PICKLED.contains(&name.as_str())) {
            let text = format!("the type of column {} is a pickle", escape(field.name()));
            scan.push("arrow-pickled-type", text);
        }
        match field.data_type() {
            DataType::List(inner)
            | DataType::LargeList(inner)
            | DataType::ListView(inner)
            | DataType::LargeListView(inner)
            | DataType::FixedSizeList(inner, _)
            | DataType::Map(inner, _) => open.push(inner),
            DataType::Struct(fields) => open.extend(fields.iter().map(|field| &**field)),
            DataType::Union(fields, _) => open.extend(fields.iter().map(|(_, field)| &**field)),
            DataType::RunEndEncoded(ends, values) => open.extend([&**ends, &**values]),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::sync::Arc;

    #[test]
    fn reports_pickled_types_of_nested_columns() {
        let odd = |name: &str, of: &str| {
            let metadata = HashMap::from([(KEY.to_owned(), of.to_owned())]);
            Field::new(name, DataType::Binary, true).with_metadata(metadata)
        };
        let inner = DataType::List(Arc::new(odd("item", PICKLED[0])));
        let schema = Schema::new(vec![odd("a", "arrow.json"), Field::new("b", inner, true)]);
        let mut scan = Scan::default();
        judge(&schema, &mut scan);
        let texts: Vec<_> = scan.findings.iter().map(|f| (f.code.as_str(), f.text.as_str())).collect();
        assert_eq!(texts, [("arrow-pickled-type", "the type of column item is a pickle")]);
    }
}
