# make test    format, lints, and all tests; those that need the reference tools say so where they are missing
# make demo    what xfskit does, shown on an image
# make reference    install the reference tools (needs root)

CARGO ?= cargo

.PHONY: test demo reference

test:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) test --workspace

demo:
	scripts/demo

reference:
	scripts/reference
