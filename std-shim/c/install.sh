#!/bin/sh
# Installs the C library: install.sh PREFIX [BUILD]. BUILD is a folder with libunisono_c.so and libunisono_c.a, such as
# target/debug; without it they are built for release.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
prefix=${1:?usage: install.sh PREFIX [BUILD]}
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$here/../../Cargo.toml" | head -n 1)
if [ $# -gt 1 ]; then
    build=$2
else
    (cd "$here/../.." && cargo build --release --locked -p unisono-c)
    build=${CARGO_TARGET_DIR:-$here/../../target}/release
fi
mkdir -p "$prefix/lib/pkgconfig" "$prefix/include"
prefix=$(cd "$prefix" && pwd)
install -m 644 "$here/include/unisono.h" "$prefix/include/unisono.h"
install -m 755 "$build/libunisono_c.so" "$prefix/lib/libunisono.so.$version"
install -m 644 "$build/libunisono_c.a" "$prefix/lib/libunisono.a"
ln -sf "libunisono.so.$version" "$prefix/lib/libunisono.so.0"
ln -sf libunisono.so.0 "$prefix/lib/libunisono.so"
sed -e "s|@PREFIX@|$prefix|" -e "s|@VERSION@|$version|" "$here/unisono.pc.in" > "$prefix/lib/pkgconfig/unisono.pc"
