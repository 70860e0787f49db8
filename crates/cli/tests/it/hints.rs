//! What the command says to slips: the code, and what was meant. And words that mean the same everywhere.

use crate::support::{
    Folder, complaint, error, golden, json, names, of_tensors, ok, refused, text, weighbridge,
};
use std::fs;
use std::path::Path;

fn hint(words: &[&str]) -> String {
    let error = error(words);
    error["hint"].as_str().unwrap_or_else(|| panic!("{words:?}: {error}")).to_owned()
}

#[test]
fn every_error_shows_its_code() {
    let folder = Folder::new();
    let model = folder.model("a.safetensors");
    for (words, code) in [
        (&["show", &model, "w9"][..], "no-such-tensor"),
        (&["show", &folder.path("none"), "w1"], "not-found"),
        (&["show", &model], "name-missing"),
        (&["shows"], "bad-arguments"),
    ] {
        let output = weighbridge(words);
        assert_eq!(output.status.code(), Some(2));
        let said = complaint(&output);
        assert!(said.starts_with(&format!("error[{code}]: ")), "{said}");
    }
}

#[test]
fn a_file_in_place_of_a_verb_hints_at_info() {
    let folder = Folder::new();
    for path in [folder.model("a.safetensors"), folder.path("none.pt")] {
        let error = error(&[&path]);
        assert_eq!(error["message"], format!("`{path}` is not a verb"));
        assert_eq!(error["hint"], format!("try `weighbridge info {path}`"));
    }
    assert_eq!(error(&["infos"])["message"], "unrecognized subcommand 'infos'");
}

#[test]
fn options_of_other_verbs_are_named_with_their_verbs() {
    let tip = |words: &[&str]| complaint(&weighbridge(words));
    assert!(tip(&["ls", "a.pt", "--cast=f32"]).contains("tip: --cast is an option of convert and edit\n"));
    assert!(tip(&["ls", "a.pt", "--prefer", "last"]).contains("tip: --prefer is an option of merge\n"));
    assert!(tip(&["ls", "a.pt", "--sel", "x"]).contains("a similar argument exists: '--select'"));
}

#[test]
fn tips_of_unknown_options_do_not_lead_away() {
    let tip = |words: &[&str]| complaint(&weighbridge(words));
    let convert = |words: &[&str]| tip(&[&["convert", "a.pt", "b.pt"], words].concat());
    for words in [&["--partitions", "3"][..], &["--partitions=3"]] {
        let said = convert(words);
        assert!(said.contains("tip: use --set partitions=3\n") && !said.contains("--plain"), "{said}");
    }
    assert!(convert(&["--header-padding"]).contains("tip: use --set header_padding=VALUE\n"));
    assert!(tip(&["ls", "a.pt", "--filter", "conv"]).contains("tip: use --select PATTERN\n"));
    for words in
        [&["scan", "a.pt", "--allow", "x"][..], &["ls", "a.pt", "--foo"], &["ls", "a.pt", "--partitions"]]
    {
        let said = tip(words);
        assert!(!said.contains("tip:") && said.contains("Usage: weighbridge "), "{said}");
    }
    assert!(convert(&["--cast", "fc.*=f16"]).contains("tip: edit --cast takes PATTERN=DTYPE"));
}

#[test]
fn unknown_names_hint_at_the_nearest() {
    let folder = Folder::new();
    let (model, more) = (folder.model("a.safetensors"), folder.path("b.safetensors"));
    ok(&["edit", &model, &more, "--rename", "w1=encoder.layer.weight", "--rename", "w2=decoder.layer.bias"]);
    for verb in ["show", "stats"] {
        assert_eq!(hint(&[verb, &model, "w11"]), "did you mean `w1`?");
        assert_eq!(hint(&[verb, &more, "encoder.layr.wieght"]), "did you mean `encoder.layer.weight`?");
        assert_eq!(hint(&[verb, &more, "Decoder"]), "did you mean `decoder.layer.bias`?");
        assert!(hint(&[verb, &model, "qqqqqq"]).starts_with("no name is similar; the first tensors are "));
    }
}

#[test]
fn a_bracket_that_is_not_closed_is_named() {
    let folder = Folder::new();
    let model = folder.model("a.safetensors");
    for open in ["w1[0", "w1[0:2, 1", "w1['a'", "w1 ["] {
        let error = error(&["show", &model, open]);
        assert_eq!((&error["code"], &error["tensor"]), (&"bad-slice".into(), &"w1".into()), "{error}");
        assert!(error["message"].as_str().unwrap().contains("no closing bracket"), "{error}");
    }
    assert_eq!(refused(&["show", &model, "v1[0"]), "no-such-tensor");
}

