# nftproxy: run `make` for the list of targets.

.DEFAULT_GOAL := help
SHELL := /bin/bash

VERSION ?= v0.2.0
COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null)
# The version for --version, the metric kubernetes_build_info and the user agent of the API client.
LDFLAGS := -s -w -X github.com/nftproxy/nftproxy/cmd/kube-proxy/app.Version=$(VERSION)
LDFLAGS += $(foreach package,k8s.io/component-base/version k8s.io/client-go/pkg/version,\
  -X $(package).gitVersion=$(VERSION) -X $(package).gitCommit=$(COMMIT))
GO_BUILD := CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)'
PLUGIN_BUILD := CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w -X main.version=$(VERSION)'
BENCH_BUILD := CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X github.com/nftproxy/nftproxy/test/bench/report.commit=$(COMMIT)'
STATICCHECK := go run honnef.co/go/tools/cmd/staticcheck@v0.8.2
# $(call build_with_progress,$(GO_BUILD),PROGRAM,PACKAGE) counts the packages that go build -v compiles, every five seconds.
# Messages of go build have spaces.
define build_with_progress
@set -o pipefail; echo "building $(2)"; n=0; $(1) -v -o $(2) $(3) 2>&1 | while read -r line; do \
  case "$$line" in "go: downloading "*) ;; *" "*) echo "$$line" >&2; continue;; *) n=$$((n + 1));; esac; \
  if ((SECONDS >= next)); then echo "  packages: $$n, now $${line#go: }"; next=$$((SECONDS + 5)); fi; \
done
endef
# The name of the image, its architectures, and the time stamp of its content.
IMAGE ?= ghcr.io/nftproxy/nftproxy:$(VERSION)
ARCH ?= $(shell go env GOARCH)
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
BENCH ?= .
BENCHTIME ?= 20x
COUNT ?= 1
FEATURES_RUN := -test.run=none -test.timeout=2h -test.bench=Features

# make test-kernels runs these packages and packet tests on other kernels, with the shorter forms that tests have for
# -short. PACKETS=all adds two packages, more packet tests and more kernels, and the tests in KERNEL_SKIP.
KERNEL_PACKAGES := ./nft ./proxier ./proxier/follow ./proxier/eject/probe ./cmd/kube-proxy/operator/explain ./cmd/kube-proxy/operator/trace ./proxier/table ./proxier/table/keep ./conntrack
KERNEL_SCRIPTS := busy-endpoint|addresses|traffic-policies|no-endpoints|source-ranges|affinity-local|bridge|masquerade-all|hairpin|sctp|counters
ifeq ($(PACKETS),all)
KERNEL_PACKAGES += ./healthcheck ./test/lab
KERNEL_SCRIPTS := $(KERNEL_SCRIPTS)|service-cidrs|hints|conflicts|conditions|endpoint-is-clusterip|nodeport|affinity$$|affinity-stays|affinity-repair|udp-flow|trace|source-hash|balance|stale|eject|affinity-full|flows|dead-endpoint$$|late-answer|silent-neighbour|priority
else
PACKAGE_KERNELS := -k 5.10 -k 6.12
PACKET_KERNELS := -k 6.1
# Emulated processors are ten times as slow, so these tests run on this kernel only. What they show does not depend on the
# kernel, or a cheaper test shows it too. A name also selects the names that contain it.
# nft, conntrack and explain:
KERNEL_SKIP := TestTooLargeToSend TestResetKeepsMemory TestHashes TestRandomClusters
KERNEL_SKIP += TestChallengedClients TestCleanerIsBoundedWhilePassesFail TestManyEndpoints
# proxier/table: computations without a kernel, and large tables.
KERNEL_SKIP += TestExpected TestClaimsReleaseMemory TestClientSetsOfNamespaces TestHugeServices
KERNEL_SKIP += TestDiffDuringChanges TestScrubOnBusyNode TestFamiliesAtTheSameTime TestFamilyHangs
KERNEL_SKIP += TestRepairBesideCommits TestRestartInSteps TestFrontendsReleaseMemory
# Scripts of table, and some with these names of other packages: sizes and comparisons (also of explain),
KERNEL_SKIP_SCRIPTS := numbers difference hashes parts scrub balancers
# injected faults (also the loop of proxier),
KERNEL_SKIP_SCRIPTS += interrupted refusedchanges failedchanges refusals heldback heldformer renamedport nomemory lostanswers
KERNEL_SKIP_SCRIPTS += family-hangs fought-over outage
# and which Service has an address, which endpoints it uses, and their ids.
KERNEL_SKIP_SCRIPTS += conflicts claims firstseen frontends nodeports nolocal views budgets endpoints ejections affinity
KERNEL_SKIP += $(KERNEL_SKIP_SCRIPTS:%=TestScripts/%)
empty :=
SKIP := -- -test.skip '$(subst $(empty) ,|,$(KERNEL_SKIP))'
endif

