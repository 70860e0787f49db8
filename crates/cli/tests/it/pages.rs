//! Runs every `console` block of the README, the book and the message pages, and compares the output.
//!
//! A block is what a terminal shows: lines that begin with `$ ` are commands (a line that ends with `\` continues), and the
//! lines below are their output, standard error included. A page runs in one shell, in a folder of its own with a copy of
//! `testdata/samples`. A line `(exit code N)` follows a command that does not exit with 0.
//!
//! `SNAPSHOTS=overwrite cargo test -p weighbridge-cli --test it pages::` writes the pages anew.

use snapbox::{Assert, Data};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use weighbridge_testkit::testdata;

/// Separates the outputs of two commands; no output contains it.
const MARK: &str = "\u{1}weighbridge-page";

/// A page, cut at its commands.
struct Page {
    /// Text before each command, and after the last output.
    texts: Vec<String>,
    commands: Vec<String>,
}

impl Page {
    /// Cuts a page at the commands of its `console` blocks; the old output is dropped.
    fn parse(text: &str) -> Self {
        let (mut texts, mut commands) = (vec![String::new()], Vec::<String>::new());
        let mut lines = text.lines();
        let (mut in_block, mut in_output) = (false, false);
        while let Some(line) = lines.next() {
            if in_block && line == "```" {
                (in_block, in_output) = (false, false);
            } else if line == "```console" {
                in_block = true;
            }
            match line.strip_prefix("$ ").filter(|_| in_block) {
                Some(command) => {
                    let mut command = command.to_owned();
                    let last = texts.last_mut().unwrap();
                    writeln!(last, "{line}").unwrap();
                    while command.ends_with('\\') {
                        let next = lines.next().unwrap();
                        writeln!(last, "{next}").unwrap();
                        command = format!("{command}\n{next}");
                    }
                    commands.push(command);
                    texts.push(String::new());
                    in_output = true;
                }
                None if in_output => {}
                None => writeln!(texts.last_mut().unwrap(), "{line}").unwrap(),
            }
        }
        Self { texts, commands }
    }

    /// Runs the commands and returns the page with their output.
    fn run(&self) -> String {
        let folder = tempfile::tempdir().unwrap();
        copy(&testdata("samples"), folder.path());
        let mut script = String::from("exec 2>&1\nstatus=0\n");
        for command in &self.commands {
            // The status of the command before is that of the subshell.
            writeln!(script, "(exit $status)\n{command}\nstatus=$?\nprintf '%s %s\\n' '{MARK}' $status")
                .unwrap();
        }
        let program = Path::new(env!("CARGO_BIN_EXE_weighbridge"));
        let path = format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
        let output = Command::new("sh")
            .args(["-c", &script])
            .current_dir(&folder)
            .env_clear()
            .envs([("PATH", path.as_str()), ("LC_ALL", "C.UTF-8"), ("COLUMNS", "100"), ("HOME", ".")])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let output =
            String::from_utf8_lossy(&output.stdout).replace(folder.path().to_str().unwrap(), "/tmp/page");
        let mut outputs = output.split(MARK);
        let mut page = String::new();
        let mut out = outputs.next().unwrap_or_default().to_owned();
        for (place, text) in self.texts.iter().enumerate() {
            page.push_str(text);
            if place == self.commands.len() {
                break;
            }
            let after = outputs.next().unwrap_or(" ?\n");
            let (status, rest) = after.split_once('\n').unwrap();
            let status = status.trim();
            for line in out.lines() {
                writeln!(page, "{}", without_times(line.trim_end())).unwrap();
            }
            if status != "0" {
                writeln!(page, "(exit code {status})").unwrap();
            }
            out = rest.to_owned();
        }
        page
    }
}

/// Replaces the time in `in 0.12 s` at the end of a line.
fn without_times(line: &str) -> String {
    let is_time = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit() || c == '.');
    match line.strip_suffix(" s").and_then(|line| line.rsplit_once(" in ")) {
        Some((before, time)) if is_time(time) => format!("{before} in 0.01 s"),
        _ => line.to_owned(),
    }
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            fs::create_dir(&target).unwrap();
            copy(&entry.path(), &target);
        } else if entry.file_name() != "README.md" {
            fs::copy(entry.path(), &target).unwrap();
        }
    }
}