#[test]
fn groups_as_others_write_them_are_no_names() {
    let folder = Folder::new();
    let (model, target) = (folder.model("a.safetensors"), folder.path("b.safetensors"));
    for (to, sign) in [(r"\1.x", "\\1"), ("$1.x", "$1"), ("${1}.x", "$1")] {
        let rule = format!("(w.)={to}");
        let error = error(&["edit", &model, &target, "--rename-regex", &rule]);
        assert_eq!(error["code"], "bad-template");
        assert_eq!(error["hint"], format!("write {{1}} instead of {sign}"), "{error}");
    }
    assert!(!Path::new(&target).exists());
    let rules = folder.file("rules.toml", "[[rule]]\nrename-regex = \"(w)(\\d)=x\"\n");
    let error = error(&["edit", &model, &target, "--rules", &rules]);
    assert_eq!(error["code"], "bad-toml");
    assert!(error["hint"].as_str().unwrap().contains("single quotes"), "{error}");
}

/// Rules are applied in turn: what one renamed has its new name for the next.
#[test]
fn a_name_that_a_rule_changed_is_told_with_the_new_one() {
    let folder = Folder::new();
    let (model, target) = (folder.model("a.safetensors"), folder.path("b.safetensors"));
    for rule in [&["--transpose", "w1"][..], &["--cast", "w1=f16"], &["--transpose", "w1=1,0"]] {
        let words = [&["edit", &model, &target, "--prefix", "model"], rule].concat();
        let hint = hint(&words);
        assert!(
            hint.starts_with("an earlier rule renamed w1 to model.w1; rules are applied in order"),
            "{hint}"
        );
    }
    let moved = hint(&["edit", &model, &target, "--rename", "w1=x", "--rename-glob", "w1=y"]);
    assert!(moved.starts_with("an earlier rule renamed w1 to x"), "{moved}");
    // What fits no name, old or new, is told as before.
    for (pattern, start) in [
        ("x1", "a pattern must match the whole name"),
        ("model.b1", "without a new order, transpose applies only to matrices"),
    ] {
        let hint = hint(&["edit", &model, &target, "--prefix", "model", "--transpose", pattern]);
        assert!(hint.starts_with(start), "{hint}");
    }
}

/// Help and usage say the name that the examples say, whatever the file is called.
#[cfg(unix)]
#[test]
fn the_command_has_one_name() {
    let folder = Folder::new();
    let other = folder.path("wb2");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_weighbridge"), &other).unwrap();
    let run = |words: &[&str]| std::process::Command::new(&other).args(words).output().unwrap();
    for words in [&["--help"][..], &["diff", "--help"], &["diff"]] {
        let output = run(words);
        let said = text(&output) + &complaint(&output);
        assert!(said.contains("Usage: weighbridge ") && !said.contains("wb2"), "{said}");
    }
}

#[test]
fn a_cast_in_place_is_not_told_to_make_room() {
    let folder = Folder::new();
    // Names of one type are longer than those of another, and here the header has no room for that.
    let data = [0u8; 8];
    let mut header = r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#.to_owned();
    let file = |header: &str| [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &data].concat();
    let tight = folder.file("tight.safetensors", file(&header));
    header.push_str(&" ".repeat(64));
    let roomy = folder.file("roomy.safetensors", file(&header));
    for path in [&tight, &roomy] {
        let before = fs::read(path).unwrap();
        for dtype in ["bf16", "f16", "f64"] {
            let error = error(&["edit", path, "--in-place", "--cast", dtype]);
            assert_eq!(error["code"], "data-would-move", "{error}");
            let hint = error["hint"].as_str().unwrap();
            assert!(hint.contains("--in-place=rewrite") && !hint.contains("header_padding"), "{hint}");
        }
        assert_eq!(fs::read(path).unwrap(), before);
    }
    // Where it is room that is missing, both ways are told.
    let hint = hint(&["edit", &tight, "--in-place", "--rename", "a=a_longer_name"]);
    assert!(hint.contains("--in-place=rewrite") && hint.contains("header_padding"), "{hint}");
    ok(&["edit", &tight, "--in-place=rewrite", "--cast", "bf16"]);
}

