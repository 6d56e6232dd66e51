# Copyright The annex Authors.
# SPDX-License-Identifier: Apache-2.0

SHELL       := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS   += --no-print-directory

VERSION ?= $(shell git describe --tags --match 'v*' --dirty 2>/dev/null || echo v0.0.0-dev)
COMMIT  ?= $(shell git rev-parse HEAD 2>/dev/null)
pkg     := github.com/annex-dev/annex

# Compiled packages and the results of unit tests in Go's cache serve clones in other folders too.
export GOFLAGS := -trimpath $(shell go env GOFLAGS)

# Stripped, because the symbol table is a third of the file.
LDFLAGS := -s -w -X $(pkg)/pkg/version.gitVersion=$(VERSION) -X $(pkg)/pkg/version.gitCommit=$(COMMIT)

# For `kubectl version`: module k8s.io/kubectl v0.X.Y is Kubernetes v1.X.Y.
kubectl_version = $(shell sed -n 's/^\tk8s.io\/kubectl v0\./v1./p' hack/tools/kubectl/go.mod)
kubectl_ldflags = -s -w $(patsubst %,-X k8s.io/component-base/version.%,\
	gitVersion=$(kubectl_version) gitMajor=1 gitMinor=$(word 2,$(subst ., ,$(kubectl_version))))

# The version of the main cluster that tests and demos run: make test-cluster KUBERNETES=1.35.4
pinned_kubernetes := $(shell sed -n 's/^\tk8s.io\/kubernetes v//p' hack/tools/cluster/go.mod)
KUBERNETES        ?= $(pinned_kubernetes)
ifeq ($(KUBERNETES),$(pinned_kubernetes))
cluster_module := hack/tools/cluster
cluster_bin    := bin
else
cluster_module := bin/kubernetes-$(KUBERNETES)/module
cluster_bin    := bin/kubernetes-$(KUBERNETES)
export MAINCLUSTER_BIN := $(CURDIR)/$(cluster_bin)
endif
cluster_programs := $(cluster_bin)/kube-apiserver $(cluster_bin)/kube-controller-manager

# A second kube-apiserver of another version, in tests that run two: make test-long PEER_KUBERNETES=1.36.3
PEER_KUBERNETES ?=
ifneq ($(PEER_KUBERNETES),)
export MAINCLUSTER_PEER_BIN := $(CURDIR)/bin/kubernetes-$(PEER_KUBERNETES)
test-long: peer-programs
endif

# The programs choose the APIs that they serve by their version.
cluster_ldflags = -s -w $(patsubst %,-X k8s.io/component-base/version.%,\
	gitVersion=v$(KUBERNETES) gitMajor=1 gitMinor=$(word 2,$(subst ., ,$(KUBERNETES))))

# A tenth of the compiler's CPU time was garbage collection.
build bin/% $(cluster_programs): export GOGC := 400

##@ Use it

.PHONY: help
help: ## Show this list.
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/annex and the kubectl plugin bin/kubectl-annex, with its completion.
	go build -ldflags '$(LDFLAGS)' -o bin/annex .
	@ln -sf annex bin/kubectl-annex
	@ln -sf annex bin/kubectl_complete-annex

# make run FLAGS=--secure-port=8443
FLAGS ?=
.PHONY: run
run: build ## Build and serve from .annex/ on 127.0.0.1:7443 until interrupted.
	bin/annex serve $(FLAGS)

.PHONY: main-cluster
main-cluster: cluster-programs ## Run a Kubernetes control plane until interrupted.
	@go build -o bin/demo ./hack/demo
	@bin/demo main-cluster

# make demo ONCE=1 exits by itself.
.PHONY: demo
demo: build kubectl cluster-programs ## Demonstrate annex behind a main cluster until interrupted.
	@go build -o bin/demo ./hack/demo
	@bin/demo demo --once=$(if $(ONCE),true,false)

##@ Test it

.PHONY: test
test: build kubectl operator etcd ## Run unit, integration and end-to-end tests. They need no Kubernetes.
	@go run ./hack/testrun unit race integration e2e

.PHONY: test-unit
test-unit: ## Run the unit tests and check the conventions.
	@go run ./hack/testrun unit race

.PHONY: test-integration
test-integration: ## Run the tests that start servers inside the test process.
	@go run ./hack/testrun integration

.PHONY: test-e2e
test-e2e: build kubectl operator etcd ## Test bin/annex with kubectl and an operator.
	@go run ./hack/testrun e2e

.PHONY: test-cluster
test-cluster: build kubectl operator helm prometheus cluster-programs ## Test annex behind a real kube-apiserver and kube-controller-manager.
	@go run ./hack/testrun cluster

# make test-long DURATION=1h runs each random test for an hour. One that fails has logged its seed.
DURATION ?= 10m
.PHONY: test-long
test-long: build kubectl operator cluster-programs bin/e2e-apimachinery ## Run what is random or long: torture, comparison with upstream, fuzzing, Kubernetes' own tests.
	@go run ./hack/testrun long $(DURATION)