/// The Markdown files below `folder`, sorted.
fn pages_below(folder: &Path) -> Vec<PathBuf> {
    let mut pages = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages.extend(pages_below(&path));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
    pages.sort();
    pages
}

/// Compares all pages, and returns the number of their commands.
fn check(pages: &[PathBuf]) -> usize {
    let mut commands = 0;
    for path in pages {
        let page = Page::parse(&fs::read_to_string(path).unwrap());
        if page.commands.is_empty() {
            continue;
        }
        commands += page.commands.len();
        Assert::new().action_env("SNAPSHOTS").eq(page.run(), Data::read_from(path, None).raw());
    }
    commands
}

fn root() -> PathBuf {
    testdata("samples").ancestors().nth(2).unwrap().to_owned()
}

#[test]
fn the_readme_shows_real_output() {
    assert!(check(&[root().join("README.md")]) >= 8);
}

#[test]
fn the_book_shows_real_output() {
    assert!(check(&pages_below(&root().join("docs/src"))) >= 60);
}

#[test]
fn messages_read_as_reviewed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/messages");
    assert!(check(&pages_below(&folder)) >= 150);
}

#[test]
fn pages_are_cut_at_their_commands() {
    let page = Page::parse("a\n```console\n$ echo x \\\n  y\nold\n$ false\n```\nb\n```text\n$ no\n```\n");
    assert_eq!(page.commands, ["echo x \\\n  y", "false"]);
    assert_eq!(
        page.run(),
        "a\n```console\n$ echo x \\\n  y\nx y\n$ false\n(exit code 1)\n```\nb\n```text\n$ no\n```\n"
    );
    assert_eq!(without_times("wrote a in 0.12 s"), "wrote a in 0.01 s");
}

/// Returns the targets of Markdown links outside of code.
fn links(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut in_code = false;
    for line in page.lines() {
        in_code ^= line.trim_start().starts_with("```");
        if in_code || line.starts_with("    ") {
            continue;
        }
        // Text between backticks is code.
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("``");
        let mut rest = prose.as_str();
        while let Some((_, after)) = rest.split_once("](") {
            let Some((target, behind)) = after.split_once(')') else { break };
            found.push(target.to_owned());
            rest = behind;
        }
    }
    found
}

/// Returns the anchors of the headings of a page, as GitHub and mdBook name them.
fn anchors(page: &str) -> Vec<String> {
    let headings = page.lines().filter(|line| line.starts_with('#'));
    let slug = |line: &str| {
        let text = line.trim_start_matches('#').trim().to_lowercase();
        let kept = text.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(slug).collect()
}

#[test]
fn links_lead_to_files_and_headings() {
    let mut pages = pages_below(&root().join("docs/src"));
    let names = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"];
    pages.extend(names.map(|name| root().join(name)));
    pages.extend(pages_below(&root().join("crates")).into_iter().filter(|path| path.ends_with("README.md")));
    let mut dead = Vec::new();
    for page in &pages {
        let text = fs::read_to_string(page).unwrap();
        for link in links(&text).iter().filter(|link| !link.contains("://") && !link.starts_with("mailto:")) {
            let (file, anchor) =
                link.split_once('#').map_or((link.as_str(), None), |(file, anchor)| (file, Some(anchor)));
            let target = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            let is_there = match anchor {
                _ if !target.exists() => false,
                None => true,
                Some(anchor) => {
                    anchors(&fs::read_to_string(&target).unwrap()).iter().any(|own| own == anchor)
                }
            };
            if !is_there {
                dead.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(dead.is_empty(), "{}", dead.join("\n"));
}

#[test]
fn the_summary_lists_every_page_of_the_book() {
    let book = root().join("docs/src");
    let listed: Vec<PathBuf> = links(&fs::read_to_string(book.join("SUMMARY.md")).unwrap())
        .iter()
        .map(|link| book.join(link))
        .collect();
    let missing: Vec<_> = pages_below(&book)
        .into_iter()
        .filter(|page| !page.ends_with("SUMMARY.md") && !listed.contains(page))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}
