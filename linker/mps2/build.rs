//! Passes the linker scripts and options of the images to the linker, for a bare target only: the host lints the crate
//! but cannot link it.

fn main() {
    println!("cargo:rerun-if-changed=mps2-an386.ld");
    println!("cargo:rerun-if-changed=../unisono.x");
    if let (Ok(folder), Ok("none")) =
        (std::env::var("CARGO_MANIFEST_DIR"), std::env::var("CARGO_CFG_TARGET_OS").as_deref())
    {
        println!("cargo:rustc-link-arg-bins=-T{folder}/mps2-an386.ld");
        println!("cargo:rustc-link-arg-bins=-T{folder}/../unisono.x");
        // Functions of the same instructions are stored once; lld's.
        println!("cargo:rustc-link-arg-bins=--icf=all");
    }
}
