//! Standard output and standard error: text, in colour on terminals, or JSON.

use crate::Outcome;
use crate::args::Color;
use crate::streams::{hide_spools, without_spools};
use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Effects, Style};
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter};
use std::io::{self, BufWriter, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use weighbridge::checkpoint::{Loss, Note};
use weighbridge::finding::{Finding, Severity, Verdict};
use weighbridge::text::{escape, first_and_more, is_escaped};
use weighbridge::{Error, NoteCode};

/// Style of headings.
pub(crate) const HEADING: Style = Style::new().effects(Effects::BOLD);
/// Style of secondary text.
pub(crate) const DIM: Style = Style::new().effects(Effects::DIMMED);
/// Maximum rows of one kind in text, since a file may cause millions of them. `ls`, `stats`, `diff --all` and
/// `verify --account` print all.
pub(crate) const MAX_ROWS: usize = 1000;
/// Maximum groups of losses in text.
const MAX_GROUPS: usize = 20;
/// Maximum subjects of one group of losses in text.
const SHOWN_SUBJECTS: usize = 3;
/// Maximum further places of one finding in text.
const PLACES: usize = 2;
pub(crate) const BAD: Style = AnsiColor::Red.on_default().effects(Effects::BOLD);
const GOOD: Style = AnsiColor::Green.on_default().effects(Effects::BOLD);
pub(crate) const ODD: Style = AnsiColor::Yellow.on_default().effects(Effects::BOLD);

/// True once a JSON document is begun.
static BEGUN: AtomicBool = AtomicBool::new(false);

/// Returns true once a JSON document is begun: nothing may follow it.
pub(crate) fn document_has_begun() -> bool {
    BEGUN.load(Ordering::SeqCst)
}

/// Output of the command.
pub(crate) struct Output {
    /// True with `--json`.
    pub json: bool,
    /// Outcome if the output pipe is closed early: a verb sets it before it prints.
    pub outcome: Outcome,
    choice: ColorChoice,
    out: BufWriter<Box<dyn Write>>,
}

impl Output {
    pub(crate) fn new(json: bool, color: Color) -> Self {
        let choice = match color {
            Color::Auto => ColorChoice::Auto,
            Color::Always => ColorChoice::Always,
            Color::Never => ColorChoice::Never,
        };
        let stdout = Box::new(AutoStream::new(io::stdout(), choice));
        Self { json, outcome: Outcome::Done, choice, out: BufWriter::with_capacity(64 << 10, stdout) }
    }

    /// Redirects the output to standard error, since standard output is for a model.
    pub(crate) fn use_stderr(&mut self) {
        let stderr = Box::new(AutoStream::new(io::stderr(), self.choice));
        self.out = BufWriter::with_capacity(64 << 10, stderr);
    }

    /// Discards the text that is not flushed.
    pub(crate) fn clear(&mut self) {
        let sink = BufWriter::new(Box::new(io::sink()) as Box<dyn Write>);
        let (out, _) = std::mem::replace(&mut self.out, sink).into_parts();
        self.out = BufWriter::with_capacity(64 << 10, out);
    }

    /// Returns an output that discards everything.
    pub(crate) fn discard() -> Self {
        let out = BufWriter::new(Box::new(io::sink()) as Box<dyn Write>);
        Self { json: false, outcome: Outcome::Done, choice: ColorChoice::Never, out }
    }

    /// Prints the JSON document.
    pub(crate) fn document(&mut self, json: &impl Serialize) -> io::Result<()> {
        BEGUN.store(true, Ordering::SeqCst);
        json.serialize(&mut serde_json::Serializer::with_formatter(&mut self.out, Escaped::default()))?;
        writeln!(self.out)
    }

    /// Prints the first [`MAX_ROWS`] of `rows` by `each`, and the number of the rest.
    pub(crate) fn first_rows<T>(
        &mut self,
        rows: impl IntoIterator<Item = T>,
        mut each: impl FnMut(&mut Self, T) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut rows = rows.into_iter();
        for row in rows.by_ref().take(MAX_ROWS) {
            each(self, row)?;
        }
        self.more_rows(rows.count(), "")
    }

    /// Prints the number of omitted rows, if there are any, and `what` they are.
    pub(crate) fn more_rows(&mut self, count: usize, what: &str) -> io::Result<()> {
        if count == 0 {
            return Ok(());
        }
        let (count, gap) = (human_count(count as u64), if what.is_empty() { "" } else { " " });
        writeln!(self.out, "{DIM}... and {count} more{gap}{what}: see --json{DIM:#}")
    }

    /// Prints the notes about a file.
    pub(crate) fn notes(&mut self, notes: &[Note]) -> io::Result<()> {
        self.first_rows(notes, |output, note| {
            writeln!(output, "{ODD}note{ODD:#} {}: {}", note.code, escape(&note.text))
        })
    }

    /// Prints notes that matter before the result is used. Notes that losses repeat are omitted.
    pub(crate) fn warn_of(&mut self, notes: &[Note]) -> io::Result<()> {
        let shown = notes.iter().filter(|note| !note.omission && note.code != NoteCode::NamesJoined);
        self.first_rows(shown, |output, note| {
            output.warning("note", &format!("{}: {}", note.code, note.text))
        })
    }

    /// Prints notes and losses of a plan before it runs; nothing with `--json`.
    pub(crate) fn warn_before(&mut self, notes: &[Note], losses: &[Loss]) -> io::Result<()> {
        if self.json {
            return Ok(());
        }
        self.warn_of(notes)?;
        self.losses(losses)?;
        self.flush()
    }

    /// Prints the names of tensors that are not in the target.
    fn lost_tensors(&mut self, losses: &[&Loss]) -> io::Result<()> {
        if losses.is_empty() {
            return Ok(());
        }
        let mut text = String::new();
        let mut named = losses.iter().take(MAX_ROWS).peekable();
        // The numbers of an error differ from tensor to tensor; JSON has them.
        fn reason(loss: &Loss) -> &str {
            let detail: &str = &loss.detail;
            detail.split_once("; expected: ").map_or(detail, |(reason, _)| reason)
        }
        while let Some(loss) = named.next() {
            text.push_str(&format!("`{}`", loss.subject));
            match named.peek() {
                Some(next) if reason(next) == reason(loss) => text.push_str(", "),
                Some(_) => text.push_str(&format!(" ({}), ", reason(loss))),
                None => text.push_str(&format!(" ({})", reason(loss))),
            }
        }
        if losses.len() > MAX_ROWS {
            let more = human_count((losses.len() - MAX_ROWS) as u64);
            text.push_str(&format!(", and {more} more; --json lists them all"));
        }
        self.warning("loss", &format!("{} skipped: {text}", human_counted(losses.len(), "tensor")))
    }

    /// Prints losses: dropped tensors by name, then the others in groups. JSON lists each.
    pub(crate) fn losses(&mut self, losses: &[Loss]) -> io::Result<()> {
        // Rows of a tensor are named in brackets.
        let is_name =
            |loss: &Loss| loss.subject != Loss::UNKNOWN_TENSORS && !loss.subject.starts_with("(rows ");
        let (tensors, losses): (Vec<&Loss>, Vec<&Loss>) =
            losses.iter().partition(|loss| loss.is_tensor() && is_name(loss));
        self.lost_tensors(&tensors)?;
        let mut groups: Vec<(&Loss, Vec<&str>)> = Vec::new();
        for &loss in &losses {
            let full = groups.len() >= MAX_GROUPS;
            match groups.iter_mut().find(|(first, _)| first.code == loss.code && first.detail == loss.detail)
            {
                Some((_, subjects)) => subjects.push(&loss.subject),
                None if !full => groups.push((loss, vec![&loss.subject])),
                None => {}
            }
        }
        let shown: usize = groups.iter().map(|(_, subjects)| subjects.len()).sum();
        for (loss, subjects) in groups {
            let names = first_and_more(subjects, SHOWN_SUBJECTS);
            // The subject of an omission is the code of its note.
            let of_code = if loss.code == "omitted" { names } else { format!("{}: {names}", loss.code) };
            self.warning("loss", &format!("{of_code}: {}", loss.detail))?;
        }
        if shown < losses.len() {
            let more = human_count((losses.len() - shown) as u64);
            self.warning("loss", &format!("and {more} more; --json lists them all"))?;
        }
        Ok(())
    }

    /// Prints a finding, then its place and hint, indented.
    pub(crate) fn finding(&mut self, finding: &Finding) -> io::Result<()> {
        self.finding_again(finding, &[])
    }

    /// Prints a finding that repeats at the places of `others`.
    pub(crate) fn finding_again(&mut self, finding: &Finding, others: &[&Finding]) -> io::Result<()> {
        let style = match finding.severity {
            Severity::Error => BAD,
            Severity::Unchecked | Severity::Warning => ODD,
            Severity::Note => DIM,
        };
        let word = finding.severity.as_str();
        let times = if others.is_empty() { String::new() } else { format!(", {} times", others.len() + 1) };
        writeln!(self.out, "{style}{word:<9}{style:#} {}{times}: {}", finding.code, escape(&finding.text))?;
        let offset_of = |finding: &Finding| finding.offset.map(|o| format!("{o} (0x{o:x})"));
        let offset = offset_of(finding);
        for (label, text) in [
            ("tensor", finding.tensor.as_deref()),
            ("file", finding.file.as_deref()),
            ("member", finding.member.as_deref()),
            ("offset", offset.as_deref()),
            ("hint", finding.hint.as_deref()),
        ] {
            if let Some(text) = text {
                writeln!(self.out, "          {label:<8} {}", without_spools(&escape(text)))?;
            }
        }
        for other in others.iter().take(PLACES) {
            let parts = [other.tensor.clone(), other.member.clone(), offset_of(other)];
            let place = parts.into_iter().flatten().collect::<Vec<_>>().join(" at ");
            writeln!(self.out, "          {:<8} {}", "also", escape(&place))?;
        }
        if others.len() > PLACES {
            let more = human_counted(others.len() - PLACES, "more place");
            writeln!(self.out, "          {:<8} {more}, listed by --json", "also")?;
        }
        Ok(())
    }

    /// Prints a warning.
    pub(crate) fn warning(&mut self, what: &str, text: &str) -> io::Result<()> {
        writeln!(self.out, "{ODD}{what}{ODD:#} {}", escape(text))
    }

    /// Prints an error: text to standard error, JSON to standard output.
    pub(crate) fn error(&mut self, error: &Error) {
        if self.json {
            let mut document = serde_json::json!({ "error": error.to_json() });
            hide_spools(&mut document);
            let _ = self.document(&document);
            let _ = self.flush();
            return;
        }
        let _ = self.flush();
        self.print_error(error);
    }

    /// Prints an error to standard error.
    pub(crate) fn print_error(&self, error: &Error) {
        let mut stderr = AutoStream::new(io::stderr(), self.choice);
        let text = without_spools(&error.to_string());
        let _ = writeln!(stderr, "{BAD}error[{}]{BAD:#}: {text}", error.code());
    }
}

/// Returns the coloured word for a verdict.
pub(crate) fn verdict(verdict: Verdict) -> String {
    let (style, word) = match verdict {
        Verdict::Sound => (GOOD, "sound"),
        Verdict::CouldNotTell => (ODD, "could not tell"),
        Verdict::Unsound => (BAD, "unsound"),
    };
    format!("{style}{word}{style:#}")
}

/// Returns the coloured word for the verdict of a scan.
pub(crate) fn scan_verdict(verdict: Verdict) -> String {
    let (style, word) = match verdict {
        Verdict::Sound => (GOOD, "clean"),
        Verdict::CouldNotTell => (ODD, "could not tell"),
        Verdict::Unsound => (BAD, "problems found"),
    };
    format!("{style}{word}{style:#}")
}

/// Returns the coloured word for a file that runs code when it is loaded.
pub(crate) fn dangerous() -> String {
    format!("{BAD}DANGEROUS{BAD:#}")
}

/// Indented JSON that escapes characters which move the cursor, hide or reorder text on a terminal.
#[derive(Default)]
struct Escaped<'a>(PrettyFormatter<'a>);