# make test-skew PREVIOUS=v0.1.0. Until there is a release, a commit takes its place.
PREVIOUS ?= $(shell git describe --tags --abbrev=0 --match 'v*' HEAD^ 2>/dev/null || echo a96e79763a76227bb57d21136e416ae95adbfd2b)
.PHONY: test-skew
test-skew: build etcd bin/previous/annex ## Test annex together with the previous release.
	@go run ./hack/testrun skew

.PHONY: test-release
test-release: bin/krew ## Make a release twice, from clones of the last commit, and compare them.
	@go run ./hack/testrun release

.PHONY: bin/previous/annex
bin/previous/annex:
	@rm -rf $(@D) && mkdir -p $(@D)/source
	git archive $(PREVIOUS) | tar -x -C $(@D)/source
	cd $(@D)/source && go build -o ../annex -ldflags '-s -w -X $(pkg)/pkg/version.gitVersion=v0.0.0-previous' .

# make test-upstream SUITES=standalone runs one of them.
.PHONY: test-upstream
test-upstream: build kubectl cluster-programs bin/e2e-apimachinery ## Run Kubernetes' own API server tests against annex.
	@go run ./pkg/test/upstream $(SUITES)

.PHONY: test-summary
test-summary: ## Print the last results of all levels and the slowest tests.
	@go run ./hack/testrun summary

# make bench PARTS='start retention', of those that bin/bench annex --help lists
PARTS ?=
JSON  ?=
.PHONY: bench
bench: build bin/bench bin/etcd cluster-programs ## Measure start-up time, memory, size and latencies.
	@bin/bench annex $(PARTS) --json=$(JSON)

# make bench-peer COUNTS=10000,50000 SIZES=1000,2500,14000 JSON=peer.json
COUNTS ?= 10000
SIZES  ?= 2500
ROUNDS ?= 5
MEMORY ?= 16
ONLY   ?=
.PHONY: bench-peer
bench-peer: build bin/bench bin/etcd cluster-programs ## Compare annex with a kube-apiserver that serves the same CRD.
	@bin/bench peer --counts=$(COUNTS) --sizes=$(SIZES) --rounds=$(ROUNDS) --memory=$(MEMORY) --only="$(ONLY)" --json=$(JSON) \
		--command='make bench-peer COUNTS=$(COUNTS) SIZES=$(SIZES)'

# make bench-million OBJECTS=20000 CACHE=Compressed DIR=/path, which keeps the data.
OBJECTS ?= 1000000
CACHE   ?=
DIR     ?=
.PHONY: bench-million
bench-million: build bin/bench bin/etcd ## Measure an annex of 8 GiB with a million objects.
	@bin/bench million --objects=$(OBJECTS) --cache=$(CACHE) --dir=$(DIR) --json=$(JSON) \
		--command='make bench-million OBJECTS=$(OBJECTS)$(if $(CACHE), CACHE=$(CACHE))'