#[test]
fn a_form_is_not_guessed_from_an_unknown_extension() {
    let folder = Folder::new();
    let (model, odd) = (folder.model("a.safetensors"), folder.path("b.foo"));
    for verb in [&["edit", &model, &odd, "--rename", "w1=x"][..], &["convert", &model, &odd]] {
        let error = error(verb);
        assert_eq!(error["code"], "unknown-extension", "{error}");
        let hint = error["hint"].as_str().unwrap();
        assert!(hint.contains("--to") && hint.contains(".safetensors") && hint.contains(".npz"), "{hint}");
        assert!(!Path::new(&odd).exists());
        ok(&[verb, &["--to", "safetensors", "-q"]].concat());
        fs::remove_file(&odd).unwrap();
    }
    // No extension is no wish: the form stays. Nor is the one that the source has, or that of a folder.
    ok(&["edit", &model, &folder.path("plain"), "--rename", "w1=x"]);
    let own = folder.path("own.bar");
    fs::copy(&model, &own).unwrap();
    ok(&["edit", &own, &folder.path("new.bar"), "--rename", "w1=x"]);
    assert_eq!(json(&["info", &folder.path("new.bar")])["format"], "safetensors");
    ok(&["shard", &model, &folder.path("v1.0"), "--max-shard-size", "64"]);
    ok(&["edit", &folder.path("v1.0"), &folder.path("v1.1"), "--rename", "w1=x"]);
    assert!(names(&folder.path("v1.1")).contains(&"x".to_owned()));
}

#[test]
fn extensions_without_an_output_format_have_their_own_hint() {
    let folder = Folder::new();
    let model = folder.model("a.safetensors");
    let error = error(&["convert", &model, &folder.path("b.bin")]);
    assert_eq!((&error["code"], &error["hint"]), (&"unknown-extension".into(), &"use --to torch".into()));
}

#[test]
fn words_for_one_thing_are_taken_everywhere() {
    let folder = Folder::new();
    let (model, target) = (folder.model("a.safetensors"), folder.path("b.safetensors"));
    for word in ["--keep", "--select"] {
        for verb in ["convert", "edit"] {
            ok(&[verb, &model, &target, word, "w*"]);
            assert_eq!(names(&target), ["w1", "w2"], "{verb} {word}");
            fs::remove_file(&target).unwrap();
        }
        assert_eq!(of_tensors(&json(&["ls", &model, word, "w*"]), "name"), ["w1", "w2"]);
        let report = json(&["diff", &model, &model, word, "w*", "--all"]);
        assert_eq!(report["pairs"].as_array().unwrap().len(), 2);
    }
    for word in ["--plan", "--dry-run"] {
        for words in [
            &["convert", &model, &target][..],
            &["edit", &model, &target, "--rename", "w1=x"],
            &["merge", &model, "-o", &target],
            &["shard", &model, &folder.path("shards")],
        ] {
            ok(&[words, &[word]].concat());
            assert!(!Path::new(&target).exists(), "{words:?} {word}");
        }
        let program = golden("paddle/exec/save.pdmodel");
        ok(&["run", &program, "--folder", &folder.path("run"), word]);
        assert!(!Path::new(&folder.path("run")).exists());
    }
}

#[test]
fn ls_selects_and_stats_takes_patterns() {
    let folder = Folder::new();
    let model = folder.model("a.safetensors");
    let listed = |words: &[&str]| of_tensors(&json(&[&["ls", &model], words].concat()), "name");
    assert_eq!(listed(&["--select", "w*", "--select", "b1"]), ["b1", "w1", "w2"]);
    assert_eq!(listed(&["--drop", "w*"]), ["b1", "b2"]);
    assert_eq!(listed(&["--select", "*1", "--drop", "w*"]), ["b1"]);
    let all = json(&["ls", &model, "--hash"]);
    let some = json(&["ls", &model, "--hash", "--select", "w2"]);
    let hash = |document: &serde_json::Value| {
        document["tensors"].as_array().unwrap().last().unwrap()["sha256"].clone()
    };
    assert_eq!(hash(&some), hash(&all));
    assert_eq!(refused(&["ls", &model, "--select", "x*"]), "no-match");

    let told = |name: &str| of_tensors(&json(&["stats", &model, name]), "name");
    assert_eq!(told("w*"), ["w1", "w2"]);
    assert_eq!(told("[bw]1"), ["b1", "w1"]);
    assert_eq!(told("w1"), ["w1"]);
    let shown = text(&weighbridge(&["stats", &model, "w*"]));
    assert!(shown.starts_with("name ") && shown.lines().count() == 3, "{shown}");
    assert!(text(&weighbridge(&["stats", &model, "w?1*"])).is_empty());
    assert_eq!(refused(&["stats", &model, "x*"]), "no-match");
}

