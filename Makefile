# Table of contents of what can be done with weir. CI calls only these targets.
# One flag set for build, test, vet and lint: another one would compile everything twice.
export GOFLAGS := -trimpath $(GOFLAGS)

CORES   := ./reference/flowcontrol ./reference/scheduling ./reference/picker ./reference/async ./sim-vllm/engine ./loadgen/arrival ./loadgen/plan
DRIVERS := ./reference/epp ./reference/loadsync ./reference/asyncproc ./reference/redisq ./reference/pubsubq ./reference/extproc ./reference/gateway ./reference/scrape ./sim-vllm/server ./loadgen/openai ./loadgen/runner ./harness/run ./harness/kubeapi ./harness/prom ./harness/env/...
SEED    ?= 0
CHECKS  ?= 3000
SOAKS   ?= 8
PAIRS   ?= 20
ROUNDS  ?= 20

.PHONY: help build test race certify certify-epp certify-async selfcheck selfcheck-loaded swarm chaos-async fuzz bench verify manifests-verify image e2e e2e-up e2e-down nightly-gpu packages tools vuln update clean

help: ## show this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

build: ## bin/weir, the one program
	go build -ldflags '-s -w' -o bin/weir .

test: ## all tests, then the drivers again under the race detector
	go test ./...
	$(MAKE) race

race: ## the packages with goroutines, under the race detector
	go test -race -short $(DRIVERS)

certify: build ## certify the reference over real sockets, as the README does
	bin/weir certify --seed $(SEED)

certify-epp: build ## certify the reference picker as if it were somebody else's program
	bin/weir certify --seed $(SEED) --epp 'bin/weir picker --config-file {{.Config}} --grpc-port {{.GRPCPort}} --metrics-port {{.MetricsPort}} --allow-experimental-plugins'

certify-async: build ## certify the reference Async Processor, on redis-server where there is one, and under the older contract
	bin/weir certify-async --seed $(SEED) --level extended $$(command -v redis-server >/dev/null && echo --redis-server redis-server)
	bin/weir certify-async --seed $(SEED) --level extended --profile llm-d-async-0.9

selfcheck: build ## every mutant must be killed, under every contract
	bin/weir selfcheck
	bin/weir selfcheck --profile llm-d-router-0.9 --out .weir/selfcheck-llm-d-router-0.9.json
	bin/weir selfcheck --profile rhoai-3.4 --out .weir/selfcheck-rhoai-3.4.json
	bin/weir selfcheck --suite async --out .weir/selfcheck-llm-d-async-0.10.json

selfcheck-loaded: build ## RUNS (50) certifications of the reference beside a busy loop on every core; about an hour
	hack/selfcheck-loaded.sh

swarm: build ## random histories of the cores, CHECKS of each (seeds are printed), 24 virtual hours of SOAKS pickers, PAIRS pairs of mutants
	go test -count=1 $(CORES) -rapid.checks=$(CHECKS)
	go test -count=1 -v -run TestSoak ./reference/picker -soak=24h -soak-seeds=$(SOAKS)
	bin/weir selfcheck --pairs $(PAIRS) --seed $(SEED) --runs 1 --out .weir/selfcheck-pairs.json

fuzz: ## every fuzz target for FUZZTIME (60s) each
	hack/fuzz.sh

chaos-async: ## ROUNDS (20) rounds of killed, stopped, suspended processors and a killed broker, on a real redis-server
	ROUNDS=$(ROUNDS) hack/chaos-async.sh

bench: ## speed, side by side in one run; writes results/bench/reference.md and async.md
	hack/bench.sh

.PHONY: results
results: build ## the table of submissions again, and every hash, verdict and text of each
	bin/weir results-table results
	bin/weir verify results

verify: tools ## format, tidy modules, vet, lint, repository rules
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo "not gofmt'd:"; gofmt -l $$(git ls-files '*.go'); exit 1; }
	go mod tidy -diff
	go vet ./...
	bin/golangci-lint run ./...
	go test -count=1 ./harness/lint

manifests-verify: ## every overlay builds, keeps the policy, and its schemas, configurations, alerts and dashboards hold; an API server on kind takes them (server-side dry run)
	go test -count=1 ./manifests ./harness/env/cluster/render
	hack/manifests-dry-run.sh

e2e: build bin/kind image ## the whole of it on kind: create, deploy, certify, certify-async, what only a deployment shows, a shared load, delete (KEEP=1 keeps the cluster)
	hack/e2e.sh

e2e-up: build bin/kind image ## a kind cluster with the stack deployed
	hack/e2e-up.sh

e2e-down: build bin/kind ## delete the kind cluster
	bin/weir cluster down --kind-program bin/kind

image: ## the container image of every role, IMAGE (weir:dev)
	hack/image/build.sh

nightly-gpu: build ## deploy real model servers in the cluster of CONTEXT, load them, write results/gpu
	CONTEXT=$(CONTEXT) hack/nightly-gpu.sh

packages: ## redis-server of the distribution, which some tests want beside the embedded one
	sudo -n apt-get update -qq && sudo -n apt-get install -y -qq --no-install-recommends redis-server

tools: bin/golangci-lint ## the pinned tools of hack/tools

bin/golangci-lint: hack/tools/go.mod
	go -C hack/tools build -o $(CURDIR)/bin/ tool

bin/kind: hack/tools/go.mod
	go -C hack/tools build -o $(CURDIR)/bin/kind sigs.k8s.io/kind

vuln: tools ## known vulnerabilities (reports, from a database that comes as a module)
	hack/vuln.sh

update: ## rewrite the golden files after a look at the differences
	go test ./harness/report ./harness/sut -update
	go test ./reference/picker ./reference/async ./sim-vllm/engine ./loadgen/plan -rewrite

clean: ## remove what was built and the runs under .weir
	rm -rf bin .weir
