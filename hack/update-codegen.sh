#!/usr/bin/env bash

# Copyright The annex Authors.
# SPDX-License-Identifier: Apache-2.0

# Regenerates all code derived from pkg/apis (deep copies, defaults, conversions, Protocol
# Buffers, OpenAPI, apply configurations, clientset, listers, informers), and the chart's
# templates from artifacts/deploy. Needs only Go: the generators are built from the
# k8s.io/code-generator of go.mod into a scratch folder.
#
# The OpenAPI generator also checks API conventions. Violations that are not in
# hack/api-violations.list are errors. To accept one after review:
#   ACCEPT_API_VIOLATIONS=true hack/update-codegen.sh

set -o errexit -o nounset -o pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
cd "${root}"

module="$(go list -m)"
boilerplate="${root}/hack/boilerplate.go.txt"

scratch="$(mktemp -d)"
trap 'rm -rf "${scratch}"' EXIT
export GOBIN="${scratch}/bin"
export TMPDIR="${scratch}"

go mod download k8s.io/code-generator
# shellcheck source=/dev/null
source "$(go list -m -f '{{.Dir}}' k8s.io/code-generator)/kube_codegen.sh"

# Upstream's types that annex serves. The k8s.io/api module contains no OpenAPI
# definitions.
served_packages=(
    k8s.io/api/core/v1
    k8s.io/api/events/v1
    k8s.io/api/coordination/v1
    k8s.io/api/authentication/v1
    k8s.io/api/authorization/v1
    k8s.io/api/rbac/v1
    k8s.io/api/admissionregistration/v1
    k8s.io/api/flowcontrol/v1
    k8s.io/api/autoscaling/v1
    k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1
    k8s.io/kube-aggregator/pkg/apis/apiregistration/v1
    k8s.io/apimachinery/pkg/util/intstr
)
extra_packages=()
for package in "${served_packages[@]}"; do
    extra_packages+=(--extra-pkgs "${package}")
done
# Their model names exist already, and the module cache is not writable.
KUBE_CODEGEN_READONLY_PKGS+=("${served_packages[@]}")

kube::codegen::gen_helpers \
    --boilerplate "${boilerplate}" \
    pkg/apis

# Packages with +k8s:protobuf-gen. go-to-protobuf runs protoc and goimports, and expects .proto
# files below the import paths of their packages.
go install k8s.io/code-generator/cmd/go-to-protobuf
go -C hack/tools/protoc install . tool
protobuf="${scratch}/protobuf"
mkdir -p "${protobuf}/$(dirname "${module}")" "${protobuf}/k8s.io" "${protobuf}/github.com/gogo"
ln -s "${root}" "${protobuf}/${module}"
ln -s "$(go list -m -f '{{.Dir}}' k8s.io/apimachinery)" "${protobuf}/k8s.io/apimachinery"
ln -s "$(go -C hack/tools/protoc list -m -f '{{.Dir}}' github.com/gogo/protobuf)" "${protobuf}/github.com/gogo/protobuf"
imported_packages=(
    k8s.io/apimachinery/pkg/api/resource
    k8s.io/apimachinery/pkg/apis/meta/v1
    k8s.io/apimachinery/pkg/runtime
    k8s.io/apimachinery/pkg/runtime/schema
    k8s.io/apimachinery/pkg/util/intstr
)
PATH="${GOBIN}:${PATH}" go-to-protobuf \
    --go-header-file "${boilerplate}" \
    --apimachinery-packages "$(printf -- '-%s\n' "${imported_packages[@]}" | paste -sd,)" \
    --packages "$(grep -rl --include=doc.go '^// +k8s:protobuf-gen=package' pkg/apis | xargs dirname | sed "s|^|${module}/|" | paste -sd,)" \
    --output-dir "${protobuf}"

kube::codegen::gen_openapi \
    --boilerplate "${boilerplate}" \
    --output-dir pkg/generated/openapi \
    --output-pkg "${module}/pkg/generated/openapi" \
    --output-model-name-file zz_generated.model_name.go \
    --report-filename "${root}/hack/api-violations.list" \
    ${ACCEPT_API_VIOLATIONS:+--update-report} \
    "${extra_packages[@]}" \
    pkg/apis

# The generators do not remove files of deleted kinds.
rm -rf pkg/generated/{applyconfiguration,clientset,informers,listers}
mkdir -p pkg/generated/{applyconfiguration,clientset,informers,listers}

go run ./hack/codegen/models-schema > "${scratch}/models-schema.json"

kube::codegen::gen_client \
    --boilerplate "${boilerplate}" \
    --with-watch \
    --with-applyconfig \
    --applyconfig-openapi-schema "${scratch}/models-schema.json" \
    --output-dir pkg/generated \
    --output-pkg "${module}/pkg/generated" \
    pkg/apis

go run ./hack/chart