#[test]
fn a_transpose_that_fits_nothing_speaks_of_axes() {
    let folder = Folder::new();
    let (model, target) = (folder.model("a.safetensors"), folder.path("b.safetensors"));
    for (rule, why, order) in [
        ("w1=x", "no tensor matches the rule", "must be numbers, such as 1,0"),
        ("w1=0,1", "the dimensions already are in the order 0,1", "PATTERN=1,0,2"),
        ("b1", "every matching tensor has fewer than two dimensions", "applies only to matrices"),
    ] {
        let error = error(&["edit", &model, &target, "--transpose", rule]);
        assert_eq!(error["code"], "no-match");
        assert!(error["message"].as_str().unwrap().ends_with(why), "{error}");
        assert!(error["hint"].as_str().unwrap().contains(order), "{error}");
    }
}

#[test]
fn shards_are_not_put_into_a_folder_that_is_called_like_a_file() {
    let folder = Folder::new();
    let (model, target) = (folder.model("a.safetensors"), folder.path("b.safetensors"));
    let error = error(&["shard", &model, &target]);
    assert_eq!((&error["code"], &error["file"]), (&"shards-in-a-folder".into(), &target.clone().into()));
    assert_eq!(folder.count(), 1);
    // Whoever has such a folder means it.
    fs::create_dir(&target).unwrap();
    ok(&["shard", &model, &target]);
}

#[test]
fn errors_name_the_file() {
    let folder = Folder::new();
    let (a, b) = (folder.model("a.safetensors"), folder.model("b.safetensors"));
    for json in [&[][..], &["--json"]] {
        let output = weighbridge(&[&["show", &a, "w1[99]"], json].concat());
        assert!(format!("{}{}", text(&output), complaint(&output)).contains(&a), "{output:?}");
    }
    let error = error(&["diff", &a, &b, "--select", "nothere*"]);
    assert_eq!(error["code"], "no-match");
    assert_eq!(error["expected"], format!("a tensor of {a} or of {b}"));
    let again = folder.path("a.npz");
    ok(&["convert", &a, &again]);
    assert!(hint(&["merge", &a, &again, "--prefix-each", "-o", &folder.path("c.npz")]).contains("--prefer"));
}

#[test]
fn a_comparison_says_which_file_of_a_folder_it_is_about() {
    let folder = Folder::new();
    let (a, inner) = (folder.model("a.safetensors"), folder.path("in"));
    fs::create_dir(&inner).unwrap();
    let b = folder.model("in/b.safetensors");
    assert!(ok(&["diff", &a, &inner]).starts_with(&format!("right {b}\n")));
    assert!(!ok(&["diff", &a, &b]).contains(&b));
}

/// An extent of 2 is two too many of one.
#[test]
fn the_limit_of_dimensions_holds_below_its_usual_use() {
    let folder = Folder::new();
    let model = folder.model("a.safetensors");
    for path in [model, golden("npy/good/float64.npy")] {
        let error = error(&["ls", &path, "--limit", "dimensions=1"]);
        assert_eq!((&error["code"], &error["expected"]), (&"limit".into(), &"at most 1".into()), "{error}");
        ok(&["ls", &path, "--limit", "dimensions=2"]);
    }
}

#[test]
fn an_empty_key_of_metadata_is_shown() {
    let folder = Folder::new();
    let model = folder.model("a.safetensors");
    let target = folder.path("b.safetensors");
    let mut bytes = fs::read(model).unwrap();
    let header = usize::try_from(u64::from_le_bytes(bytes[..8].try_into().unwrap())).unwrap();
    let text = String::from_utf8(bytes[8..8 + header].to_vec()).unwrap();
    let text =
        format!("{{\"__metadata__\":{{\"\":\"kept\"}},{}", text[text.find("\"b1\"").unwrap()..].trim_end());
    bytes.splice(..8 + header, [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat());
    fs::write(&target, bytes).unwrap();
    assert!(
        ok(&["info", &target]).contains("\nmetadata\n  \"\"         kept\n"),
        "{}",
        ok(&["info", &target])
    );
}

#[test]
fn every_verb_has_examples() {
    let verbs = hint(&["man", "nothing"]);
    let verbs = verbs.strip_prefix("the verbs are ").unwrap().split(", ");
    for verb in verbs.filter(|verb| *verb != "help") {
        assert!(ok(&[verb, "--help"]).contains("\nExample"), "{verb}");
    }
}

/// What a format cannot hold is told in the words of the command wherever it is told.
#[test]
fn losses_name_flags() {
    let folder = Folder::new();
    let (words, target) =
        (folder.file("words.tsv", "word\t1.0\t2.0\nother\t3.0\t4.0\n"), folder.path("words.npy"));
    let denied = error(&["convert", &words, &target, "--deny-loss"]);
    assert!(denied["found"].as_str().unwrap().contains("a folder has (--kind folder)"), "{denied}");
    let report = json(&["convert", &words, &target, "--plan"]);
    assert!(report["losses"].to_string().contains("a folder has (--kind folder)"), "{report}");
}
