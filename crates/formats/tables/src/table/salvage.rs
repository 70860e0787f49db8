//! Salvage of a table that is decoded block by block: the rows before the first unreadable one.

use weighbridge_core::checkpoint::{
    Attributes, Damage, Extent, Lost, MemoryRowNames, RowNameList, TensorEntry, Value,
};
use weighbridge_core::error::{Error, Result};
use weighbridge_io::source::to_usize;

/// Target number of bytes read at once.
const STEP: u64 = 64 << 10;

/// Returns the rows before the first unreadable one, with their names if readable, and the loss.
/// `None` if no row is intact.
///
/// # Errors
/// Errors unrelated to the file.
pub(crate) fn rows_before(entry: &TensorEntry, error: &Error) -> Result<Option<(TensorEntry, Lost)>> {
    let (&[rows, columns], [extent]) = (entry.shape.dims(), entry.extents.as_slice()) else {
        return Ok(None);
    };
    let row_bytes = columns.saturating_mul(entry.stored.size().unwrap_or(1) as u64).max(1);
    let at_once = (STEP / row_bytes).max(1);
    let mut buffer = vec![0; to_usize(STEP)?];
    let mut whole = 0;
    while whole < rows {
        // If the next rows cannot be read together, some of them may be readable one by one.
        let mut take = at_once.min(rows - whole);
        while take > 0 {
            let (start, len) = (whole.saturating_mul(row_bytes), take.saturating_mul(row_bytes));
            match read_all(extent, start, len, &mut buffer) {
                Ok(()) => break,
                Err(error) if !Damage::is(&error) => return Err(error),
                Err(_) => take /= 2,
            }
        }
        if take == 0 {
            break;
        }
        whole += take;
    }
    if whole == 0 {
        return Ok(None);
    }
    let mut cut = entry.rows(0..whole)?;
    cut.row_names = match &entry.row_names {
        None => None,
        Some(row_names) => match row_names.read() {
            Ok(list) => {
                let mut first = RowNameList::new();
                list.iter().take(to_usize(whole)?).for_each(|name| first.push(name));
                Some(MemoryRowNames::shared(row_names.label(), first))
            }
            Err(error) if Damage::is(&error) => None,
            Err(error) => return Err(error),
        },
    };
    cut.attributes
        .insert(Attributes::SALVAGED_ROWS.to_owned(), Value::Text(format!("0 to {whole} of {rows}")));
    Ok(Some((cut, Lost::new(format_args!("(rows {whole} to {rows} of {})", entry.name()), error))))
}

/// Reads a range of an extent in steps: a row may claim to be longer than memory.
fn read_all(extent: &Extent, start: u64, len: u64, buffer: &mut [u8]) -> Result<()> {
    let mut done = 0;
    while done < len {
        let step = to_usize((len - done).min(buffer.len() as u64))?;
        let place = extent.offset.saturating_add(start).saturating_add(done);
        extent.source.read_at(place, &mut buffer[..step])?;
        done += step as u64;
    }
    Ok(())
}
