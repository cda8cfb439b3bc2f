# make test    format, lints, links of the documentation, and all tests; those that need the reference tools say so
#              where they are missing
# make models  the engine's threads under thousands of schedules
# make sanitize  real threads under ThreadSanitizer, parsers and devices under AddressSanitizer: some minutes to build
# make demo    what xfskit does, shown on an image
# make bench   every experiment in ten minutes, beside the kernel (needs root, for the loop mount); a page in
#              target/bench.html
# make results  the same in full, into docs/results.md: on a quiet machine
# make crash   100,000 crash states, in at most ten minutes; make crash-long: as many as an hour holds,
#              and more of them before both kernels
# make fields   every field of every structure, damaged: an hour
# make fuzz     every fuzz target, an hour in all (XFSKIT_FUZZ_SECONDS); counts in target/fuzz-report.txt
# make mechanisms  each mechanism taken out, and the tests that notice it: an hour (make test draws two)
# make scrub    images of every form before the kernel's own scrub
# make packages     what users get: packed crates, packages, container image, each tried in a clean system (needs root)
# make suite        all tests of the command before the static binary of a release (needs root)
# make release      the files of a release, into target/release-files
# make reference    install the reference tools (needs root)
# make site     the documentation as a site, in target/site; installs mdbook the first time, which takes minutes

CARGO ?= cargo

.PHONY: test mechanisms mechanisms-drawn models sanitize demo bench results crash crash-long fields fuzz scrub \
	packages suite release reference site

# The commands that measure, which the binary of users leaves out.
MEASURING = --features xfskit-cli/bench

test:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets $(MEASURING) -- -D warnings
	$(CARGO) clippy -p xfskit-cli --all-targets -- -D warnings
	RUSTDOCFLAGS="$(RUSTDOCFLAGS) -D warnings" $(CARGO) doc --workspace --no-deps
	$(CARGO) test --workspace $(MEASURING)
	cat target/fuzz-report.txt
	$(MAKE) mechanisms-drawn
	$(MAKE) models
	$(MAKE) crash

# Each mechanism can still be taken out, and of some that are drawn by the commit tests notice it.
mechanisms-drawn:
	XFSKIT_MECHANISMS_BUILD=target scripts/disable-mechanisms --draw 2

# Every mechanism, an hour.
mechanisms:
	scripts/disable-mechanisms

# With debug assertions: the models lean on the engine's own.
models:
	RUSTFLAGS="$(RUSTFLAGS) --cfg shuttle -D warnings" CARGO_TARGET_DIR=target/shuttle \
		$(CARGO) test -p xfskit-engine --test shuttle

# The sanitizers need one unstable option of the compiler; the standard library stays as it comes, without them.
SANITIZED_HOST = $(shell rustc --print host-tuple)
SANITIZED_CARGO = RUSTC_BOOTSTRAP=1 CARGO_PROFILE_DEV_DEBUG=1 $(CARGO) test --target $(SANITIZED_HOST)

sanitize:
	RUSTFLAGS="$(RUSTFLAGS) -Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer" \
		CARGO_TARGET_DIR=target/thread-sanitizer \
		TSAN_OPTIONS="suppressions=$(CURDIR)/scripts/thread-sanitizer.supp" \
		$(SANITIZED_CARGO) -p xfskit-engine --test threads
	RUSTFLAGS="$(RUSTFLAGS) -Zsanitizer=address" CARGO_TARGET_DIR=target/address-sanitizer \
		$(SANITIZED_CARGO) -p xfskit-ondisk -p xfskit-device -p xfskit-fuzz-harness --tests

demo:
	scripts/demo

bench:
	$(CARGO) run --release -p xfskit-cli $(MEASURING) -- bench all --quick --against kernel \
		--report target/bench.html --report target/bench.json --report target/bench.md

results:
	$(CARGO) run --release -p xfskit-cli $(MEASURING) -- bench all --against kernel \
		--report docs/results.md --report target/results.html

crash:
	$(CARGO) run --release -p xfskit-cli $(MEASURING) -- crash-test --total 100000 --seconds 600

crash-long:
	$(CARGO) run --release -p xfskit-cli $(MEASURING) -- crash-test --states 20000 --seconds 3600
	XFSKIT_OUTSIDE_STATES=500 $(CARGO) test -p xfskit-sim --test outside
	XFSKIT_FORMATTED_RUNS=490 XFSKIT_RECOVERY_RUNS=100 $(CARGO) test -p xfskit-engine --test recovery

fields:
	XFSKIT_FIELD_CASES=all $(CARGO) test -p xfskit-check --test fields

fuzz:
	XFSKIT_FUZZ_SECONDS=$${XFSKIT_FUZZ_SECONDS:-3600} $(CARGO) test -p xfskit-fuzz-harness -p xfskit-cli fuzz_
	cat target/fuzz-report.txt

scrub:
	XFSKIT_SCRUB_ALL=1 $(CARGO) test -p xfskit-check --test good the_kernels_scrub

packages:
	scripts/packages

suite:
	XFSKIT_SUITE=all scripts/packages release suite

release:
	scripts/release

reference:
	scripts/reference

site:
	scripts/site --install
	scripts/site