.PHONY: help
help: ## Show this list.
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/kube-proxy, a static binary, its second name bin/nftproxy, and the plugin bin/kubectl-nftproxy.
	$(call build_with_progress,$(GO_BUILD),bin/kube-proxy,./cmd/kube-proxy)
	$(call build_with_progress,$(PLUGIN_BUILD),bin/kubectl-nftproxy,./cmd/kubectl-nftproxy)
	@ln -sf kube-proxy bin/nftproxy
	@ln -sf kubectl-nftproxy bin/kubectl_complete-nftproxy

.PHONY: linux
linux: # Build the program with its bill of materials and licence texts in bin/linux-ARCH.
	@set -e; for arch in $(ARCH); do \
	  GOOS=linux GOARCH=$$arch $(GO_BUILD) -o bin/linux-$$arch/kube-proxy ./cmd/kube-proxy; \
	  (cd deploy && go run ./sbom --platform linux/$$arch --version $(VERSION) --created $(SOURCE_DATE_EPOCH) \
	    --output ../bin/linux-$$arch/sbom.cdx.json --licences ../bin/linux-$$arch/THIRD-PARTY); \
	done

.PHONY: image
image: linux ## Build bin/nftproxy-image.tar, without Docker: IMAGE= names it, ARCH="amd64 arm64" for several.
	@cd deploy && go run ./image --name $(IMAGE) --version $(VERSION) --revision "$(COMMIT)" --licence ../LICENSE \
	  --created $(SOURCE_DATE_EPOCH) --output ../bin/nftproxy-image.tar $(foreach arch,$(ARCH),$(arch)=../bin/linux-$(arch))

.PHONY: packages
packages: build linux ## Build a .deb and an .rpm in bin/packages, for machines without Kubernetes: ARCH="amd64 arm64" for several.
	@VERSION=$(VERSION) SOURCE_DATE_EPOCH=$(SOURCE_DATE_EPOCH) deploy/packages/build bin/packages $(ARCH)

.PHONY: plugin
plugin: # Build the plugin of kubectl and its licence texts in bin/plugin/OS-ARCH: OS= and ARCH= select them.
	@GOOS=$(OS) GOARCH=$(ARCH) $(PLUGIN_BUILD) -o bin/plugin/$(OS)-$(ARCH)/ ./cmd/kubectl-nftproxy
	@cd deploy && go run ./sbom --package ./cmd/kubectl-nftproxy --platform $(OS)/$(ARCH) \
	  --licences ../bin/plugin/$(OS)-$(ARCH)/THIRD-PARTY

.PHONY: release
release: ## Build the files of a release in bin/release.
	deploy/release/build $(VERSION) bin/release

.PHONY: release-dry-run
release-dry-run: release test-release ## Build the files of a release in bin/release and test them (root). It publishes nothing.

.PHONY: test-release
test-release: # Test the files of a release in bin/release (root).
	@test/setup qemu-aarch64-static:qemu-user-static
	cd test/deploy && RELEASE=$(CURDIR)/bin/release VERSION=$(VERSION) go test -count=1 -timeout 30m -v ./release

.PHONY: deploy-render
deploy-render: ## Render the kustomization OVERLAY (default: base).
	@cd test/deploy && go tool kustomize build ../../deploy/kustomize/$(if $(filter-out base,$(OVERLAY)),overlays/$(OVERLAY),base)

