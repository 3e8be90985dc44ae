//! Debug information in files of its own.

use std::fs;

use dwell_image::{DebugSearch, DebugState, Image};

use crate::fixtures;

#[test]
fn found_by_build_id() {
    let folder = tempfile::tempdir().unwrap();
    let id = fixtures::image("c-stripped.elf").build_id().unwrap().to_string();
    let place = folder.path().join(".build-id").join(&id[..2]);
    fs::create_dir_all(&place).unwrap();
    let file = place.join(format!("{}.debug", &id[2..]));
    fs::copy(fixtures::folder().join("c-stripped.debug"), &file).unwrap();

    let mut image = Image::parse(fixtures::bytes("c-stripped.elf")).unwrap();
    image.attach_debug(&DebugSearch { debug_dirs: vec![folder.path().to_owned()] });
    assert_eq!(image.debug_state(), DebugState::Separate(file));
    same_answers(&image, "c-dwarf5.elf");
}

#[test]
fn found_by_link_with_its_crc() {
    let none = DebugSearch { debug_dirs: Vec::new() };
    let mut image = fixtures::image("c-linked.elf");
    image.attach_debug(&none);
    assert!(matches!(image.debug_state(), DebugState::Separate(path) if path.ends_with("c-linked.debug")));
    assert!(image.procedures().iter().any(|p| p.name().starts_with("sum_squares")));

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("c-linked.elf");
    fs::copy(fixtures::folder().join("c-linked.elf"), &path).unwrap();
    let mut changed = fixtures::bytes("c-linked.debug");
    *changed.last_mut().unwrap() ^= 1;
    fs::write(folder.path().join("c-linked.debug"), changed).unwrap();
    let mut image = Image::open(&path).unwrap();
    image.attach_debug(&none);
    let DebugState::Missing(why) = image.debug_state() else { panic!("{:?}", image.debug_state()) };
    assert!(why.ends_with("c-linked.debug has another CRC than the image's link requires"), "{why}");
}

#[test]
fn missing_debug_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let search = DebugSearch { debug_dirs: vec![folder.path().to_owned()] };
    let mut image = Image::parse(fixtures::bytes("c-stripped.elf")).unwrap();
    image.attach_debug(&search);
    let DebugState::Missing(why) = image.debug_state() else { panic!("{:?}", image.debug_state()) };
    let id = image.build_id().unwrap();
    let dir = folder.path().display();
    assert_eq!(
        why,
        format!("the file has no debug information, and there is none for build id {id} in {dir}")
    );

    let frames = image.frames(image.procedures().iter().last().unwrap().address);
    assert_eq!(frames.len(), 1, "the procedure's name alone");
    assert_eq!(frames[0].line, None);
}

#[test]
fn debug_information_of_relocatable_files_is_not_read() {
    let image = fixtures::image("c-module.o");
    assert!(matches!(image.debug_state(), DebugState::Missing(why) if why.contains("relocatable")));
    assert_eq!(
        image.frames(image.procedures().iter().nth(1).unwrap().address)[0].function.as_deref(),
        Some("scale")
    );
}

#[test]
fn missing_split_files_are_named_and_lines_remain() {
    let image = fixtures::image("c-split.elf");
    let DebugState::Incomplete(missing) = image.debug_state() else { panic!("{:?}", image.debug_state()) };
    assert!(missing.starts_with("split debug information is missing for 1 of 1 units: "), "{missing}");
    assert!(missing.ends_with("calc.dwo (looked for: nowhere)"), "{missing}");
    let main = image.procedures().iter().find(|p| p.name() == "main").unwrap();
    let frames = image.frames(main.address);
    assert_eq!(frames[0].function.as_deref(), Some("main"));
    assert!(frames[0].line.is_some());
}

#[test]
fn compressed_debug_files_give_the_same_answers() {
    for name in ["c-zlib.elf", "c-zlib-gnu.elf", "c-zstd.elf"] {
        let image = fixtures::image(name);
        assert_eq!(image.debug_state(), DebugState::Present);
        same_answers(&image, "c-dwarf5.elf");
    }
}

fn same_answers(image: &Image, other: &str) {
    let other = fixtures::image(other);
    let names = |image: &Image| -> Vec<_> {
        image.procedures().iter().map(|p| (p.address, p.size_bytes, p.name().into_owned())).collect()
    };
    assert_eq!(names(image), names(&other));
    for procedure in image.procedures().iter() {
        for i in image.instructions(procedure.address, procedure.size_bytes) {
            assert_eq!(image.frames(i.address), other.frames(i.address), "at {}", i.address);
        }
    }
}
