//! Programs as protobuf messages: `__model__` and `.pdmodel`.