.PHONY: chart
chart: ## Update the generated files of the chart: the schema and the README.
	cd test/deploy && go run ./schema >../../deploy/helm/nftproxy/values.schema.json
	cd test/deploy && go tool helm-docs --chart-search-root=../../deploy/helm/nftproxy --sort-values-order=file --log-level=warning

.PHONY: kind-e2e
kind-e2e: ## Run the Services tests of Kubernetes on a kind cluster with nftproxy (Docker).
	@test/kind/run

.PHONY: demo
demo: setup build ## Show the product with real traffic between network namespaces (root, 20 s after the build).
	$(call build_with_progress,$(GO_BUILD),bin/demo,./test/demo)
	@bin/demo --kube-proxy bin/kube-proxy

# Tests take a sixth less processor time if the garbage of their programs is collected less often.
test test-apiserver test-bench test-deploy: export GOGC ?= 400

.PHONY: test
test: setup programs ## Run the tests on this kernel, in network namespaces (root). The first run builds etcd, kube-apiserver, Helm and kustomize.
	@# The longest package begins first. Tests wait now and then, so that others run beside them. API servers do not:
	@# beside the packages, both take longer than one after the other.
	go test -count=1 -timeout 20m -p 3 -parallel 4 ./test/packet ./...
	@$(MAKE) --no-print-directory -j2 --output-sync=line test-apiserver test-deploy

.PHONY: programs
programs: # Build the programs of other projects that tests run, unless they are up to date.
	@test/apiserver/build .cache/apiserver
	@cd test/deploy && for tool in kustomize helm helm-docs; do \
	  echo "building $$tool, unless it is up to date"; \
	  go tool -n $$tool >/dev/null || exit 1; \
	done
	@echo "building nfpm, unless it is up to date"
	@cd deploy && go tool -n nfpm >/dev/null

.PHONY: steps
steps: ## List the steps of scripts: PACKAGE=test/packet, proxier/table or another one.
	@go run ./test/script/steps ./$(PACKAGE)

.PHONY: test-race
test-race: setup ## Run the tests of the packages with the race detector (root, a C compiler, 5 minutes).
	CGO_ENABLED=1 go test -race -count=1 ./cmd/... ./conntrack/... ./healthcheck/... ./nft/... \
	  $$(go list ./proxier/... | grep -v -e /leftovers -e /table)

.PHONY: test-neighbours
test-neighbours: setup ## Test the proxy beside firewalls, CNI plugins and scripts of Debian (root). The first run fetches them.
	go test -count=1 ./test/neighbours

.PHONY: test-ipvs
test-ipvs: setup ## Test the proxy beside keepalived and IPVS on Linux 6.1 under qemu (root, 1 min after the first run).
	test/neighbours/ipvs 6.1

.PHONY: test-deploy
test-deploy: programs build linux ## Test manifests, chart, image, dashboards and packages (root). The first run builds kustomize and Helm.
	@test/setup rpm:rpm /lib/systemd/systemd:systemd man:man-db
	@# make release-dry-run runs the tests of the files of a release.
	cd test/deploy && go test -count=1 $$(go list ./... | grep -v '/release$$')

.PHONY: test-kernels
test-kernels: ## Run the kernel tests on Linux 5.10, 6.1 and 6.12 under qemu (root). PACKETS=all runs all of them.
	rm -rf .cache/kernel-tests .cache/leftover-tests .cache/packet-tests
	test/kernels/run build .cache/kernel-tests $(KERNEL_PACKAGES)
	test/kernels/run build .cache/leftover-tests ./proxier/leftovers ./nft/xtables
	test/kernels/run build .cache/packet-tests ./test/packet
	@# These tests use one processor most of the time, so all kernels run at once.
	test/kernels/run test $(PACKAGE_KERNELS) -j 3 -t 1800 -short .cache/kernel-tests $(SKIP)
	test/kernels/run test $(PACKAGE_KERNELS) -iptables -j 3 -t 900 -short .cache/leftover-tests
	@# At most 3 tests run at a time: emulated processors are slow, and an answer can take 10 s.
	test/kernels/run test $(PACKET_KERNELS) -short -t 1200 .cache/packet-tests -- -test.parallel 3 -test.run 'TestScripts/^($(KERNEL_SCRIPTS))'

