#!/usr/bin/env bash
# Copyright The annex Authors.
# SPDX-License-Identifier: Apache-2.0

# hack/cluster-module.sh VERSION DIR writes a Go module to DIR that builds kube-apiserver and
# kube-controller-manager of a Kubernetes version, as hack/tools/cluster does of the pinned one.
# `make test-cluster KUBERNETES=VERSION` calls it.
set -euo pipefail
version=$1 dir=$2

mkdir -p "$dir"
if ! description=$(cd "$dir" && GO111MODULE=on go mod download -json "k8s.io/kubernetes@v$version"); then
  echo "Kubernetes $version cannot be downloaded: $(sed -n 's/.*"Error": "\(.*\)".*/\1/p' <<<"$description")" >&2
  echo "See which versions there are with: go list -m -versions k8s.io/kubernetes" >&2
  exit 1
fi
upstream=$(sed -n 's/.*"GoMod": "\(.*\)".*/\1/p' <<<"$description")

# k8s.io/kubernetes names its staging modules by path; their published versions are the same code.
{
  echo 'module cluster'
  grep -E '^(go|godebug) ' "$upstream"
  echo "require k8s.io/kubernetes v$version"
  sed -n "s|^\s*\(replace \)\?\(k8s.io/[a-z-]*\) => ./staging/.*|replace \2 => \2 v0.${version#1.}|p" "$upstream"
} >"$dir/go.mod.new"
cp hack/tools/cluster/tools.go "$dir/"
mv "$dir/go.mod.new" "$dir/go.mod"
(cd "$dir" && go mod tidy) || { rm "$dir/go.mod"; exit 1; }
