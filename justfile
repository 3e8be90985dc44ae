# The commands of this repository, for those who use just (https://just.systems). Each is one of npm's, which need nothing else: see package.json.

# List the recipes.
default:
    @just --list --unsorted

# Set up what is missing, build all and record an example.
start:
    npm start

# Set up what is missing and run all tests, or only the steps whose names have one of these words.
test *STEPS:
    npm test {{ if STEPS == "" { "" } else { "-- " + STEPS } }}

# Run all tests and the heavy checks: faults, fleet, Spark, calls.
full:
    npm run check:full

# Build the command line alone, as users get it.
build:
    cargo build --release --bin dwell

# Check the format, the lints and the rules of the repository.
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings
    cargo run -q -p dwell-xtask -- tidy

# Run a benchmark: collect, import, soak, feedback, count, probes, stacks, counting, sleepy, spark, fleet, flame, waits or ways.
bench NAME *OPTIONS:
    npm run bench:{{ NAME }} -- {{ OPTIONS }}

# Compare estimates with the truth.
accuracy *OPTIONS:
    npm run accuracy -- {{ OPTIONS }}
