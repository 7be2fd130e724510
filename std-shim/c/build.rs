//! Gives the shared library its name, by which programs find it.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libunisono.so.0");
    println!("cargo:rerun-if-changed=build.rs");
}
