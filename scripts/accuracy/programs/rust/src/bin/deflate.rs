//! miniz_oxide: each FILE deflated at two levels and inflated again, several times. Prints the sizes.

use miniz_oxide::{deflate::compress_to_vec, inflate::decompress_to_vec};

fn work(path: &str) {
    let bytes = std::fs::read(path).expect("a readable file");
    for level in [1, 6] {
        let packed = compress_to_vec(&bytes, level);
        for _ in 0..4 {
            assert!(decompress_to_vec(&packed).is_ok_and(|again| again == bytes));
        }
        println!("{} {}", bytes.len(), packed.len());
    }
}

fn main() {
    for path in std::env::args().skip(1) {
        work(&path);
    }
}