macro_rules! as_pretty {
    ($($name:ident($($argument:ident: $of:ty),*);)*) => {
        $(fn $name<W: ?Sized + Write>(&mut self, to: &mut W, $($argument: $of),*) -> io::Result<()> {
            self.0.$name(to, $($argument),*)
        })*
    };
}

impl Formatter for Escaped<'_> {
    as_pretty! {
        begin_array();
        end_array();
        begin_array_value(first: bool);
        end_array_value();
        begin_object();
        end_object();
        begin_object_key(first: bool);
        begin_object_value();
        end_object_value();
    }

    fn write_string_fragment<W: ?Sized + Write>(&mut self, to: &mut W, text: &str) -> io::Result<()> {
        let mut shown = 0;
        for (at, c) in text.char_indices().filter(|&(_, c)| is_escaped(c)) {
            self.0.write_string_fragment(to, &text[shown..at])?;
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(to, "\\u{unit:04x}")?;
            }
            shown = at + c.len_utf8();
        }
        self.0.write_string_fragment(to, &text[shown..])
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Formats a number of bytes: `1.5 MiB`.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn human_bytes(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut unit = "B";
    for next in ["KiB", "MiB", "GiB", "TiB", "PiB"] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") }
}

/// Formats a number with thousands separators: `1,234,567`.
pub(crate) fn human_count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a number and its noun: `1 tensor`, `1,234 tensors`.
pub(crate) fn human_counted(n: impl TryInto<u64>, one: &str) -> String {
    let n = n.try_into().unwrap_or(u64::MAX);
    format!("{} {one}{}", human_count(n), if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_escapes_control_and_bidi_characters() {
        let json = serde_json::json!({ "a\u{202e}b": "\u{7f}\u{9b}31m \u{e0041}\n", "plain": ["größe", 1] });
        let mut text = Vec::new();
        let to = &mut serde_json::Serializer::with_formatter(&mut text, Escaped::default());
        json.serialize(to).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains(r#""a\u202eb": "\u007f\u009b31m \udb40\udc41\n""#), "{text}");
        assert!(text.contains("größe"));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), json);
    }

    #[test]
    fn formats_numbers() {
        assert_eq!(human_bytes(1023), "1023 B");
        assert_eq!(human_bytes(1536), "1.5 KiB");
        assert_eq!(human_bytes(u64::MAX), "16384.0 PiB");
        assert_eq!(human_count(1_234_567), "1,234,567");
        assert_eq!(human_count(12), "12");
        assert_eq!(
            [0u64, 1, 1000].map(|n| human_counted(n, "tensor")),
            ["0 tensors", "1 tensor", "1,000 tensors"]
        );
    }
}
