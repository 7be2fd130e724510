//! Passes the image's linker script to the linker when the harness builds the image; lints on the host need none.

fn main() {
    println!("cargo:rerun-if-changed=link.ld");
    println!("cargo:rerun-if-env-changed=UNISONO_IMAGE_BUILD");
    if let (Ok(folder), Ok(_)) = (std::env::var("CARGO_MANIFEST_DIR"), std::env::var("UNISONO_IMAGE_BUILD")) {
        println!("cargo:rustc-link-arg-bins=-Wl,-T,{folder}/link.ld");
    }
}