.PHONY: test-apiserver
test-apiserver: setup programs ## Run the tests with etcd and kube-apiserver (root). SUBJECT=kube-proxy tests kube-proxy instead.
	@# The differential test compares with kube-proxy.
	cd test/apiserver && SUBJECT=$(SUBJECT) go test -count=1 -p 2 -parallel 4 -timeout 30m -skip '^TestCNI' $(if $(SUBJECT),.,./...)

.PHONY: test-cni
test-cni: ## Test the proxy with flannel and MetalLB (root). The first run builds them, and installs FRR, a BGP router.
	@test/setup /usr/lib/frr/bgpd:frr
	test/apiserver/build .cache/apiserver
	test/cni/build .cache/cni
	cd test/apiserver && go test -count=1 -timeout 30m -run '^TestCNI' .

.PHONY: differential
differential: setup ## Compare nftproxy with kube-proxy on random clusters (root): SEEDS= of them, from seed SEED=, with STEPS= states each.
	test/apiserver/build .cache/apiserver
	cd test/apiserver && go test -count=1 -timeout 0 -v ./differential \
	  -seeds=$(or $(SEEDS),1) -first=$(or $(SEED),1) -steps=$(or $(STEPS),5)

.PHONY: conformance
conformance: setup build ## Run the cases of any service proxy against PROXY=, a program with kube-proxy's flags (root, 10 minutes): MODE=, ARGS=, RUN= (features, tests).
	test/apiserver/build .cache/apiserver
	@go run ./test/conformance --proxy=$(or $(PROXY),bin/kube-proxy) --mode=$(or $(MODE),nftables) --args='$(ARGS)' \
	  --run='$(RUN)' --junit=$(or $(JUNIT),bin/conformance.xml)

.PHONY: test-bench
test-bench: setup programs ## Run each benchmark with the smallest sizes (root).
	go test -count=1 -run '^$$' -bench Features -benchtime 1x ./proxier/table -scale=0.001
	cd test/bench && go test -count=1 -p 3 ./...

.PHONY: lint
lint: ## Check format, imports, line widths, go vet and staticcheck.
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); \
	if [ -n "$$unformatted" ]; then echo "gofmt would change:"; echo "$$unformatted"; exit 1; fi
	go test -count=1 ./test/style
	@$(MAKE) --no-print-directory -j2 --output-sync=target $(MODULES:%=lint/%)

MODULES := . deploy test/deploy test/apiserver test/bench
.PHONY: $(MODULES:%=lint/%)
$(MODULES:%=lint/%): lint/%:
	@echo "go vet and staticcheck in $*"
	@cd $* && go vet ./... && $(STATICCHECK) ./...

.PHONY: bench
bench: setup ## Run the Go benchmarks (root). BENCH=, BENCHTIME= and COUNT= select what runs.
	go test -run '^$$' -bench '$(BENCH)' $(if $(filter .,$(BENCH)),-skip Features) -benchtime $(BENCHTIME) -count $(COUNT) ./proxier ./proxier/follow ./proxier/table ./conntrack

.PHONY: figures
figures: ## Fill the figures of README and BENCHMARKS in from the results of the benchmarks.
	go test -count=1 ./test/style -run '^TestFigures$$' -update

.PHONY: bench-features
bench-features: ## Measure the cost of each feature at two sizes (root, ten minutes). PUBLISH=1 keeps the figures, KERNEL=6.1 runs under qemu.
	@mkdir -p .cache/bench-features
	@CGO_ENABLED=0 go test -c -trimpath -o .cache/bench-features/features ./proxier/table
	@$(if $(KERNEL),test/kernels/run exec -k $(KERNEL) -t 7200 .cache/bench-features '/features $(FEATURES_RUN) -test.benchtime=3x -scale=0.1 $(FEATURES)',\
	  .cache/bench-features/features $(FEATURES_RUN) -test.benchtime=10x $(FEATURES) \
	  $(if $(PUBLISH),| tee test/bench/features/results/features.txt))

