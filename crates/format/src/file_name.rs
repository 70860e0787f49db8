//! Names of tensors as names of files.

/// The longest name of a tensor that a file is named after, in bytes; file systems allow 255.
const LONGEST: usize = 200;

/// A name of a tensor as that of a file on any system: letters, digits, `_`, `-` and `.` stay, all
/// else is `%` and the hexadecimal number of the byte.
pub fn tidy(name: String) -> String {
    let mut file = String::with_capacity(name.len());
    for (place, c) in name.char_indices() {
        let stays = c.is_alphanumeric() || matches!(c, '_' | '-') || (c == '.' && place > 0);
        if stays {
            file.push(c);
        } else {
            let mut utf8 = [0; 4];
            c.encode_utf8(&mut utf8).bytes().for_each(|byte| file.push_str(&format!("%{byte:02X}")));
        }
        if file.len() > LONGEST {
            break;
        }
    }
    file
}
