# What each target does: make help. Everything works from a fresh clone. CLI-010 names fmt,
# test, vet, build and integration; CLI-012 and TEST-030 what make test does.

GO          ?= go
VERSION     ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS     := -X github.com/orbitkit/orbit/internal/version.version=$(VERSION)
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
# Race tests of one package on all engines may take minutes on two cores.
TIMEOUT     ?= 15m
# Packages tested at a time: one more than there are processors, as tests wait for databases
# and leases a quarter of their time.
PACKAGES    ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
# The race detector watches all code but the SQLite engine itself: C made Go, which it would
# make many times slower. No more may be left out: what other packages share with it would
# be reported wrongly. Programs that tests build are built the same way.
RACE        := GOFLAGS="$$($(GO) env GOFLAGS) -gcflags=modernc.org/sqlite/lib=-race=false"
# How long make soak goes on.
SOAK_MINUTES ?= 30
# How often make soak-quickstart runs the quickstart on each engine.
COUNT       ?= 20

.DEFAULT_GOAL := help

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: fmt
fmt: ## format all Go files
	gofmt -w .

.PHONY: vet
vet: ## report suspicious code
	$(GO) vet ./...

.PHONY: lint
lint: vet ## check formatting, vet and staticcheck
	GO="$(GO)" STATICCHECK="$(STATICCHECK)" scripts/lint.sh

.PHONY: build
build: ## build the command-line programs into bin/
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

.PHONY: test
test: vet ## run every test with -race on SQLite, a private MySQL, MariaDB and PostgreSQL
	scripts/c-compiler.sh
	scripts/curl.sh
	scripts/libfaketime.sh
	$(RACE) scripts/test-mysql.sh env GO="$(GO)" scripts/test-modules.sh $(GO) test -race -p $(PACKAGES) -timeout $(TIMEOUT) ./...

.PHONY: integration
integration: ## run only the packages that test against databases, on all engines
	scripts/c-compiler.sh
	scripts/curl.sh
	scripts/libfaketime.sh
	$(RACE) scripts/test-mysql.sh $(GO) test -race -p $(PACKAGES) -timeout $(TIMEOUT) $$(GO="$(GO)" scripts/database-packages.sh)

.PHONY: bench
bench: ## measure against hand-written floors and print ratios (takes minutes)
	bench/run.sh

.PHONY: model
model: ## check the model of lease and guard with Spin
	docs/model/check.sh

.PHONY: soak
soak: ## kill, pause and restart everything under load for SOAK_MINUTES on each engine
	scripts/c-compiler.sh
	ORBIT_TEST_POSTGRES_DSN=none $(RACE) scripts/test-mysql.sh env GO="$(GO)" scripts/soak.sh $(SOAK_MINUTES)

.PHONY: soak-quickstart
soak-quickstart: ## run the quickstart COUNT times on each engine, with -race
	scripts/c-compiler.sh
	ORBIT_TEST_POSTGRES_DSN=none $(RACE) scripts/test-mysql.sh env GO="$(GO)" scripts/soak-quickstart.sh $(COUNT)
