# make test    format, lints, and all tests; those that need the reference tools say so where they are missing
# make demo    what xfskit does, shown on an image
# make bench   what operations cost, beside the kernel (needs root, for the loop mount)
# make reference    install the reference tools (needs root)

CARGO ?= cargo

.PHONY: test demo bench reference

test:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) test --workspace

demo:
	scripts/demo

bench:
	$(CARGO) run --release -p xfskit-bench

reference:
	scripts/reference
