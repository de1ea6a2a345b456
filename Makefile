# nftproxy: run `make` for the list of targets.

.DEFAULT_GOAL := help
SHELL := /bin/bash

VERSION ?= v0.1.0-dev
COMMIT := $(shell git rev-parse HEAD 2>/dev/null)
# What --version tells, and the metric kubernetes_build_info and the client's user agent as in every Kubernetes component.
LDFLAGS := -s -w -X github.com/nftproxy/nftproxy/cmd/kube-proxy/app.Version=$(VERSION)
LDFLAGS += $(foreach package,k8s.io/component-base/version k8s.io/client-go/pkg/version,\
  -X $(package).gitVersion=$(VERSION) -X $(package).gitCommit=$(COMMIT))
GO_BUILD := CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)'
BENCH_BUILD := CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X github.com/nftproxy/nftproxy/test/bench/report.commit=$(COMMIT)'
STATICCHECK := go run honnef.co/go/tools/cmd/staticcheck@v0.8.2
# The image: its name, the architectures in it, and the time of all that is in it.
IMAGE ?= ghcr.io/nftproxy/nftproxy:$(VERSION)
ARCH ?= $(shell go env GOARCH)
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
BENCH ?= .
BENCHTIME ?= 20x
COUNT ?= 1

# Packages whose tests run on other kernels too, and the packet tests that do. Emulated processors are slow:
# PACKETS=all adds tests that take another ten minutes for each kernel.
KERNEL_PACKAGES := ./nft ./proxier ./conntrack ./healthcheck ./test/lab
KERNEL_PACKETS := TestAddresses|TestTrafficPolicyLocal|TestNoEndpoints|TestSourceRanges|TestServiceCIDRs|TestAffinityLocal|TestBridgeNetfilter|TestHints|TestMasqueradeAll|TestHairpin|TestSCTP|TestConflicts|TestConditions
ifeq ($(PACKETS),all)
KERNEL_PACKETS := $(KERNEL_PACKETS)|TestEndpointIsClusterIP|TestNodePort|TestAffinity$$|TestAffinityFull|TestUDPFlow
endif

.PHONY: help
help: ## Show this list.
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/kube-proxy, one static binary.
	$(GO_BUILD) -o bin/kube-proxy ./cmd/kube-proxy

.PHONY: image
image: ## Build bin/nftproxy-image.tar, without Docker: IMAGE= names it, ARCH="amd64 arm64" for several.
	@for arch in $(ARCH); do GOOS=linux GOARCH=$$arch $(GO_BUILD) -o bin/linux-$$arch/kube-proxy ./cmd/kube-proxy || exit 1; done
	@go run ./deploy/image --name $(IMAGE) --version $(VERSION) --revision "$$(git rev-parse HEAD 2>/dev/null)" \
	  --created $(SOURCE_DATE_EPOCH) --output bin/nftproxy-image.tar $(foreach arch,$(ARCH),$(arch)=bin/linux-$(arch)/kube-proxy)

.PHONY: deploy-render
deploy-render: ## Print what the kustomization OVERLAY (base) renders, with the kustomize of test/deploy.
	@cd test/deploy && go tool kustomize build ../../deploy/kustomize/$(if $(filter-out base,$(OVERLAY)),overlays/$(OVERLAY),base)

.PHONY: kind-e2e
kind-e2e: ## Kubernetes' own Services tests on a kind cluster with nftproxy (Docker).
	@test/kind/run

.PHONY: demo
demo: setup build ## The product tour: a lab of network namespaces, real traffic through it (root).
	@$(GO_BUILD) -o bin/demo ./test/demo
	@bin/demo --kube-proxy bin/kube-proxy

.PHONY: test
test: setup ## All tests on this kernel, in network namespaces of their own (root); builds etcd and kube-apiserver the first time.
	go test -count=1 ./...
	@$(MAKE) --no-print-directory test-deploy
	@$(MAKE) --no-print-directory test-apiserver
	@$(MAKE) --no-print-directory test-bench

.PHONY: test-deploy
test-deploy: ## Manifests, chart, image and dashboards; builds kustomize and Helm the first time.
	cd test/deploy && go test -count=1 ./...

