//! What `torch.save` writes: a pickle and the storages that it refers to, in a zip archive or in
//! the legacy form.
