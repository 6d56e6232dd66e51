#!/usr/bin/env bash

# Copyright The annex Authors.
# SPDX-License-Identifier: Apache-2.0

# Fails if hack/update-codegen.sh would change files or report a new violation of API
# conventions. It works on a scratch copy; the working tree need not be clean.

set -o errexit -o nounset -o pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
cd "${root}"

scratch="$(mktemp -d)"
trap 'rm -rf "${scratch}"' EXIT

# Everything that the generators read and write.
paths=(
    artifacts/chart
    artifacts/deploy
    go.mod
    go.sum
    hack/api-violations.list
    hack/boilerplate.go.txt
    hack/chart
    hack/codegen
    hack/tools/protoc
    hack/update-codegen.sh
    pkg/apis
    pkg/generated
)
cp -R --parents "${paths[@]}" "${scratch}"

if ! "${scratch}/hack/update-codegen.sh" > "${scratch}/log" 2>&1; then
    cat "${scratch}/log" >&2
    echo "verify-codegen: generating failed, see above" >&2
    exit 1
fi

stale=0
for path in "${paths[@]}"; do
    diff -ruN "${path}" "${scratch}/${path}" || stale=1
done
if [[ "${stale}" != 0 ]]; then
    echo "verify-codegen: generated files are out of date: run hack/update-codegen.sh and commit the result" >&2
    exit 1
fi
echo "verify-codegen: generated files are up to date"
