#!/usr/bin/env bash

# Copyright The annex Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs a release's annex like its image and artifacts/deploy, without a container engine: in a
# read-only root, as user 65532 without capabilities, with one writable volume that has the owner
# and mode set by fsGroup. Needs root and unshare(1) for mounts, which are private to the script.
#
#   verify-image.sh PROGRAM

set -o errexit -o nounset -o pipefail

program="$1"

if [[ "$(id -u)" != 0 ]]; then
    echo "verify-image: skipped: needs root for chroot and mounts" >&2
    exit 0
fi

scratch="$(mktemp -d)"
trap 'rm -rf "${scratch}"' EXIT
chmod 755 "${scratch}"
root="${scratch}/root"
mkdir -p "${root}/var/lib/annex" "${root}/proc"

cp "${program}" "${root}/annex"

cat > "${scratch}/run" <<'EOF'
set -o errexit -o nounset
root="$1"
mount --bind "${root}" "${root}"
mount -t tmpfs -o size=512m,mode=2775,gid=65532 volume "${root}/var/lib/annex"
mount --rbind /proc "${root}/proc"
mount -o remount,bind,ro "${root}"
exec chroot --userspec=65532:65532 --groups=65532 "${root}" \
    /annex serve --data-dir=/var/lib/annex/data --secure-port=0
EOF

unshare --mount sh "${scratch}/run" "${root}" > "${scratch}/out" 2> "${scratch}/err" &
annex=$!
for _ in $(seq 300); do
    if grep -q 'is ready at' "${scratch}/out" || ! kill -0 "${annex}" 2> /dev/null; then
        break
    fi
    sleep 0.1
done
if ! grep 'is ready at' "${scratch}/out"; then
    echo "verify-image: annex did not become ready:" >&2
    cat "${scratch}/err" >&2
    exit 1
fi
# All commands used exec, so this is annex itself. It must exit with 0.
kill -TERM "${annex}"
if ! wait "${annex}"; then
    echo "verify-image: annex did not stop cleanly:" >&2
    cat "${scratch}/err" >&2
    exit 1
fi
echo "verify-image: annex ran and stopped in an empty, read-only root as user 65532"
