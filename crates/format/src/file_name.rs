//! File names derived from tensor names.

/// Maximum bytes of a file name; file systems allow 255.
const MAX_LEN: usize = 200;

/// Converts a tensor name to a file name valid on any system: letters, digits, `_`, `-` and `.` stay, any other byte becomes `%`
/// and two hexadecimal digits.
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
        if file.len() > MAX_LEN {
            break;
        }
    }
    file
}
