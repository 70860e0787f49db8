//! Imports: their names, and the names that Python shares as one object.

use super::super::super::graph::ObjectId;
use super::super::names::{self, ModuleNames};
use super::super::{opcode as op, unsupported};
use super::{Special, Task, Writer};
use weighbridge_core::error::Result;

impl Writer<'_> {
    /// Fetches a temporary object from the memo, or writes and memoizes it.
    pub(super) fn special(&mut self, key: Special, make: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        if let Some(&place) = self.special.get(&key) {
            self.get(place);
            return Ok(());
        }
        make(self)?;
        let place = self.next_place()?;
        self.special.insert(key, place);
        Ok(())
    }

    pub(super) fn special_global(&mut self, module: &'static str, name: &'static str) -> Result<()> {
        self.special(Special::Global(module, name), |this| {
            if this.protocol < 4 {
                return this.global_line(module, name, ModuleNames::Python3);
            }
            for part in [module, name] {
                this.special(Special::Name(part.into()), |this| this.literal_text(part))?;
            }
            this.out.bytes(&[op::STACK_GLOBAL]);
            Ok(())
        })
    }

    pub(super) fn global(&mut self, id: ObjectId, module: ObjectId, name: ObjectId) -> Result<()> {
        let (Some(module_text), Some(name_text)) = (self.graph.text(module), self.graph.text(name)) else {
            return Err(unsupported("the name of a class or function is too long or not text"));
        };
        if self.protocol < 4 {
            self.global_line(module_text, name_text, self.graph.names)?;
            return self.put(id);
        }
        let (new_module, new_name) = match self.graph.names {
            ModuleNames::Python2 => names::to_python3(module_text, name_text),
            ModuleNames::Python3 => (module_text, name_text),
        };
        if (new_module, new_name) == (module_text, name_text) {
            let tasks = [Task::Save(module), Task::Save(name), Task::Emit(op::STACK_GLOBAL), Task::Put(id)];
            self.then(&tasks);
            return Ok(());
        }
        for part in [new_module, new_name] {
            self.special(Special::Name(part.into()), |this| this.literal_text(part))?;
        }
        self.out.bytes(&[op::STACK_GLOBAL]);
        self.put(id)
    }

    /// Writes module and name as lines, with Python 2 names in protocol 2.
    pub(super) fn global_line(&mut self, module: &str, name: &str, names: ModuleNames) -> Result<()> {
        let (module, name) = match (names, self.protocol) {
            (ModuleNames::Python3, 2) => names::to_python2(module, name),
            (ModuleNames::Python2, 3..) => names::to_python3(module, name),
            _ => (module, name),
        };
        if module.contains('\n') || name.contains('\n') {
            return Err(unsupported("the name of a class or function contains a line break"));
        }
        self.out.bytes(format!("{}{module}\n{name}\n", char::from(op::GLOBAL)).as_bytes());
        Ok(())
    }

    pub(super) fn extension(&mut self, code: i64) -> Result<()> {
        if let Ok(code) = u8::try_from(code) {
            self.out.bytes(&[op::EXT1, code]);
        } else if let Ok(code) = u16::try_from(code) {
            let [low, high] = code.to_le_bytes();
            self.out.bytes(&[op::EXT2, low, high]);
        } else {
            let code = u32::try_from(code).map_err(|_| unsupported("the extension code is too large"))?;
            self.out.bytes(&[op::EXT4]);
            self.out.bytes(&code.to_le_bytes());
        }
        Ok(())
    }
}