.PHONY: bench-scale
bench-scale: setup build ## Measure kube-proxy and nftproxy on a real API server (root, an hour). S= and E= select sizes, SCENARIO= the workload of a report, PUBLISH=1 keeps the figures.
	test/apiserver/build .cache/apiserver
	@cd test/bench && $(BENCH_BUILD) -o ../../bin/scale ./scale
	bin/scale $(if $(S),--services=$(S) --alone=$(ALONE)) $(if $(E),--endpoints=$(E)) $(if $(SCENARIO),--scenario=$(SCENARIO)) \
	  --output=.cache/bench/scale-$(shell date +%F)$(addprefix /,$(SCENARIO)) \
	  $(if $(PUBLISH),--publish=test/bench/scale/results$(addprefix /,$(SCENARIO))) $(SCALE)

.PHONY: bench-dataplane
bench-dataplane: setup build ## Measure what the rules cost new and established connections (root, 20 minutes). S= selects sizes, PUBLISH=1 keeps the figures.
	test/apiserver/build .cache/apiserver
	@cd test/bench && $(BENCH_BUILD) -o ../../bin/dataplane ./dataplane
	bin/dataplane $(if $(S),--services=$(S)) --output=.cache/bench/dataplane-$(shell date +%F) \
	  $(if $(PUBLISH),--publish=test/bench/dataplane/results) $(DATAPLANE)

.PHONY: bench-deadendpoints
bench-deadendpoints: setup build ## Measure what clients see when endpoints die or rules are flushed, and idle proxies, with kube-proxy and nftproxy (root, half an hour). PUBLISH=1 keeps the figures.
	test/apiserver/build .cache/apiserver
	@cd test/bench && $(BENCH_BUILD) -o ../../bin/deadendpoints ./deadendpoints
	bin/deadendpoints --output=.cache/bench/deadendpoints-$(shell date +%F) \
	  $(if $(PUBLISH),--publish=test/bench/deadendpoints/results) $(DEADENDPOINTS)

.PHONY: soak
soak: setup build ## Run the proxy for DURATION=1h under changes, connections and faults (root). SEED= repeats a run, FAULTS=none runs without faults, PUBLISH=1 keeps the result.
	test/apiserver/build .cache/apiserver
	@cd test/bench && $(BENCH_BUILD) -o ../../bin/soak ./soak
	bin/soak --duration=$(or $(DURATION),1h) --seed=$(or $(SEED),0) --output=.cache/soak --logs=.cache/soak/logs \
	  $(if $(FAULTS),--faults='$(FAULTS)') \
	  $(if $(PUBLISH),--publish=test/bench/soak/results$(if $(filter none,$(FAULTS)),/no-faults)) $(SOAK)

.PHONY: mutants
mutants: setup ## Break the product in 200 ways and see which tests notice (root, an hour): RUN= selects names or files.
	@go run ./test/mutants -run '$(RUN)'

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME (30s) each, and the long forms of random tests (root).
	@for package in $$(go list ./...); do \
	  for target in $$(go test -list '^Fuzz' $$package | grep '^Fuzz'); do \
	    go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(or $(FUZZTIME),30s) $$package || exit 1; \
	  done; \
	done
	go test -count=1 -timeout 1h -run TestRandomTables ./nft -tables=500
	go test -count=1 -timeout 1h -run TestRandomClusters ./cmd/kube-proxy/operator/explain -clusters=200
	go test -count=1 -timeout 1h -run 'TestRandomFaults|TestRandomTurns' ./proxier/table -histories=500
	go test -count=1 -timeout 1h -run TestRandomHistories ./proxier/table/keep -histories=500

.PHONY: golden
golden: ## Update the golden files. Read the difference before you commit it.
	go test -count=1 ./proxier -run Golden -update

.PHONY: setup
setup: # Install missing programs that the tests and the demo run.
	@test/setup

.PHONY: clean
clean: ## Delete build results. The kernels in .cache stay.
	rm -rf bin .cache/kernel-tests .cache/leftover-tests .cache/packet-tests
