//! Description of a model: metadata, inputs and outputs.

use crate::read::model_type;
use crate::tree::{Message, Plain, varints};
use weighbridge_core::checkpoint::{Metadata, Name, Value};
use weighbridge_core::error::Result;
use weighbridge_core::tensor::DType;

/// Metadata key of the version of the format.
pub(crate) const VERSION: &str = "specification_version";
/// Metadata key of the texts that a user sets.
const USER_DEFINED: &str = "user_defined";
/// Metadata keys with a field of their own.
const TEXTS: [(&str, &str); 4] = [
    ("shortDescription", "description"),
    ("versionString", "version"),
    ("author", "author"),
    ("license", "license"),
];
/// Key of a user with the version of the library that converted the model.
const WRITER: &str = "com.github.apple.coremltools.version";
/// Memory of an entry, besides its texts.
const ENTRY: u64 = 200;

/// Sets the metadata of a model.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`] for malformed lists; [`weighbridge_core::Kind::Limit`].
pub(crate) fn metadata(model: &Message<'_>, metadata: &mut Metadata) -> Result<()> {
    let budget = &model.file.budget;
    metadata.set(VERSION, Value::I64(model.number("specificationVersion").cast_signed()));
    let text = |text: &str| -> Result<Value> {
        budget.take_memory(ENTRY + text.len() as u64)?;
        Ok(Value::Text(text.to_owned()))
    };
    if let Some(description) = model.message("description") {
        if let Some(own) = description.message("metadata") {
            for (field, key) in TEXTS {
                if !own.text(field).is_empty() {
                    metadata.set(key, text(own.text(field))?);
                }
            }
            let mut entries = Vec::new();
            for entry in own.messages("userDefined") {
                budget.take_memory(ENTRY + entry.text("key").len() as u64)?;
                entries.push((Name::from(entry.text("key")), text(entry.text("value"))?));
            }
            if !entries.is_empty() {
                metadata.set(USER_DEFINED, Value::Map(entries));
            }
        }
        for field in ["predictedFeatureName", "predictedProbabilitiesName", "defaultFunctionName"] {
            if !description.text(field).is_empty() {
                metadata.set(field, text(description.text(field))?);
            }
        }
        for field in ["input", "output", "state", "trainingInput"] {
            let list = features(&description, field)?;
            if !list.is_empty() {
                metadata.set(field, Value::Map(list));
            }
        }
        let mut functions = Vec::new();
        for function in description.messages("functions") {
            let mut ports = Vec::new();
            for field in ["input", "output", "state"] {
                budget.take_memory(ENTRY)?;
                ports.push((Name::from(field), Value::Map(features(&function, field)?)));
            }
            budget.take_memory(ENTRY + function.text("name").len() as u64)?;
            functions.push((Name::from(function.text("name")), Value::Map(ports)));
        }
        if !functions.is_empty() {
            metadata.set("functions", Value::Map(functions));
        }
    }
    if let Some((_, content)) = model_type(model)
        && let Some(labels) = labels(&content)?
    {
        metadata.set("class_labels", labels);
    }
    Ok(())
}

/// Returns the labels of the classes of a classifier.
fn labels(content: &Message<'_>) -> Result<Option<Value>> {
    let mut labels = Vec::new();
    for list in content.messages("stringClassLabels") {
        for label in list.texts("vector") {
            content.file.budget.take_memory(ENTRY + label.len() as u64)?;
            labels.push(Value::Text(label.to_owned()));
        }
    }
    for list in content.messages("int64ClassLabels") {
        for label in list.numbers("vector")? {
            content.file.budget.take_memory(ENTRY)?;
            labels.push(Value::I64(label.cast_signed()));
        }
    }
    Ok((!labels.is_empty()).then_some(Value::List(labels)))
}