# make bench-charts RESULTS='peer.json million.json'
RESULTS ?= docs/benchmarks/*.json
.PHONY: bench-charts
bench-charts: bin/bench ## Draw the charts of docs/performance.md from the results of bench-peer and bench-million.
	bin/bench charts docs/benchmarks $(RESULTS)

.PHONY: dashboard-pictures
dashboard-pictures: bin/bench build prometheus cluster-programs ## Draw the pictures of docs/dashboards.md from a test's Prometheus.
	@rm -rf bin/dashboards && mkdir -p bin/dashboards docs/dashboards
	ANNEX_DASHBOARD_RESULTS=$(CURDIR)/bin/dashboards go test -tags cluster -count=1 -run '^TestMonitoring$$' ./pkg/test/cluster/serving
	bin/bench dashboards docs/dashboards bin/dashboards/*.json

##@ Release it

RELEASE = go run . --version=$(VERSION) --commit=$(COMMIT) --time=$(shell git log -1 --format=%ct 2>/dev/null || echo 0) --ldflags='$(LDFLAGS)'

# make release VERSION=v0.1.0
.PHONY: release
release: ## Write what a release publishes into dist/: archives, image, chart, SBOMs, krew manifest, checksums.
	@changes="$$(git status --porcelain)"; if [ -n "$$changes" ]; then echo "make release: commit or remove these changes first:"; echo "$$changes"; exit 1; fi
	@cd hack/release && $(RELEASE) --out=../../dist

.PHONY: image
image: ## Write an image of this machine's architecture into bin/image, without a container engine.
	@rm -rf bin/image && mkdir -p bin
	@cd hack/release && $(RELEASE) --image-of=$(shell go env GOARCH) --out=../../bin/image

##@ Change it

.PHONY: generate
generate: ## Regenerate pkg/generated, all zz_generated files and docs/reference-commands.md.
	hack/update-codegen.sh
	go run ./hack/reference > docs/reference-commands.md

.PHONY: verify
verify: ## Fail if generated code or go.mod is out of date.
	hack/verify-codegen.sh
	go run ./hack/reference | diff docs/reference-commands.md -
	go mod tidy -diff
	cd hack/bench && go mod tidy -diff
	cd hack/release && go mod tidy -diff && go test .
	go mod verify

.PHONY: lint
lint: bin/golangci-lint ## Check formatting, go vet and the linters of .golangci.yaml.
	@unformatted=$$(git ls-files -co --exclude-standard '*.go' | xargs gofmt -l); \
	if [ -n "$$unformatted" ]; then echo "not formatted, run gofmt -w on:"; echo "$$unformatted"; exit 1; fi
	bin/golangci-lint run ./...
	cd hack/bench && ../../bin/golangci-lint run ./...
	cd hack/release && ../../bin/golangci-lint run ./...

.PHONY: kubectl
kubectl: bin/kubectl ## Build bin/kubectl from the module that hack/tools/kubectl pins.

.PHONY: operator
operator: bin/operator ## Build bin/operator, an example operator on controller-runtime.

.PHONY: etcd
etcd: bin/etcd bin/etcdctl ## Build bin/etcd, for additional Stores, and bin/etcdctl.

.PHONY: cluster-programs
cluster-programs: $(cluster_programs) ## Build the programs of a main cluster.

.PHONY: peer-programs
peer-programs:
	@$(MAKE) cluster-programs KUBERNETES=$(PEER_KUBERNETES)

.PHONY: helm
helm: bin/helm ## Build bin/helm from the module that hack/tools/helm pins.

.PHONY: prometheus
prometheus: bin/prometheus bin/promtool ## Build bin/prometheus and bin/promtool, which the tests of alerts run.

.PHONY: clean
clean: ## Remove bin/. .annex/ contains data and is kept.
	rm -rf bin

# Tools are rebuilt when their module changes.
bin/kubectl: hack/tools/kubectl/main.go hack/tools/kubectl/go.mod hack/tools/kubectl/go.sum
	cd hack/tools/kubectl && go build -o ../../../$@ -ldflags '$(kubectl_ldflags)' .

bin/operator: $(wildcard hack/tools/operator/*.go) hack/tools/operator/go.mod hack/tools/operator/go.sum
	@echo "building $(@F), on controller-runtime $(shell sed -n 's/^\tsigs.k8s.io\/controller-runtime //p' hack/tools/operator/go.mod): about a minute the first time"
	cd hack/tools/operator && go build -o ../../../$@ -ldflags '-s -w' .

bin/etcd: hack/tools/etcd/main.go hack/tools/etcd/go.mod hack/tools/etcd/go.sum
	cd hack/tools/etcd && go build -o ../../../$@ -ldflags '-s -w' .

bin/etcdctl: hack/tools/etcd/go.mod hack/tools/etcd/go.sum
	cd hack/tools/etcd && go build -o ../../../$@ -ldflags '-s -w' go.etcd.io/etcd/etcdctl/v3

$(cluster_programs): $(cluster_module)/go.mod
	@echo "building $(@F) $(KUBERNETES) for a main cluster: minutes for the first of the two programs, then Go's build cache has it"
	cd $(cluster_module) && go build -o $(CURDIR)/$@ -ldflags '$(cluster_ldflags)' k8s.io/kubernetes/cmd/$(@F)

# Versions other than the pinned one.
bin/kubernetes-%/module/go.mod: hack/cluster-module.sh
	hack/cluster-module.sh $* $(@D)

bin/e2e-apimachinery: hack/tools/cluster/e2e/main.go hack/tools/cluster/go.mod hack/tools/cluster/go.sum
	@echo "building $(@F), Kubernetes' end-to-end tests of api-machinery: minutes the first time"
	cd hack/tools/cluster && go build -o ../../../$@ -ldflags '$(cluster_ldflags)' ./e2e

# It is tested before it measures, because the tests of annex do not build it.
.PHONY: bin/bench
bin/bench:
	cd hack/bench && go test . && go build -o ../../$@ .

# Without what discovers targets in clouds, which is most of it.
bin/prometheus bin/promtool: hack/tools/prometheus/go.mod hack/tools/prometheus/go.sum
	cd hack/tools/prometheus && go build -o ../../../$@ -tags remove_all_sd -ldflags '-s -w' github.com/prometheus/prometheus/cmd/$(@F)

bin/golangci-lint: hack/tools/lint/go.mod hack/tools/lint/go.sum
	cd hack/tools/lint && go build -o ../../../$@ -ldflags '-s -w' github.com/golangci/golangci-lint/v2/cmd/golangci-lint

bin/krew: hack/tools/krew/go.mod hack/tools/krew/go.sum
	cd hack/tools/krew && go build -o ../../../$@ -ldflags '-s -w' sigs.k8s.io/krew/cmd/krew

bin/helm: hack/tools/helm/go.mod hack/tools/helm/go.sum
	cd hack/tools/helm && go build -o ../../../$@ -ldflags '-s -w' helm.sh/helm/v4/cmd/helm