.PHONY: test-kernels
test-kernels: ## The kernel tests on Linux 5.10, 6.1 and 6.12 under qemu (root).
	rm -rf .cache/kernel-tests .cache/packet-tests
	test/kernels/run build .cache/kernel-tests $(KERNEL_PACKAGES)
	test/kernels/run build .cache/packet-tests ./test/packet
	test/kernels/run test -short .cache/kernel-tests
	@# At most 3 tests at a time: emulated processors keep attempts waiting, and an answer may take 10 s.
	test/kernels/run test -short -t 1200 .cache/packet-tests -- -test.parallel 3 -test.run '$(KERNEL_PACKETS)'

.PHONY: test-apiserver
test-apiserver: setup ## The tests with etcd and kube-apiserver: SUBJECT=kube-proxy runs them with Kubernetes' own proxy (root).
	test/apiserver/build .cache/apiserver
	cd test/apiserver && SUBJECT=$(SUBJECT) go test -count=1 -timeout 30m ./...

.PHONY: test-bench
test-bench: setup ## A short run of each benchmark (root).
	test/apiserver/build .cache/apiserver
	cd test/bench && go test -count=1 -p 1 ./...

.PHONY: lint
lint: ## gofmt, go vet and staticcheck.
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); \
	if [ -n "$$unformatted" ]; then echo "gofmt would change:"; echo "$$unformatted"; exit 1; fi
	@for module in . test/deploy test/apiserver test/bench; do \
	  echo "go vet and staticcheck in $$module"; \
	  (cd $$module && go vet ./... && $(STATICCHECK) ./...) || exit 1; \
	done

.PHONY: bench
bench: setup ## Benchmarks in the form that benchstat reads: BENCH=, BENCHTIME= and COUNT= choose.
	go test -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) -count $(COUNT) ./nft ./proxier ./conntrack

.PHONY: bench-features
bench-features: ## The cost of each feature at two sizes: KERNEL=6.1 measures a tenth under qemu, PUBLISH=1 keeps the figures, FEATURES= adds flags (root; ten minutes).
	@mkdir -p .cache/bench-features
	@cd test/bench && $(BENCH_BUILD) -o ../../.cache/bench-features/features ./features
	@$(if $(KERNEL),test/kernels/run exec -k $(KERNEL) -t 7200 .cache/bench-features '/features --scale=0.1 --tries=3 $(FEATURES)',\
	  .cache/bench-features/features $(if $(PUBLISH),--publish=test/bench/features/results) $(FEATURES))

.PHONY: bench-scale
bench-scale: setup build ## kube-proxy and nftproxy side by side on a real API server: S= and E= choose sizes, PUBLISH=1 keeps the figures (root; an hour).
	test/apiserver/build .cache/apiserver
	@cd test/bench && $(BENCH_BUILD) -o ../../bin/scale ./scale
	bin/scale $(if $(S),--services=$(S) --alone=$(ALONE)) $(if $(E),--endpoints=$(E)) --output=.cache/bench/scale-$(shell date +%F) \
	  $(if $(PUBLISH),--publish=test/bench/scale/results) $(SCALE)

.PHONY: bench-dataplane
bench-dataplane: setup build ## Cost of both proxies' rules for new connections and established flows: S= chooses sizes, PUBLISH=1 keeps the figures (root; 15 minutes).
	test/apiserver/build .cache/apiserver
	@cd test/bench && $(BENCH_BUILD) -o ../../bin/dataplane ./dataplane
	bin/dataplane $(if $(S),--services=$(S)) --output=.cache/bench/dataplane-$(shell date +%F) \
	  $(if $(PUBLISH),--publish=test/bench/dataplane/results) $(DATAPLANE)

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME (30s) each.
	@for package in $$(go list ./...); do \
	  for target in $$(go test -list '^Fuzz' $$package | grep '^Fuzz'); do \
	    go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(or $(FUZZTIME),30s) $$package || exit 1; \
	  done; \
	done

.PHONY: golden
golden: ## Write the golden files anew, to be read before they are committed.
	go test -count=1 ./proxier -run Golden -update

.PHONY: setup
setup: # Installs the programs that tests and demo run, where they are missing.
	@test/setup

.PHONY: clean
clean: ## Remove what was built; the kernels in .cache stay.
	rm -rf bin .cache/kernel-tests .cache/packet-tests