/// Returns the inputs or outputs of a model, or those of its default function.
pub(crate) fn ports<'a>(
    model: &Message<'a>,
    list: &'static str,
) -> impl Iterator<Item = Message<'a>> + use<'a> {
    let description = model.message("description");
    let default = description.and_then(|description| {
        let name = description.text("defaultFunctionName");
        description.messages("functions").find(|function| function.text("name") == name)
    });
    let has_own =
        description.is_some_and(|own| own.messages("input").chain(own.messages("output")).next().is_some());
    let from = if has_own { description } else { default };
    from.into_iter().flat_map(move |from| from.messages(list))
}

/// Returns the writer of a model, if it is stated.
pub(crate) fn writer(model: &Message<'_>) -> Option<String> {
    let metadata = model.message("description")?.message("metadata")?;
    let entry = metadata.messages("userDefined").find(|entry| entry.text("key") == WRITER)?;
    Some(format!("coremltools {}", entry.text("value")))
}

fn features(description: &Message<'_>, list: &str) -> Result<Vec<(Name, Value)>> {
    let mut features = Vec::new();
    for feature in description.messages(list) {
        let kind = kind(&feature)?;
        let bytes = feature.text("name").len() + kind.len();
        description.file.budget.take_memory(ENTRY + bytes as u64)?;
        features.push((Name::from(feature.text("name")), Value::Text(kind)));
    }
    Ok(features)
}

/// Returns the type of an input or output in words: `multiArray FLOAT32 [1, 3]`.
fn kind(feature: &Message<'_>) -> Result<String> {
    let Some(own) = feature.message("type") else { return Ok("unknown".to_owned()) };
    let found = own.fields().filter_map(|(field, value)| match value {
        Plain::Message(inner) => Some((field.name, inner)),
        _ => None,
    });
    let Some((name, inner)) = found.last() else { return Ok("unknown".to_owned()) };
    let mut text = name.strip_suffix("Type").unwrap_or(name).to_owned();
    let array = inner.message("arrayType").unwrap_or(inner);
    if array.name() == "ArrayFeatureType" {
        let number = array.number("dataType");
        let word = feature.file.schema.word("ArrayFeatureType.ArrayDataType", number);
        let word = word.map_or_else(|| number.to_string(), str::to_owned);
        let shape = array.numbers("shape")?.into_iter().map(u64::cast_signed).collect::<Vec<_>>();
        text = format!("{text} {word} {shape:?}");
    } else if inner.name() == "ImageFeatureType" {
        let number = inner.number("colorSpace");
        let word = feature.file.schema.word("ImageFeatureType.ColorSpace", number).unwrap_or("unknown");
        let [width, height] = ["width", "height"].map(|size| inner.number(size).cast_signed());
        text = format!("{text} {word} {width} x {height}");
    } else if let Some((key, _)) = inner.fields().find(|(field, _)| field.name.ends_with("Type")) {
        text = format!("{text} {}", key.name);
    }
    if own.number("isOptional") != 0 {
        text.push_str(" (optional)");
    }
    Ok(text)
}

/// Returns dtype and shape of an input or output that is an array.
pub(crate) fn array(feature: &Message<'_>) -> Result<(Option<DType>, Option<Vec<i64>>)> {
    let Some(array) = feature.message("type").and_then(|kind| kind.message("multiArrayType")) else {
        return Ok((None, None));
    };
    let dtype = match feature.file.schema.word("ArrayFeatureType.ArrayDataType", array.number("dataType")) {
        Some("FLOAT32") => Some(DType::F32),
        Some("DOUBLE") => Some(DType::F64),
        Some("INT32") => Some(DType::I32),
        Some("FLOAT16") => Some(DType::F16),
        Some("INT8") => Some(DType::I8),
        _ => None,
    };
    let mut shape = Vec::new();
    for range in array.ranges("shape") {
        shape.extend(varints(array.file, range)?.into_iter().map(u64::cast_signed));
    }
    Ok((dtype, Some(shape)))
}
