# shellcheck shell=bash
# What .ci/run and .ci/long share: the environment, the system packages, and one function per stage of several commands.
# Sourced, not run.
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CARGO_TERM_COLOR=never CARGO_INCREMENTAL=0 DEBIAN_FRONTEND=noninteractive
# Without optimization at link time, which takes minutes for thirty programs. Images are built as they ship.
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
# Without line tables, which make most of the 21 GB that a run with them leaves behind.
export CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_RELEASE_DEBUG=0
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
tools=$target/tools
test_log=$target/ci-tests.log
mkdir -p "$target"

# System packages, each with its user.
packages=(
    cmake libclang-dev # the bindings of rdma-core: feature verbs
    binutils    # nm, size, readelf, addr2line: the image's symbols
    gcc python3 # rdma-core's posting code, which ours is compared with
    rustc-web rust-web-src # the compiler for targets without an operating system, and its libcore
    iproute2    # network namespaces as hosts
    valgrind    # instruction counts
    xz-utils    # dpkg -x of the packages that the virtual machine consists of
)

install_packages() { # installs the missing packages and removes none
    local package missing=()
    apt-get -qq update
    for package in "${packages[@]}"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q '^install ok installed$' || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] || apt-get install -qq -y --no-install-recommends --no-remove "${missing[@]}"
}

emulators() {
    linker/fetch-qemu "$target/qemu-arm" arm
    linker/fetch-qemu "$target/qemu-x86" x86
}

release_build() { # every proof runs `unisono` from this folder; `proof` below does not rebuild it
    cargo build --release --locked --workspace
}

proof() { # BINARY OPTION…: a harness of unisono-tests, in release
    cargo run --release --locked --quiet -p unisono-tests --bin "$@"
}

all_models() { # every model; what each explored is kept for `size_models`
    proof models -- --json | tee "$target/models-speed.json"
    git rev-parse HEAD >"$target/models-speed.commit"
}

size_models() { # the core that is built for size explores the same states as the one that is built for speed
    [ "$(cat "$target/models-speed.commit" 2>/dev/null)" = "$(git rev-parse HEAD)" ] || all_models
    CARGO_TARGET_DIR=$target/models-size cargo run --release --locked --quiet -p unisono-tests \
        --no-default-features --features optimize_for_size --bin models -- --json >"$target/models-size.json"
    python3 - "$target"/models-{speed,size}.json <<'EOF'
import json, sys
speed, size = ({line["model"]: (line["states"], line["fingerprint"]) for line in map(json.loads, open(name)) if "model" in line}
               for name in sys.argv[1:])
# Built for size, there is one rail, and losses do not change the congestion window.
speed = {model: found for model, found in speed.items() if not model.startswith("rails-") and model != "congestion"}
for model, found in speed.items():
    print(f"{model:20} {found[0]:>9} states, fingerprint {found[1]:016x}", "equal" if size.get(model) == found else "DIFFERENT")
sys.exit(speed != size)
EOF
}

mpi_differential() { # over unisono and over the MPICH that the stage mpi-programs fetches
    local against=(--against target/mpi-programs/venv/bin/mpiexec.hydra)
    [ -x "${against[1]}" ] || { echo "without MPICH: run the stage mpi-programs first"; against=(); }
    proof mpi_differential -- --for 10m "${against[@]}"
}

benchmark() { # BINARY OPTION…: a benchmark of unisono-benches, in release
    cargo run --release --locked --quiet -p unisono-benches --bin "$@"
}

# SECONDS OPTION…: the checks in virtual machines, within a time limit. Their programs are built in a folder of their own.
soft_roce() {
    local limit=$1
    shift
    timeout --kill-after=10 "$limit" cargo run --release --locked --quiet -p unisono-tests --bin vm -- "$@"
}

# PART: every interleaving of the shared-memory primitives, and each memory ordering weakened in turn. Without a part: all.
loom_models() {
    RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=$target/loom \
        cargo test --release --locked -p unisono-shmem "models::${1-}" -- --nocapture
}

loom_mutants() { # rules of shared memory that are broken on purpose
    loom_notices overfill overfilled_ring_is_noticed
    loom_notices chunk_untimely chunks_written_too_early_are_noticed
    loom_notices chunk_retaken chunks_written_too_early_are_noticed
}

loom_notices() { # MUTANT MODEL: the model expects its own failure, and passes
    RUSTFLAGS="--cfg loom --cfg mutant=\"$1\"" CARGO_TARGET_DIR=$target/loom shmem_test "$2"
}

reductions() { # every reduction of shared memory against the oracle, in release
    shmem_test reductions_equal_the_oracle
}

shmem_test() { # NAME: the one test of unisono-shmem with this name runs and passes
    cargo test --release --locked -p unisono-shmem --lib -- --nocapture "$1" |
        tee -a /dev/stderr | grep -c '^test result: ok. 1 passed' >/dev/null
}

compile_fail() { # documented misuse does not compile, for the stated reason: a stable compiler does not compare error codes
    RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=$target/compile-fail \
        cargo test --doc --locked -p unisono -p unisono-memory -p unisono-shmem
}

times=() # a line per stage: seconds, result, name
failed=0
stop_at_failure=yes

# NAME COMMAND…: runs the command with `set -e`, records seconds and result, and exits after a failure unless
# `stop_at_failure` is `no`. Not to be called in a condition: there bash ignores `set -e`, in the subshell too.
stage() {
    local started=$SECONDS name=$1 result=passed status
    shift
    printf '\n== %s: %s\n' "$name" "$*"
    set +e
    (set -e; "$@")
    status=$?
    set -e
    if [ $status -ne 0 ]; then
        failed=$((failed + 1))
        result="FAILED ($status)"
    fi
    times+=("$(printf '%7d s  %-12s %s' $((SECONDS - started)) "$result" "$name")")
    if [ $status -ne 0 ]; then
        printf '\n== FAILED: %s (status %d, after %d s in all)\n' "$name" $status $SECONDS
        [ $stop_at_failure = no ] || exit $status
    fi
}

print_times() {
    printf '\n== stages\n'
    printf '%s\n' "${times[@]}" "$(printf '%7d s  %-12s all' $SECONDS "$failed failed")"
    df -h "$target" # a full disk shows as a linker that ends on a bus error
}
